"""Planning on embeddings that are known exactly: the optimal number of steps, bounds, search."""

import itertools

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from emi.errors import UserError
from emi.intrinsic.emi import EMI, EMIConfig
from emi.planning.combination import all_actions, sums_of
from emi.planning.planner import Mode, Planner
from emi.planning.projection import AffineActions, steps_to
from emi.spaces import ActionGroups

SKEW = torch.tensor([[1.0, 0.8], [0.0, 0.5], [0.3, -0.2]])  # φ = A x, in three dimensions


def linear(weight: Tensor, bias: Tensor | None = None) -> nn.Linear:
    layer = nn.Linear(weight.shape[1], weight.shape[0])
    with torch.no_grad():
        layer.weight.copy_(weight)
        layer.bias.copy_(torch.zeros(len(weight)) if bias is None else bias)
    return layer


def exact(
    action_space: spaces.Space, slope: Tensor = SKEW, psi: Tensor | None = None, n: int = 2
) -> EMI:
    """EMI with φ = A x and ψ = A u, or with `psi` [K, d] of discrete actions; S = 0."""
    config = EMIConfig(embedding_dim=len(slope), error_model=False)
    method = EMI(spaces.Box(-np.inf, np.inf, (n,)), action_space, config, normalize=False)
    method.phi = nn.Sequential(linear(slope))
    method.psi = nn.Sequential(linear(slope if psi is None else psi.T))
    return method


def walk(planner: Planner, start: np.ndarray, goal: np.ndarray, steps: int) -> np.ndarray:
    """The positions [steps + 1, n, 2] of x ← x + a under the planner."""
    target, path = planner.embed(goal), [start]
    for _ in range(steps):
        path.append(path[-1] + planner.act(path[-1], target))
    return np.stack(path)


def points(seed: int, n: int = 50) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-20, 20, (n, 2)).astype(np.float32)


def test_the_straight_plan_takes_the_optimal_number_of_steps() -> None:
    planner = Planner(exact(spaces.Box(-1, 1, (2,))))
    start, goal = points(0), points(1)
    shortest = np.ceil(np.abs(goal - start).max(1) - 1e-4).astype(int)
    steps = planner.steps(planner.embed(goal) - planner.embed(start))
    np.testing.assert_allclose(steps.numpy(), np.abs(goal - start).max(1), rtol=1e-4)
    path = walk(planner, start, goal, shortest.max())
    rows = np.arange(len(start))
    np.testing.assert_allclose(path[shortest, rows], goal, atol=1e-3)
    assert (np.abs(path[shortest - 1, rows] - goal).max(1) > 1e-3).all()  # and in no fewer
    np.testing.assert_allclose(path[-1], goal, atol=1e-3)  # it stays there


def test_actions_keep_the_bounds_and_the_units_of_the_space() -> None:
    space = spaces.Box(np.array([0.0, -3.0], np.float32), np.array([4.0, 1.0], np.float32))
    planner = Planner(exact(space, torch.eye(2)))
    far = 100 * torch.tensor([[1.0, 1.0], [-1.0, 1.0], [1.0, -1.0]])
    found = planner.act(np.zeros((3, 2), np.float32), far)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, [[4, 1], [0, 1], [4, -3]], atol=1e-5)
    assert all(space.contains(action) for action in found)
    # ψ = u and u = (a − centre) / half: to move by 0.5, half of the way from the centre (2, −1).
    near = planner.act(np.zeros((1, 2), np.float32), torch.tensor([[0.5, -0.5]]))
    np.testing.assert_allclose(near, [[3, -2]], atol=1e-5)


def test_a_drift_makes_one_direction_slower() -> None:
    actions = AffineActions.of(lambda u: u + np.float32(0.5), 1)
    assert actions.fit == pytest.approx(1, abs=1e-6)
    # Forwards 1.5 per step, backwards 0.5.
    steps = steps_to(np.array([[3.0], [-3.0]], np.float32), actions)
    np.testing.assert_allclose(steps, [2.0, 6.0], rtol=1e-5)


def test_a_curved_psi_is_met_by_refinement() -> None:
    method = exact(spaces.Box(-1, 1, (2,)), torch.eye(2))

    class Curved(nn.Module):
        def forward(self, u: Tensor) -> Tensor:
            return u + 0.1 * u**3

    method.psi = Curved()  # type: ignore[assignment]
    delta = torch.tensor([[0.7, -0.3]])
    error = {}
    for refinements in (0, 6):
        planner = Planner(method, refinements=refinements)
        action = torch.from_numpy(
            planner.act_towards(planner.encode(np.zeros((1, 2), np.float32)), delta.numpy())
        )
        error[refinements] = float((method.psi(action) - delta).norm())
    assert error[6] < 1e-4 < error[0]


