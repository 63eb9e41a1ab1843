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
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
import torch
from torch import Tensor, nn

from emi.batch import Transitions
from emi.errors import UserError
from emi.intrinsic.table import METHODS

Finish = Callable[[], dict[str, float]]


class IntrinsicReward(nn.Module, ABC):
    """An intrinsic reward: a bonus for transitions, and a model that learns from them.

    A method is built as `Method(observation_space, action_space, config=MethodConfig(), seed=0)`,
    where the config is a frozen dataclass. All state is in `state_dict`: parameters, buffers, and
    whatever `get_extra_state` returns. A method with an episodic memory keeps it per
    `batch.env_index` and resets it where `batch.ended`.
    """

    learns_first: bool = False
    """Whether the model is trained on a batch before it scores that batch."""

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

    @property
    def device(self) -> torch.device:
        """The device of the method's tensors."""
        tensors = itertools.chain(self.parameters(), self.buffers())
        return next((tensor.device for tensor in tensors), torch.device("cpu"))


def score_and_learn(method: IntrinsicReward, batch: Transitions) -> tuple[Tensor, dict[str, float]]:
    """Score a batch and train on it; return the bonuses [n] and the scalars to log.

    The order is given by `learns_first`.
    """
    bonus, finish = method.score(batch)
    return bonus, finish()


Factory = Callable[..., IntrinsicReward]
"""A class or a function, called as `factory(observation_space, action_space, config=…, seed=…)`."""


class Method(NamedTuple):
    """The factory of a method together with its settings."""

    factory: Factory | None  # None: no bonus
    config: Any  # a frozen dataclass, or None if the method has no settings

    def build(
        self, observation_space: gymnasium.Space, action_space: gymnasium.Space, seed: int
    ) -> IntrinsicReward | None:
        """Build the method for these spaces; None for plain TRPO.

        UserError if the factory does not return an IntrinsicReward.
        """
        if self.factory is None:
            return None
        # A class without settings need not have a parameter for them.
        settings = {} if self.config is None else {"config": self.config}
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
