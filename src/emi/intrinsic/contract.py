"""The contract of intrinsic rewards: what a method must define to work everywhere in emi.

class MyMethod(IntrinsicReward):
    def __init__(self, observation_space, action_space, config=MyConfig(), seed=0): ...
    def reward(self, batch): ...   # returns bonuses [n], changes nothing
    def learn(self, batch): ...    # trains on the batch, returns scalars to log
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import torch
from gymnasium.spaces import Box, Dict, Tuple
from gymnasium.vector.utils import create_empty_array
from torch import Tensor, nn

from emi.batch import Transitions, check_batch
from emi.errors import NotFiniteError, UserError
from emi.intrinsic.table import METHODS
from emi.nets import reads_as_vectors
from emi.spaces import ActionGroups, DiscreteSpace

Finish = Callable[[], dict[str, float]]
Scorer = Callable[[Transitions], Tensor]


class IntrinsicReward(nn.Module, ABC):
    """An intrinsic reward: a bonus for transitions, and a model that learns from them.

    A method is built as `Method(observation_space, action_space, config=MethodConfig(), seed=0)`,
    where the config is a frozen dataclass. A method that can normalise vectors has one more
    parameter, `normalize=True`. All state is in `state_dict`: parameters, buffers, and
    whatever `get_extra_state` returns. A method with an episodic memory keeps it per
    `batch.env_index` and resets it where `batch.ended`: see `emi.intrinsic.episodes`.
    """

    learns_first: bool = False
    """Whether the model is trained on a batch before it scores that batch."""

    episodic: bool = False
    """Whether the bonus of a row depends on earlier rows of its episode. Trainers must then give
    the rows of each environment in time order, which rows of a replay buffer are not."""

    wants_sampled_actions: bool = False
    """Whether continuous actions are given as the policy drew them, in the units of the space but
    not clipped to its bounds. Only emi's own trainer can do that."""

    @abstractmethod
    def reward(self, batch: Transitions) -> Tensor:
        """Return finite bonuses [n]; store nothing and draw no random numbers."""

    @abstractmethod
    def learn(self, batch: Transitions) -> dict[str, float]:
        """Train on the batch; return the scalars that the class documents."""

    def score(self, batch: Transitions) -> tuple[Tensor, Finish]:
        """Score a batch, training on it first if `learns_first`; return bonuses [n] and `finish`.

        `finish` trains on the batch, unless that was done already, and returns the scalars. It must
        be called once, before the next batch, and may run in another thread. Override this method
        to share computation between scoring and learning.
        """
        if self.learns_first:
            scalars = self.learn(batch)
            return self.reward(batch), lambda: scalars
        return self.reward(batch), lambda: self.learn(batch)

    def scorer(self) -> Scorer:
        """A function that scores one part after the other of the batch that is learned next.

        Adapters that score every step as it is taken, and learn later, use it: an episodic memory
        must see the steps since the last training. The function keeps them; the method does not
        change. Valid until the next call of `learn` or `score`.
        """
        return self.reward

    def forget(self, envs: Sequence[int]) -> None:
        """Begin a new episode in these environments, which were reset in the middle of one.

        All their rows so far were learned, and the last one was not `ended`. Adapters call this;
        `scorer` must be called again after it.
        """

    @property
    def device(self) -> torch.device:
        """The device of the method's tensors."""
        tensors = itertools.chain(self.parameters(), self.buffers())
        return next((tensor.device for tensor in tensors), torch.device("cpu"))


def score_and_learn(method: IntrinsicReward, batch: Transitions) -> tuple[Tensor, dict[str, float]]:
    """Score a batch and train on it; return the bonuses [n] and the scalars to log.

    The order is given by `learns_first`.
    """
    bonus, finish = checked_score(method, batch)
    return bonus, finish()


def checked_score(method: IntrinsicReward, batch: Transitions) -> tuple[Tensor, Finish]:
    """`method.score`; UserError if the batch, the bonus or the scalars are not what they must be.

    Trainers call methods through this function and the two below, so that a mistake in a user's
    method is found where it is made. `finish` can be called inside `torch.no_grad()`.
    """
    check_batch(batch)
    wanted = torch.is_grad_enabled()
    with torch.enable_grad():  # a method with `learns_first` is trained here
        bonus, finish = method.score(batch)
    if not wanted and isinstance(bonus, Tensor):
        bonus = bonus.detach()

    def finish_and_check() -> dict[str, float]:
        with torch.enable_grad():
            return _checked_scalars(method, finish())

    return _checked_bonus(method, bonus, len(batch)), finish_and_check


def checked_reward(
    method: IntrinsicReward, batch: Transitions, score: Scorer | None = None
) -> Tensor:
    """`method.reward`, or `score` of its `scorer`, checked as by `checked_score`."""
    check_batch(batch)
    bonus = method.reward(batch) if score is None else score(batch)
    return _checked_bonus(method, bonus, len(batch))


def checked_learn(method: IntrinsicReward, batch: Transitions) -> dict[str, float]:
    """`method.learn`, checked as by `checked_score`."""
    check_batch(batch)
    with torch.enable_grad():
        return _checked_scalars(method, method.learn(batch))


