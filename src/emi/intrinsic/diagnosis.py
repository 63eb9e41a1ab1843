"""Does my bonus work? Checks of a method on a user's own transitions."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from emi.batch import Array, FloatArray, Transitions, is_numeric, named_columns, pieces
from emi.errors import UserError
from emi.intrinsic.contract import IntrinsicReward

Advantages = Callable[[FloatArray], Array]

FEATURES = 32  # larger observations are projected to this many numbers
# Quantiles along the direction of `_slowest`: train on rows below SEEN, hold out rows above UNSEEN.
SEEN, UNSEEN = 0.5, 0.75
RANKED = 0.6  # an AUC between 1 − RANKED and RANKED counts as no preference
FAR = 20.0  # a step more than this many times as long as the median step is probably a reset
DRIVEN = 0.25  # a share of the bonus up to this is acceptable for far steps
EXCESS = 5.0  # so is a share up to this many times their share of the steps


class Answer(NamedTuple):
    good: bool | None  # None: the given data do not allow an answer
    value: float
    text: str


@dataclass(frozen=True)
class Diagnosis:
    """The answers by question; `print` shows them, `as_dict` returns plain values.

    Each answer has `good` (True, False, or None if the given data do not allow an answer), the
    `value` that it is based on, and a `text`.
    """

    answers: dict[str, Answer]

    @property
    def good(self) -> bool:
        """Whether no answer is False."""
        return all(answer.good is not False for answer in self.answers.values())

    def as_dict(self) -> dict[str, dict[str, Any]]:
        """The answers as plain values, for JSON."""
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
    """Check whether the bonus of `method` behaves as a bonus should; the method is not changed.

    `transitions`: for example one rollout; at least 20, better several hundred; the rows of each
    environment in time order. `reward` [n]: the environment's rewards. `eta`: the coefficient of
    the bonus. `advantages`: your trainer's function from rewards [n] to advantages [n], without
    randomness. `passes`: how often `learn` is called on each part of the batch.
    """
    if len(transitions) < 20:
        raise UserError(f"a diagnosis needs 20 transitions or more, got {len(transitions)}")
    bonus = _bonus(method, transitions)
    finite = _finite(bonus)
    answers = {"finite": finite}
    if finite.good:
        answers["resets"] = _resets(bonus, transitions)
        if not bonus.any():  # VIME and EX2 give no bonus before they are trained
            bonus = _trained(_copy(method), transitions, transitions, passes)
        answers["share"] = _share(bonus, reward, eta)
        answers["advantages"] = _advantages(bonus, reward, eta, advantages)
        answers |= _novelty(_copy(method), transitions, passes)
    return Diagnosis(answers)


def _copy(method: IntrinsicReward) -> IntrinsicReward:
    """A copy to train. Restoring the method would restore only what is in its `state_dict`."""
    try:
        return copy.deepcopy(method)
    except Exception as error:  # whatever an attribute of a user's method raises
        raise UserError(
            f"a diagnosis trains a copy of the method, and {type(method).__name__} cannot be "
            f"copied: {error}"
        ) from error


def _bonus(method: IntrinsicReward, batch: Transitions) -> FloatArray:
    return method.reward(batch).detach().cpu().double().numpy()


def _trained(
    method: IntrinsicReward, data: Transitions, batch: Transitions, passes: int
) -> FloatArray:
    """The bonus of the batch after training on `data`."""
    for _ in range(passes):
        method.learn(data)
    return _bonus(method, batch)


def _finite(bonus: FloatArray) -> Answer:
    wrong = int((~np.isfinite(bonus)).sum())
    if wrong:
        return Answer(False, float(wrong), f"{wrong} of {len(bonus)} bonuses are NaN or infinite")
    return Answer(True, 0.0, f"{len(bonus)} bonuses, from {bonus.min():.3g} to {bonus.max():.3g}")


def _varies(bonus: FloatArray) -> Answer:
    std = float(bonus.std())
    if std == 0:
        return Answer(False, 0.0, "every transition has the same bonus")
    return Answer(True, std, f"standard deviation {std:.3g}, mean {bonus.mean():.3g}")


def _resets(bonus: FloatArray, transitions: Transitions) -> Answer:
    """If a step is very long, s' is probably the first observation of the next episode."""
    obs, next_obs = _places(transitions)
    step = np.abs(next_obs - obs)
    usual = np.median(step, axis=0)
    far = ((step > FAR * usual) & (usual > 0)).any(1)
    if not far.any():
        return Answer(True, 0.0, "no step is much longer than the others")
    excess = bonus - bonus.min()
    share = float(excess[far].sum() / max(excess.sum(), np.finfo(float).tiny))
    what = (
        f"{far.sum()} steps are more than {FAR:g} times as long as the median step; "
        f"they receive {share:.0%} of the bonus"
    )
    if EXCESS * far.mean() >= 1:
        return Answer(None, share, f"{what}: too many to decide whether they are resets")
    if share > max(DRIVEN, EXCESS * far.mean()):
        return Answer(False, share, f"{what}: is next_obs the true successor where episodes end?")
    return Answer(True, share, what)


