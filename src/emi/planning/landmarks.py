"""A graph of visited states, for environments where the straight line in φ is blocked.

Landmarks are visited states that are spread over φ. An edge joins two landmarks if the data shows
that an agent went from the cell of one to that of the other in a few steps. Its cost is the number
of steps of the straight line between them, more where the linear model is wrong: both S(s, a) and
the prediction error are large next to a wall. Neighbours in φ without such evidence are joined at
a higher cost, so that a gap in the data does not make a goal unreachable.

The agent goes in a straight line to a landmark near it, if the graph says that the line is free:
the shortest path is then hardly longer than the line.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from emi.batch import Array, BoolArray, Columns, FloatArray, IntArray, Transitions
from emi.errors import UserError
from emi.planning.planner import EncodedStates, Planner
from emi.planning.small_networks import array_of

LANDMARKS = 200
WINDOW = 8  # steps within which a path joins two cells
NEIGHBOURS = 8  # in φ, of each landmark
UNSEEN = 30.0  # factor of the cost of an edge that no path took: only where no other way leads
REVERSED = 1.5  # the same if a path took it in the other direction only
REACH = 12.0  # steps that a straight line to the next landmark may take
DETOUR = 1.3  # the longest path, as a multiple of the line, if the line is free
SHORTEST = 1e-6  # steps of an edge: none is free
FASTEST = 0.95  # quantile of displacements: a few steps are jumps
CANDIDATES = 20_000  # states among which landmarks are chosen


def spread_out(phi: Tensor, count: int) -> Tensor:
    """Indices of `count` rows of φ [n, d], each the farthest from those before it.

    The first is the farthest from the mean. Fewer if the rows are not that many different ones.
    Large batches are thinned first.
    """
    thin = max(1, len(phi) // CANDIDATES)
    phi = phi[::thin]
    distance = (phi - phi.mean(0)).norm(dim=1)
    chosen = [int(distance.argmax())]
    distance = (phi - phi[chosen[0]]).norm(dim=1)
    while len(chosen) < count and float(distance.max()) > 0:
        chosen.append(int(distance.argmax()))
        distance = torch.minimum(distance, (phi - phi[chosen[-1]]).norm(dim=1))
    return thin * torch.tensor(chosen)


def nearest(phi: Tensor, points: Tensor) -> IntArray:
    """The index of the nearest of `points` [N, d] to each φ; [n, d] to [n]."""
    parts = [torch.cdist(part, points).argmin(1) for part in phi.split(8_192)]
    return torch.cat(parts).cpu().numpy()


def _square(delta: Array) -> Array:
    """‖Δ‖², [..., d] to [...]; with its root, a third of the time of np.linalg.norm on few rows."""
    return np.einsum("...d,...d->...", delta, delta)


def _norm(delta: Array) -> Array:
    return np.sqrt(_square(delta))


def joined(
    cell: IntArray, next_cell: IntArray, path: IntArray, count: int, window: int
) -> BoolArray:
    """Which cells follow each other within `window` steps, [count, count].

    `cell` and `next_cell` [n] are those of s and s'. Rows with the same number in `path` [n] are
    consecutive steps of one episode.
    """
    seen = np.eye(count, dtype=bool)
    for k in range(min(window, len(path))):
        same = path[k:] == path[: len(path) - k]
        seen[cell[: len(path) - k][same], next_cell[k:][same]] = True
    return seen


def shortest_paths(cost: FloatArray) -> FloatArray:
    """Costs of the shortest paths between all pairs, by Floyd and Warshall; [n, n] each."""
    found = cost.copy()
    np.fill_diagonal(found, 0.0)
    for k in range(len(found)):
        np.minimum(found, found[:, k, None] + found[k], out=found)
    return found


def paths_of(batch: Transitions) -> tuple[IntArray, IntArray]:
    """An order of the rows by environment and time, and the number of each path; [n] each."""
    n = len(batch)
    env = np.zeros(n, np.int64) if batch.env_index is None else np.asarray(batch.env_index)
    ended = np.zeros(n, bool) if batch.ended is None else np.asarray(batch.ended)
    if (env < 0).any():
        raise UserError("landmarks need paths: give transitions in time order, with env_index")
    order = np.argsort(env, kind="stable")
    breaks = ended[order] | np.append(np.diff(env[order]) != 0, True)
    return order, np.concatenate([[0], np.cumsum(breaks)[:-1]])


class LandmarkGraph:
    """Landmarks of a batch of transitions and the shortest paths between them.

    `planner` gives the embedding, the cost of straight lines and the actions. `batch` has paths:
    rows of an environment in time order, with `env_index` and `ended`.
    """

    def __init__(
        self,
        planner: Planner,
        batch: Transitions,
        *,
        landmarks: int = LANDMARKS,
        window: int = WINDOW,
        neighbours: int = NEIGHBOURS,
        unseen: float = UNSEEN,
        reach: float = REACH,
        detour: float = DETOUR,
    ) -> None:
        self.planner = planner
        order, path = paths_of(batch)
        emi = planner.emi
        phi, phi_next = (planner.embed(rows)[order] for rows in (batch.obs, batch.next_obs))
        self.phi = phi[spread_out(phi, landmarks)]  # [N, d]
        self._points = array_of(self.phi)
        count = len(self.phi)
        cell, next_cell = self.cell(phi), self.cell(phi_next)
        # What actions cannot do at once, such as a change of position by forces, takes time too.
        self.speed = float((phi_next - phi).norm(dim=1).quantile(FASTEST).clamp(min=1e-12))
        self.seen = joined(cell, next_cell, path, count, window)  # [N, N]

        psi = emi.embed_action(batch.action)[order]
        S = emi.error(batch.obs, batch.action)[order]
        # Both S and what it does not explain say that the straight line is not the path.
        wrong = S.norm(dim=1) + (phi + psi + S - phi_next).norm(dim=1)
        share = (wrong / psi.norm(dim=1).mean().clamp(min=1e-12)).cpu().numpy()
        rows = np.maximum(np.bincount(cell, minlength=count), 1)
        error = np.bincount(cell, share, count) / rows  # [N], of the transitions from each cell
        usual = max(float(np.median(error)), 1e-12)
        factor = np.maximum((error[:, None] + error) / (2 * usual), 1.0)
        steps = np.maximum(self.array_steps(self._points - self._points[:, None]), SHORTEST)
        near = np.argsort(steps, axis=1, kind="stable")[:, : neighbours + 1]
        weight = np.full((count, count), np.inf)
        np.put_along_axis(weight, near, unseen, axis=1)
        weight = np.where(self.seen.T, np.minimum(weight, REVERSED), weight)
        weight = np.where(self.seen, 1.0, weight)
        self.distance = shortest_paths(weight * factor * steps)  # [N, N]
        self._to = np.ascontiguousarray(self.distance.T)  # a row is read faster than a column
        line = shortest_paths(weight * steps) <= (detour + 1e-9) * steps
        # The cost of a step along each straight line, infinite if it is not one to take; [N, N].
        self.weight = np.where(line & (steps <= reach), 1.0, weight)

    def array_steps(self, delta: Array) -> FloatArray:
        """The steps of straight lines Δ, [..., d] to [...]: of the linear model, or if it is more,
        ‖Δ‖ divided by the largest displacement of one step in the data."""
        return self._steps(delta, _norm(delta))

    def _steps(self, delta: Array, length: Array) -> FloatArray:
        """The same if ‖Δ‖ is known."""
        return np.maximum(self.planner.array_steps(delta), length / self.speed)

    def cell(self, phi: Tensor) -> IntArray:
        """The nearest landmark of each φ; [n, d] to [n]."""
        return nearest(phi, self.phi)

    def waypoint(self, phi: Tensor, goal: Tensor) -> Tensor:
        """Where to go next from φ(s) on the way to φ(g); [n, d] each.

        The landmark j with the least sum of the line to j and the shortest path from j, or the
        goal itself, if the line to it is not longer.
        """
        return torch.from_numpy(self._waypoint(array_of(phi), array_of(goal))).to(phi.device)

    def _waypoint(self, start: Array, end: Array) -> Array:
        n, count = len(start), len(self._points)
        # To the landmarks, and last to the goal; [n, N + 1, d].
        lines = np.empty((n, count + 1, start.shape[1]), start.dtype)
        np.subtract(self._points, start[:, None], out=lines[:, :count])
        np.subtract(end, start, out=lines[:, count])
        length = _norm(lines)
        here = length[:, :count].argmin(1)
        there = _square(self._points - end[:, None]).argmin(1)
        steps, rows = self._steps(lines, length), np.arange(n)
        weight = self.weight[here]  # [n, N]
        over = weight * steps[:, :count] + self._to[there]
        over[rows, here] = np.inf  # the way must go on
        best = over.argmin(1)
        go = weight[rows, there] * steps[:, count] <= over[rows, best]
        return np.where(go[:, None], end, self._points[best])

    def embed(self, obs: Columns) -> Tensor:
        """φ(s): [n, *observation] to [n, d]."""
        return self.planner.embed(obs)

    def encode(self, obs: Columns) -> EncodedStates:
        """What a plan needs of the current observations [n, *observation]."""
        return self.planner.encode(obs)

    def act(self, obs: Columns, goal: Tensor) -> Array:
        """The next actions [n, *action] for [n, *observation] and goals φ(g) [n, d]."""
        return self.act_from(self.encode(obs), goal)

    def act_from(self, state: EncodedStates, goal: Tensor) -> Array:
        """The same for encoded observations."""
        phi = array_of(state.phi)
        return self.planner.act_towards(state, self._waypoint(phi, array_of(goal)) - phi)

    def path(self, phi: Tensor, goal: Tensor) -> Tensor:
        """The planned path from φ(s) [d] to φ(g) [d] over landmarks, [points, d], both included."""
        points, there = [phi], goal[None]
        for _ in range(len(self.phi)):
            step = self.waypoint(points[-1][None], there)[0]
            points.append(step)
            if torch.equal(step, goal):
                break
        return torch.stack(points)