def _checked_bonus(method: IntrinsicReward, bonus: Any, n: int) -> Tensor:
    name = type(method).__name__
    if not isinstance(bonus, Tensor):
        raise UserError(
            f"{name}.reward must return a tensor, got {type(bonus).__name__}: use torch.as_tensor"
        )
    if bonus.shape != (n,):
        raise UserError(
            f"{name}.reward must return one bonus per transition, [{n}], got {list(bonus.shape)}"
        )
    if bonus.requires_grad:
        raise UserError(
            f"{name}.reward must return a tensor without gradients: decorate it with "
            "@torch.no_grad()"
        )
    if not bool(torch.isfinite(bonus).all()):
        row = int((~torch.isfinite(bonus)).nonzero()[0])
        raise NotFiniteError(f"the bonus of {name} is NaN or infinite in row {row}")
    return bonus


def _checked_scalars(method: IntrinsicReward, scalars: Any) -> dict[str, float]:
    if not isinstance(scalars, dict):
        raise UserError(
            f"{type(method).__name__}.learn must return a dict of numbers to log, "
            f"got {type(scalars).__name__}: return {{}} if there is nothing to log"
        )
    return scalars


def require_fit(
    method: IntrinsicReward,
    observation_space: gymnasium.Space,
    action_space: gymnasium.Space,
    advice: str,
) -> None:
    """Raise UserError with `advice` unless the method can score rows of these spaces."""
    obs: Any = create_empty_array(observation_space, n=2, fn=np.zeros)
    if isinstance(action_space, DiscreteSpace):
        groups = ActionGroups.of(action_space)
        last = np.add(groups.starts, groups.sizes) - 1
        action: Any = np.stack([groups.starts, last]).reshape(2, *groups.shape)
    elif isinstance(action_space, Box | Dict | Tuple):
        action = create_empty_array(action_space, n=2, fn=np.zeros)
    else:
        action = np.zeros(2, object)  # of a method that does not read actions
    batch = Transitions(obs, action, obs, np.zeros(2, np.int64), np.zeros(2, bool))
    misfit = UserError(
        f"{type(method).__name__} was not built for observations in {observation_space} and "
        f"actions in {action_space}: {advice}"
    )
    # A method that was built for a space of floats would read images as vectors, without an error.
    if reads_as_vectors(method, observation_space):
        raise misfit
    try:
        method.reward(batch)
    except Exception as error:
        raise misfit from error


def require_no_memory(method: IntrinsicReward, trainer: str) -> None:
    """Raise UserError for a method with an episodic memory: `trainer` draws rows from a replay."""
    if method.episodic:
        raise UserError(
            f"{type(method).__name__} remembers the steps of an episode in their order, and "
            f"{trainer} draws steps in no order: use an on-policy algorithm or another method"
        )


Factory = Callable[..., IntrinsicReward]
"""A class or a function, called as `factory(observation_space, action_space, config=…, seed=…)`."""


class Method(NamedTuple):
    """The factory of a method together with its settings."""

    factory: Factory | None  # None: no bonus
    config: Any  # a frozen dataclass, or None if the method has no settings

    def build(
        self,
        observation_space: gymnasium.Space,
        action_space: gymnasium.Space,
        seed: int,
        *,
        normalize: bool = True,
    ) -> IntrinsicReward | None:
        """Build the method for these spaces; None for plain TRPO.

        `normalize` is passed to methods that have such a parameter. UserError if the factory does
        not return an IntrinsicReward.
        """
        if self.factory is None:
            return None
        # A class without settings need not have a parameter for them.
        settings: dict[str, Any] = {} if self.config is None else {"config": self.config}
        if "normalize" in inspect.signature(self.factory).parameters:
            settings["normalize"] = normalize
        method = self.factory(observation_space, action_space, **settings, seed=seed)
        if not isinstance(method, IntrinsicReward):
            raise UserError(f"a method must be an emi.IntrinsicReward, got {type(method).__name__}")
        return method


def find_method(name: str) -> Method:
    """Look up a method by its name in the table, or import a user's `package.module:Class`."""
    entry = METHODS.get(name)
    if entry is not None and entry.home is None:
        return Method(None, None)
    home = name if entry is None or entry.home is None else entry.home
    module, _, attribute = home.partition(":")
    try:
        factory = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # whatever a user's module raises
        raise UserError(f"cannot import {name}: {type(error).__name__}: {error}") from error
    method = method_of(factory)
    if entry is None or not entry.settings:
        return method
    return method._replace(config=dataclasses.replace(method.config, **entry.settings))


def method_of(factory: Factory) -> Method:
    """Wrap a class or function as a `Method`; its settings are the default of `config`."""
    if not callable(factory):
        raise UserError(f"a method must be a class or a function, got {factory!r}")
    name = getattr(factory, "__name__", str(factory))
    if inspect.isclass(factory):
        if not issubclass(factory, IntrinsicReward):
            raise UserError(f"{name} must be a subclass of emi.IntrinsicReward")
        if missing := sorted(factory.__abstractmethods__):
            raise UserError(f"{name} must define {' and '.join(missing)}")
    signature = inspect.signature(factory)
    parameter = signature.parameters.get("config")
    config = None if parameter is None else parameter.default
    frozen = getattr(config, "__dataclass_params__", None)
    if config is not None and (isinstance(config, type) or frozen is None or not frozen.frozen):
        raise UserError(
            f"the config of {name} must default to a frozen dataclass, as in config=MyConfig(), "
            "or to None"
        )
    try:
        signature.bind(None, None, seed=0)
    except TypeError as error:
        raise UserError(
            f"{name} must accept (observation_space, action_space, config=…, seed=…): {error}"
        ) from None
    return Method(factory, config)
