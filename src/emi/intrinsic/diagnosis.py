"""Does my bonus work? Questions to a method, asked on transitions of one's own."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from emi.batch import Array, FloatArray, Transitions, pieces
from emi.errors import UserError
from emi.intrinsic.contract import IntrinsicReward

Advantages = Callable[[FloatArray], Array]

FEATURES = 32  # numbers that an observation is reduced to, to tell where it lies
SEEN, UNSEEN = 0.5, 0.75  # quantiles along a direction: below is taught, above is kept back
RANKED = 0.6  # from this AUC on the unseen is preferred; below 1 − RANKED the seen is
FAR = 20.0  # times the usual way of a step, in any direction: too far for one
DRIVEN = 0.25  # share of the bonus that a few far steps may have,
OVERPAID = 5.0  # or this many times their share of the steps, if that is more


class Answer(NamedTuple):
    good: bool | None  # None: cannot be told from what was given
    value: float
    text: str


@dataclass(frozen=True)
class Diagnosis:
    """The answers by their question; `print` shows them, `as_dict` hands them on.

    Each has `good` (True, False, or None where it cannot be told from what was given), the
    `value` it rests on, and a `text`.
    """

    answers: dict[str, Answer]

    @property
    def good(self) -> bool:
        """Nothing speaks against the bonus."""
        return all(answer.good is not False for answer in self.answers.values())

    def as_dict(self) -> dict[str, dict[str, Any]]:
        """The answers as plain values, to be kept as JSON."""
        return {name: answer._asdict() for name, answer in self.answers.items()}

    def __str__(self) -> str:
        signs = {True: "✓", False: "✗", None: "–"}
        width = max(map(len, self.answers))
        return "\n".join(
            f"{signs[answer.good]} {name:<{width}}  {answer.text}"
            for name, answer in self.answers.items()
        )


def diagnose(
    method: IntrinsicReward,
    transitions: Transitions,
    *,
    reward: Array | None = None,
    eta: float = 1.0,
    advantages: Advantages | None = None,
    passes: int = 10,
) -> Diagnosis:
    """Ask whether `method` pays what a bonus should; it is left as it was.

    `transitions`: rows of one environment in the order of time, as from a rollout, some hundreds
    or more. `reward` [n]: the environment's. `advantages`: your trainer's function from rewards
    [n] to advantages [n], without randomness. `passes`: how often parts of the batch are taught.
    """
    if len(transitions) < 20:
        raise UserError(f"a diagnosis needs 20 transitions or more, got {len(transitions)}")
    before = copy.deepcopy(method.state_dict())
    try:
        bonus = _bonus(method, transitions)
        finite = _finite(bonus)
        answers = {"finite": finite}
        if finite.good:
            answers["resets"] = _resets(bonus, transitions)
            if not bonus.any():  # VIME and EX2 pay nothing before they have learnt
                bonus = _taught(method, transitions, transitions, passes)
                method.load_state_dict(copy.deepcopy(before))
            answers["share"] = _share(bonus, reward, eta)
            answers["advantages"] = _advantages(bonus, reward, eta, advantages)
            answers |= _novelty(method, transitions, passes)
    finally:
        method.load_state_dict(before)
    return Diagnosis(answers)


def _bonus(method: IntrinsicReward, batch: Transitions) -> FloatArray:
    return method.reward(batch).detach().cpu().double().numpy()


def _taught(
    method: IntrinsicReward, lesson: Transitions, batch: Transitions, passes: int
) -> FloatArray:
    """What is paid for the batch once the lesson has been learnt."""
    for _ in range(passes):
        method.learn(lesson)
    return _bonus(method, batch)


def _finite(bonus: FloatArray) -> Answer:
    wrong = int((~np.isfinite(bonus)).sum())
    if wrong:
        return Answer(False, float(wrong), f"{wrong} of {len(bonus)} bonuses are NaN or infinite")
    return Answer(True, 0.0, f"{len(bonus)} bonuses, from {bonus.min():.3g} to {bonus.max():.3g}")


def _varies(bonus: FloatArray) -> Answer:
    deviation = float(bonus.std())
    if deviation == 0:
        return Answer(False, 0.0, "every transition is paid the same: it prefers nothing")
    return Answer(True, deviation, f"standard deviation {deviation:.3g}, mean {bonus.mean():.3g}")


def _resets(bonus: FloatArray, transitions: Transitions) -> Answer:
    """Steps that go much too far are probably no steps: s' is the start of the next episode."""
    obs, next_obs = _places(transitions)
    way = np.abs(next_obs - obs)
    usual = np.median(way, axis=0)
    far = ((way > FAR * usual) & (usual > 0)).any(1)
    if not far.any():
        return Answer(True, 0.0, "no step goes far beyond the others")
    paid = bonus - bonus.min()
    share = float(paid[far].sum() / max(paid.sum(), np.finfo(float).tiny))
    what = f"{far.sum()} steps go {FAR:g} times as far as usual and have {share:.0%} of the bonus"
    if OVERPAID * far.mean() >= 1:
        return Answer(None, share, f"{what}: too many to tell whether they are resets")
    if share > max(DRIVEN, OVERPAID * far.mean()):
        return Answer(False, share, f"{what}: is next_obs the true successor where episodes end?")
    return Answer(True, share, what)