def _share(bonus: FloatArray, reward: Array | None, eta: float) -> Answer:
    if reward is None:
        return Answer(None, float("nan"), "not checked: pass the environment's rewards as `reward`")
    intrinsic, extrinsic = np.abs(eta * bonus).sum(), np.abs(reward).sum()
    if not bonus.any():
        text = "all bonuses are 0: does the method need more transitions before it gives a bonus?"
        return Answer(False, 0.0, text)
    if intrinsic == 0:
        return Answer(False, 0.0, f"eta is {eta:g}: no bonus is added")
    share = float(intrinsic / (intrinsic + extrinsic))
    return Answer(True, share, f"eta * bonus makes up {share:.1%} of the total absolute reward")


def _advantages(
    bonus: FloatArray, reward: Array | None, eta: float, advantages: Advantages | None
) -> Answer:
    if advantages is None:
        return Answer(None, float("nan"), "not checked: pass a function as `advantages`")
    if not bonus.any():
        return Answer(None, float("nan"), "not checked: all bonuses are 0")
    earned = np.zeros(len(bonus)) if reward is None else np.asarray(reward, np.float64)
    without, once = (np.asarray(advantages(earned + c * bonus), np.float64) for c in (0.0, eta))
    change = float(np.abs(once - without).mean())
    if change == 0:
        text = "the bonus changes no advantage: is it added before advantages are computed?"
        return Answer(False, 0.0, text)
    spread = max(float(without.std()), np.finfo(float).tiny)
    text = f"the bonus changes advantages by {change:.3g} on average"
    if without.std() > 0:
        text += f", {change / spread:.2g} times their standard deviation without the bonus"
    return Answer(True, change, text)


def _novelty(method: IntrinsicReward, transitions: Transitions, passes: int) -> dict[str, Answer]:
    """Train on the seen side and score both sides; train on the unseen side and score again."""
    along = _slowest(*_places(transitions))
    seen = np.flatnonzero(along < np.quantile(along, SEEN))
    unseen = np.flatnonzero(along > np.quantile(along, UNSEEN))
    if not (len(seen) and len(unseen)):
        nothing = Answer(None, float("nan"), "all observations are equal: nothing to compare")
        return dict.fromkeys(("varies", "ranks", "falls"), nothing)
    if method.episodic:  # as one episode: states that were trained on are then in its memory
        transitions = replace(transitions, env_index=None, ended=None)
    rows = np.sort(np.concatenate([seen, unseen]))
    both, new = transitions[rows], np.isin(rows, unseen)

    bonus = _trained(method, transitions[seen], both, passes)
    first = _auc(bonus, new)
    then = _auc(_trained(method, transitions[unseen], both, passes), new)
    what = f"unseen transitions have a larger bonus than seen ones in {first:.0%} of all pairs"
    fell = f"this share is {then:.0%} after training on the unseen transitions"
    ranks, falls = Answer(first > 0.5, first, what), Answer(then < first, first - then, fell)
    if abs(first - 0.5) < RANKED - 0.5:
        # A prediction error can be large because prediction is hard, not because a state is new.
        ranks = Answer(None, first, f"{what}: neither is preferred")
        falls = falls._replace(good=None)
    return {"varies": _varies(bonus), "ranks": ranks, "falls": falls}


def _auc(bonus: Array, high: Array) -> float:
    """Share of pairs (high, not high) whose high one has the larger bonus; ties count half."""
    low, above = np.sort(bonus[~high]), bonus[high]
    ranks = np.searchsorted(low, above, "left") + np.searchsorted(low, above, "right")
    return float(ranks.mean() / (2 * len(low)))


def _places(transitions: Transitions) -> tuple[FloatArray, FloatArray]:
    """s and s' as features, [n, features] each, in units of the standard deviation of s."""
    rng = np.random.default_rng(0)
    projection: Array | None = None
    sides = []
    for column in (transitions.obs, transitions.next_obs):
        rows = []
        entries = [entry for _, entry in named_columns(column, "") if is_numeric(entry)]
        for parts in pieces(*entries, device="cpu"):  # not all images as floats at once
            flat = np.concatenate([p.double().numpy().reshape(len(p), -1) for p in parts], axis=1)
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
    """The projection of `obs` on the direction of slowest change; [n, features] to [n].

    In this direction the variance of states is largest relative to that of steps: its two ends are
    visited at different times, and the noise of single observations has little weight.
    """
    centred, step = obs - obs.mean(0), next_obs - obs
    steps = step.T @ step / len(step)
    steps += 1e-6 * max(float(np.trace(steps)), 1.0) * np.eye(len(steps))
    root = np.linalg.inv(np.linalg.cholesky(steps))
    direction = root.T @ np.linalg.eigh(root @ (centred.T @ centred) @ root.T)[1][:, -1]
    # The sign is arbitrary: make the largest entry positive.
    return centred @ (direction * np.sign(direction[np.abs(direction).argmax()]))