def test_greedy_minimises_the_distance_after_one_step() -> None:
    planner = Planner(exact(spaces.Box(-1, 1, (2,))), "greedy", refinements=200)
    delta = torch.from_numpy(points(2)) @ SKEW.T
    found = planner.act_towards(
        planner.encode(np.zeros((len(delta), 2), np.float32)), delta.numpy()
    )
    grid = np.stack(np.meshgrid(*[np.linspace(-1, 1, 81)] * 2), -1).reshape(-1, 2)
    effects = torch.from_numpy(grid.astype(np.float32)) @ SKEW.T
    best = torch.cdist(delta, effects).amin(1)
    own = (delta - torch.from_numpy(found) @ SKEW.T).norm(dim=1)
    assert (own <= best + 1e-4).all()


@pytest.mark.parametrize("horizon", [1, 2, 3])
def test_discrete_search_equals_brute_force(horizon: int) -> None:
    psi = torch.randn(4, 2, generator=torch.Generator().manual_seed(0))
    planner = Planner(exact(spaces.Discrete(4), torch.eye(2), psi), horizon=horizon)
    delta = 2 * torch.randn(30, 2, generator=torch.Generator().manual_seed(1))
    found = planner.act_towards(planner.encode(np.zeros((30, 2), np.float32)), delta.numpy())
    for own, wanted in zip(found, delta, strict=True):
        plans = [
            plan for k in range(1, horizon + 1) for plan in itertools.product(range(4), repeat=k)
        ]
        rest = [float((wanted - psi[list(plan)].sum(0)).norm()) for plan in plans]
        with_own = min(r for plan, r in zip(plans, rest, strict=True) if plan[0] == own)
        assert with_own == pytest.approx(min(rest), abs=1e-5)


def test_discrete_plans_reach_the_goal_in_the_optimal_number_of_steps() -> None:
    moves = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    planner = Planner(exact(spaces.Discrete(4), torch.eye(2), moves))
    goal, where = np.array([[3.0, -5.0]], np.float32), np.zeros((1, 2), np.float32)
    for _ in range(8):
        where = where + moves.numpy()[planner.act(where, planner.embed(goal))]
    np.testing.assert_array_equal(where, goal)


def test_multi_discrete_and_binary_actions_are_enumerated() -> None:
    table = all_actions(ActionGroups.of(spaces.MultiDiscrete([2, 3])))
    assert table.tolist() == [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]
    assert all_actions(ActionGroups.of(spaces.Discrete(3, start=5))).tolist() == [5, 6, 7]
    with pytest.raises(UserError, match="at most 4,096: these are 8,192"):
        all_actions(ActionGroups.of(spaces.MultiBinary(13)))


def test_sums_are_those_of_all_multisets_and_bounded() -> None:
    psi = torch.tensor([[1.0], [10.0]])
    sums, sizes = sums_of(psi, 2)
    assert sums.flatten().tolist() == [0, 1, 10, 2, 11, 20]
    assert sizes.tolist() == [0, 1, 1, 2, 2, 2]
    many, _ = sums_of(torch.zeros(100, 1), 3)
    assert len(many) == 101  # 5,050 pairs of 100 actions would be too many


@pytest.mark.parametrize("mode", ["straight", "greedy"])
@pytest.mark.parametrize("space", [spaces.Box(-1, 1, (2,)), spaces.Discrete(5)])
def test_a_batch_equals_its_rows_one_by_one(mode: Mode, space: spaces.Space) -> None:
    method = EMI(spaces.Box(-1, 1, (3,)), space, EMIConfig(embedding_dim=2), normalize=False)
    planner = Planner(method, mode)
    draw = np.random.default_rng(0)
    obs, goals = (draw.normal(size=(6, 3)).astype(np.float32) for _ in range(2))
    together = planner.act(obs, planner.embed(goals))
    alone = [planner.act(obs[i : i + 1], planner.embed(goals[i : i + 1]))[0] for i in range(6)]
    np.testing.assert_allclose(together, np.stack(alone), atol=1e-5)


def test_the_error_model_changes_the_first_action() -> None:
    """With S = −u₀ in the first entry, that entry cannot move: the other takes all the steps."""
    method = EMI(
        spaces.Box(-1, 1, (2,)), spaces.Discrete(2), EMIConfig(embedding_dim=2), normalize=False
    )
    method.phi = nn.Sequential(linear(torch.eye(2)))
    method.psi = nn.Sequential(linear(torch.tensor([[1.0, 0.0], [0.0, 0.9]])))

    class Blocked(nn.Module):
        state = nn.Identity()

        def join(self, features: Tensor, action: Tensor) -> Tensor:
            return torch.stack([-action[:, 0], 0 * action[:, 1]], 1)

    method.S = Blocked()  # type: ignore[assignment]
    obs, delta = np.zeros((1, 2), np.float32), torch.tensor([[1.0, 0.9]])
    for use_error, action in ((True, 1), (False, 0)):
        planner = Planner(method, "greedy", use_error=use_error)
        assert planner.act_towards(planner.encode(obs), delta.numpy()).tolist() == [action]


def test_unbounded_actions_are_refused() -> None:
    method = EMI(spaces.Box(-1, 1, (2,)), spaces.Box(-np.inf, np.inf, (2,)))
    with pytest.raises(UserError, match="bounded actions"):
        Planner(method)