def _share(bonus: FloatArray, reward: Array | None, eta: float) -> Answer:
    if reward is None:
        return Answer(None, float("nan"), "not asked: give the environment's reward")
    paid, earned = np.abs(eta * bonus).sum(), np.abs(reward).sum()
    if not bonus.any():
        text = "nothing is paid for any of these: does it need more of them before it pays?"
        return Answer(False, 0.0, text)
    if paid == 0:
        return Answer(False, 0.0, f"nothing is paid with a eta of {eta:g}")
    share = float(paid / (paid + earned))
    return Answer(True, share, f"{share:.1%} of all reward, by size, is bonus")


def _advantages(
    bonus: FloatArray, reward: Array | None, eta: float, advantages: Advantages | None
) -> Answer:
    if advantages is None:
        return Answer(None, float("nan"), "not asked: give your trainer's function of rewards")
    if not bonus.any():
        return Answer(None, float("nan"), "not asked: nothing is paid")
    earned = np.zeros(len(bonus)) if reward is None else np.asarray(reward, np.float64)
    without, once = (np.asarray(advantages(earned + c * bonus), np.float64) for c in (0.0, eta))
    change = float(np.abs(once - without).mean())
    if change == 0:
        text = "the bonus changes no advantage: is it added before they are computed?"
        return Answer(False, 0.0, text)
    spread = max(float(without.std()), np.finfo(float).tiny)
    of_spread = f", {change / spread:.2g} of their spread" if without.std() > 0 else ""
    return Answer(True, change, f"the bonus moves an advantage by {change:.3g}{of_spread}")


def _novelty(method: IntrinsicReward, transitions: Transitions, passes: int) -> dict[str, Answer]:
    """Teach one side of the batch and look at the other; then teach that, too."""
    along = _slowest(*_places(transitions))
    seen = np.flatnonzero(along < np.quantile(along, SEEN))
    unseen = np.flatnonzero(along > np.quantile(along, UNSEEN))
    if not (len(seen) and len(unseen)):
        nothing = Answer(None, float("nan"), "all observations are alike: nothing to tell apart")
        return dict.fromkeys(("varies", "ranks", "falls"), nothing)
    both = transitions[np.sort(np.concatenate([seen, unseen]))]
    new = np.isin(np.sort(np.concatenate([seen, unseen])), unseen)

    bonus = _taught(method, transitions[seen], both, passes)
    first = _auc(bonus, new)
    then = _auc(_taught(method, transitions[unseen], both, passes), new)
    what = f"an unseen transition is paid more than a seen one in {first:.0%} of all pairs"
    fell = f"that falls to {then:.0%} once they are visited"
    if abs(first - 0.5) < RANKED - 0.5:
        # A bonus for surprise pays for what it cannot predict, which need not be what is new.
        ranks = Answer(None, first, f"{what}: it does not prefer the one to the other")
        return {"varies": _varies(bonus), "ranks": ranks, "falls": Answer(None, first - then, fell)}
    return {
        "varies": _varies(bonus),
        "ranks": Answer(first > 0.5, first, what),
        "falls": Answer(then < first, first - then, fell),
    }


def _auc(bonus: Array, high: Array) -> float:
    """Share of pairs (high, low) in which the first has the larger bonus; ties count half."""
    low, above = np.sort(bonus[~high]), bonus[high]
    ranks = np.searchsorted(low, above, "left") + np.searchsorted(low, above, "right")
    return float(ranks.mean() / (2 * len(low)))


def _places(transitions: Transitions) -> tuple[FloatArray, FloatArray]:
    """Where s and s' lie, [n, features] each, in units of the spread of s."""
    rng = np.random.default_rng(0)
    projection: Array | None = None
    sides = []
    for column in (transitions.obs, transitions.next_obs):
        rows = []
        for (part,) in pieces(column, device="cpu"):  # images need not be floats all at once
            flat = part.double().numpy().reshape(len(part), -1)
            if flat.shape[1] > FEATURES:
                if projection is None:
                    projection = rng.normal(size=(flat.shape[1], FEATURES)) / flat.shape[1] ** 0.5
                flat = flat @ projection
            rows.append(flat)
        sides.append(np.concatenate(rows))
    spread = sides[0].std(0)
    scale = np.where(spread > 0, spread, 1.0)
    return sides[0] / scale, sides[1] / scale


def _slowest(obs: FloatArray, next_obs: FloatArray) -> FloatArray:
    """[n, features] to [n]: along the direction that is long beside the steps taken in it.

    Its two ends are visited at different times, and noise of single observations is not in it.
    """
    centred, step = obs - obs.mean(0), next_obs - obs
    steps = step.T @ step / len(step)
    steps += 1e-6 * max(float(np.trace(steps)), 1.0) * np.eye(len(steps))
    root = np.linalg.inv(np.linalg.cholesky(steps))
    direction = root.T @ np.linalg.eigh(root @ (centred.T @ centred) @ root.T)[1][:, -1]
    # It has no sign of its own: let its largest entry be positive.
    return centred @ (direction * np.sign(direction[np.abs(direction).argmax()]))
