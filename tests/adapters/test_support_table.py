"""The table of docs/trainers.md: every ✓ is built and trained, every – is rejected."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete, Text
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from sb3_contrib import QRDQN, TQC, TRPO, CrossQ, MaskablePPO, RecurrentPPO
from skrl.agents.torch import ppo as skrl_ppo
from skrl.envs.wrappers.torch import wrap_env
from skrl.memories.torch import RandomMemory
from skrl.trainers.torch import SequentialTrainer
from skrl.utils.model_instantiators.torch import (
    categorical_model,
    deterministic_model,
    gaussian_model,
    multicategorical_model,
)
from stable_baselines3 import A2C, DDPG, DQN, PPO, SAC, TD3
from stable_baselines3.common.vec_env import DummyVecEnv
from torchrl.envs import GymWrapper, SerialEnv, TransformedEnv

import emi
from emi.adapters import (
    IntrinsicRewardCallback,
    IntrinsicRewardModule,
    IntrinsicRewardTransform,
    IntrinsicRewardVectorWrapper,
    add_intrinsic_reward,
)
from emi.errors import UserError
from emi.intrinsic.contract import find_method
from emi.intrinsic.table import METHODS as TABLE
from emi.intrinsic.table import MethodEntry
from emi.spaces import ActionGroups

PAGE = Path(__file__).parents[2] / "docs" / "trainers.md"
OBSERVATIONS = {
    "vectors": Box(-1, 1, (3,), np.float32),
    "images": Box(0, 255, (1, 36, 36), np.uint8),  # the smallest that SB3's convolutions take
}
ACTIONS = {
    "Box": Box(-1, 1, (2,), np.float32),
    "Discrete": Discrete(3),
    "MultiDiscrete": MultiDiscrete([3, 2]),
    "MultiBinary": MultiBinary(2),
}
CELLS = [(obs, act) for obs in OBSERVATIONS for act in ACTIONS]  # in the order of the columns
STEPS, NUM_ENVS = 16, 2


class Noise(gymnasium.Env):
    """Observations drawn from the space; an episode has five steps."""

    def __init__(self, observations: Box, actions: gymnasium.Space) -> None:
        self.observation_space, self.action_space, self.t = observations, actions, 0

    def _obs(self) -> Any:
        return self.np_random.uniform(
            self.observation_space.low, self.observation_space.high
        ).astype(self.observation_space.dtype)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.t = 0
        return self._obs(), {}

    def action_masks(self) -> np.ndarray:
        return np.ones(ActionGroups.of(self.action_space).size, bool)  # for MaskablePPO

    def step(self, action: Any) -> Any:
        self.t += 1
        return self._obs(), 0.0, self.t == 5, False, {}


COUNTS = emi.PseudoCountsConfig(width=4, minibatch=8, epochs=1)
RND = emi.RNDConfig(features=8, epochs=1)
# By name in the table of methods: sizes that make nets and trainings small. A method without any
# has its defaults, and is tested all the same.
SMALL: dict[str, dict[str, Any]] = {
    "emi": {"minibatch": 8, "epochs": 1},
    "emi-d": {"minibatch": 8, "epochs": 1},
    "ex2": {"updates": 1, "first_updates": 2, "minibatch": 4, "replay_size": 64, "min_replay": 2},
    "icm": {"minibatch": 8, "epochs": 1},
    "rnd": {"features": 8, "epochs": 1},
    "ae-simhash": {"ae_code": 8, "ae_hidden": 8, "ae_filters": 2, "ae_updates": 1},
    "vime": {"updates": 1, "min_replay": 2},
    "e3b": {"width": 4, "minibatch": 8, "epochs": 1},
    "ngu": {"episodic": COUNTS, "lifelong": RND},
    "pseudo-counts": {"width": 4, "minibatch": 8, "epochs": 1},
    "disagreement": {"models": 2, "features": 8, "units": 8, "blocks": 1, "epochs": 1},
    "re3": {"features": 8, "hidden": (8,)},
    "noveld": {"features": 8, "epochs": 1},
    "ride": {"minibatch": 8, "epochs": 1},
}


def built(name: str) -> Callable[..., Any]:
    """A method of the table as a user builds it, but for its sizes."""
    found = find_method(name)
    if name in SMALL:
        found = found._replace(config=dataclasses.replace(found.config, **SMALL[name]))
    return lambda *spaces: found.build(*spaces, seed=0)


def label_of(entry: MethodEntry) -> str:
    """The class, and the title of a variant: `SimHash` (AE-SimHash)."""
    assert entry.home is not None
    return f"`{entry.home.partition(':')[2]}`" + (f" ({entry.title})" if entry.settings else "")


# A new method of the table of methods needs a row.
LABELS = {name: label_of(entry) for name, entry in TABLE.items() if entry.home is not None}
METHODS: dict[str, Callable[..., Any]] = {label: built(name) for name, label in LABELS.items()}
METHODS["`WeightedSum`"] = lambda *spaces: emi.WeightedSum(
    {"emi": (emi.NormalizeReward(METHODS["`EMI`"](*spaces)), 1.0)}
)
METHODS["`NormalizeObservation`"] = lambda *spaces: emi.NormalizeObservation(
    METHODS["`EMI`"](*spaces), spaces[0]
)
# Those that remember the steps of the current episode.
EPISODIC = [name for name in LABELS if getattr(find_method(name).factory, "episodic", False)]


def in_a_loop(method: Any, spaces: tuple[Box, gymnasium.Space]) -> float:
    obs, after = (np.stack([spaces[0].sample() for _ in range(STEPS)]) for _ in range(2))
    action = np.stack([spaces[1].sample() for _ in range(STEPS)])
    for _ in range(2):
        bonus, scalars = emi.score_and_learn(method, emi.Transitions(obs, action, after))
        assert scalars
    assert bonus.shape == (STEPS,)
    return float(bonus.abs().mean())


def in_the_wrapper(method: Any, spaces: tuple[Box, gymnasium.Space]) -> float:
    envs = SyncVectorEnv(
        [lambda: Noise(*spaces)] * NUM_ENVS, autoreset_mode=AutoresetMode.SAME_STEP
    )
    wrapped = IntrinsicRewardVectorWrapper(envs, method, eta=1.0, learn_every=STEPS)
    wrapped.action_space.seed(0)
    wrapped.reset(seed=0)
    for _ in range(STEPS + 1):
        _, reward, _, _, info = wrapped.step(wrapped.action_space.sample())
        np.testing.assert_array_equal(reward, info["bonus"])
    assert wrapped.scalars
    return float(np.abs(info["bonus"]).mean())


def in_torchrl(*, steps: bool) -> Callable[[Any, tuple[Box, gymnasium.Space]], float]:
    def train(method: Any, spaces: tuple[Box, gymnasium.Space]) -> float:
        env = SerialEnv(NUM_ENVS, lambda: GymWrapper(Noise(*spaces)))
        if steps:
            env = TransformedEnv(env, IntrinsicRewardTransform(method, 1.0, learn_every=STEPS))
        data = env.rollout(STEPS + 1, break_when_any_done=False)
        if steps:
            data = data[:, STEPS:]  # after the training
        else:
            module = IntrinsicRewardModule(method, 1.0, action_spec=env.action_spec)
            module(data)
            assert len(module.scalars) > 4
        assert torch.equal(data["next", "reward"], data["next", "intrinsic_reward"])
        return float(data["next", "intrinsic_reward"].abs().mean())

    return train


def in_skrl(method: Any, spaces: tuple[Box, gymnasium.Space]) -> float:
    envs = SyncVectorEnv(
        [lambda: Noise(*spaces)] * NUM_ENVS, autoreset_mode=AutoresetMode.SAME_STEP
    )
    env = wrap_env(envs, wrapper="gymnasium", verbose=False)
    both = {"observation_space": spaces[0], "action_space": spaces[1], "device": "cpu"}
    kinds = {
        Discrete: categorical_model,
        MultiDiscrete: multicategorical_model,
        Box: gaussian_model,
    }
    if type(spaces[1]) not in kinds:
        raise ValueError(f"skrl has no policy for {spaces[1]}: not supported")
    policy = kinds[type(spaces[1])]
    net = [
        {"name": "net", "input": "OBSERVATIONS", "layers": ["flatten", 8], "activations": "tanh"}
    ]
    models = {
        "policy": policy(**both, network=net, output="ACTIONS"),
        "value": deterministic_model(**both, network=net, output="ONE"),
    }
    off = {"write_interval": 0, "checkpoint_interval": 0}
    agent = skrl_ppo.PPO(
        models=models,
        memory=RandomMemory(memory_size=STEPS, num_envs=NUM_ENVS, device="cpu"),
        cfg={"rollouts": STEPS, "learning_epochs": 1, "experiment": off},
        **both,
    )
    intrinsic = add_intrinsic_reward(agent, env, method, 1.0)
    cfg = {"timesteps": STEPS, "headless": True, "disable_progressbar": True}
    cfg |= {"close_environment_at_exit": False}
    SequentialTrainer(cfg=cfg, env=env, agents=agent).train()
    assert len(intrinsic.scalars) > 4
    return intrinsic.scalars["intrinsic/bonus_mean"]


ON_POLICY = (PPO, A2C, TRPO, RecurrentPPO, MaskablePPO)
OFF_POLICY = (SAC, TD3, DDPG, TQC, CrossQ, DQN, QRDQN)


def in_sb3(kind: type[Any]) -> Callable[[Any, tuple[Box, gymnasium.Space]], float]:
    def train(method: Any, spaces: tuple[Box, gymnasium.Space]) -> float:
        recurrent, on_policy = kind is RecurrentPPO, kind in ON_POLICY
        images = spaces[0].dtype == np.uint8
        nets: dict[str, Any] = {"net_arch": [8]}
        if recurrent:
            nets["lstm_hidden_size"] = 8
        if images:
            nets["features_extractor_kwargs"] = {"features_dim": 8}
        replay = {"buffer_size": 40, "learning_starts": 4, "train_freq": 1, "batch_size": 8}
        settings: dict[str, Any] = {"n_steps": STEPS} if on_policy else replay
        if on_policy and kind is not A2C:
            settings["batch_size"] = STEPS
        if kind in (PPO, RecurrentPPO, MaskablePPO):
            settings["n_epochs"] = 1
        policy = ("Cnn" if images else "Mlp") + ("LstmPolicy" if recurrent else "Policy")
        envs = DummyVecEnv([lambda: Noise(*spaces)] * NUM_ENVS)
        try:
            model = kind(policy, envs, policy_kwargs=nets, seed=0, device="cpu", **settings)
        except AssertionError as error:  # SB3's own error about action spaces
            raise ValueError(str(error)) from None
        learn_every = None if on_policy else 8
        callback = None
        if method is not None:
            callback = IntrinsicRewardCallback(method, 1.0, learn_every=learn_every)
        model.learn(STEPS * NUM_ENVS, callback=callback, log_interval=10**6)
        if callback is None:
            return 0.0
        logged = model.logger.name_to_value
        assert {"intrinsic/bonus_mean", "intrinsic/share"} < set(logged)  # and what was learnt
        return float(logged["intrinsic/bonus_mean"])

    return train


TRAINERS: dict[str, Callable[[Any, tuple[Box, gymnasium.Space]], float]] = {
    "`score_and_learn`, your loop": in_a_loop,
    "`IntrinsicRewardVectorWrapper`": in_the_wrapper,
    "`IntrinsicRewardModule`, TorchRL": in_torchrl(steps=False),
    "`IntrinsicRewardTransform`, TorchRL": in_torchrl(steps=True),
    "`add_intrinsic_reward`, skrl's PPO": in_skrl,
    **{
        f"`IntrinsicRewardCallback`, {kind.__name__}": in_sb3(kind)
        for kind in ON_POLICY + OFF_POLICY
    },
}


def marks() -> dict[str, list[bool]]:
    """By the name of its row, whether each of CELLS has a mark."""
    text = PAGE.read_text(encoding="utf-8")
    table = text.split("<!-- support:begin -->")[1].split("<!-- support:end -->")[0]
    rows = {}
    for line in table.strip().splitlines()[2:]:
        name, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        if not name.startswith("**"):
            assert set(cells) <= {"✓", "–"}, line
            rows[name] = [cell == "✓" for cell in cells]
    return rows


MARKS = marks()


def spaces_of(cell: tuple[str, str]) -> tuple[Box, gymnasium.Space]:
    observations, actions = OBSERVATIONS[cell[0]], ACTIONS[cell[1]]
    observations.seed(0)
    actions.seed(0)
    return observations, actions


def test_the_table_has_every_method_and_every_trainer() -> None:
    assert list(MARKS) == [*METHODS, *TRAINERS]
    (header,) = re.findall(r"^\| \| (vectors.*) \|$", PAGE.read_text(encoding="utf-8"), re.M)
    found = [re.findall(r"vectors|images|\w+(?=`)", column) for column in header.split("|")]
    assert found == [list(cell) for cell in CELLS]


@pytest.mark.parametrize("name", METHODS)
def test_a_method(name: str) -> None:
    """In every trainer of the first kinds, on every kind of spaces."""
    trainers = ("`score_and_learn`, your loop", "`IntrinsicRewardVectorWrapper`")
    for cell, mark in zip(CELLS, MARKS[name], strict=True):
        if not mark:
            with pytest.raises(ValueError, match="needs vectors"):
                METHODS[name](*spaces_of(cell))
            continue
        for trainer in (*trainers, "`IntrinsicRewardCallback`, PPO"):
            bonus = TRAINERS[trainer](METHODS[name](*spaces_of(cell)), spaces_of(cell))
            assert np.isfinite(bonus), (trainer, cell)


@pytest.mark.parametrize("kind", OFF_POLICY, ids=lambda kind: kind.__name__)
def test_a_replay_buffer_has_no_episodes_to_remember(kind: type[Any]) -> None:
    spaces = spaces_of(("vectors", "Discrete" if kind in (DQN, QRDQN) else "Box"))
    for name in EPISODIC:
        label = LABELS[name]
        said = f"{label.strip('`')} remembers .* {kind.__name__} draws"
        with pytest.raises(UserError, match=said):
            in_sb3(kind)(METHODS[label](*spaces), spaces)


def enumerated(names: list[str]) -> str:
    """The titles of methods as text: "A, B and C"."""
    *titles, last = (TABLE[name].title for name in names)
    return f"{', '.join(titles)} and {last}"


def reads_no_actions(label: str) -> bool:
    try:
        METHODS[label](OBSERVATIONS["vectors"], Text(3))
    except UserError:
        return False
    return True


def test_the_page_names_every_method_that_reads_no_actions() -> None:
    named = enumerated([name for name, label in LABELS.items() if reads_no_actions(label)])
    named = named.replace("EX2,", "EX2 without `use_actions`,")
    assert f"- {named} do not read actions." in " ".join(PAGE.read_text("utf-8").split())


def test_the_pages_name_every_method_with_an_episodic_memory() -> None:
    named = enumerated(EPISODIC)
    for page in (PAGE, *(PAGE.parent / "adapters").glob("*.md")):
        text = " ".join(page.read_text(encoding="utf-8").split()).replace("**", "")
        assert f"{named} remember the " in text, page.name


# Its loss does not accept bits as int8, which SB3 stores since a version that we allow.
FAILS_ALONE = ("`IntrinsicRewardCallback`, RecurrentPPO", "MultiBinary")


def works(trainer: Callable[..., float], spaces: tuple[Box, gymnasium.Space]) -> bool:
    """Whether an algorithm of SB3 trains without the callback."""
    try:
        trainer(None, spaces)
    except RuntimeError:
        return False
    return True


@pytest.mark.parametrize("name", TRAINERS)
def test_a_trainer(name: str) -> None:
    """With EMI, on every kind of spaces."""
    for cell, mark in zip(CELLS, MARKS[name], strict=True):
        spaces = spaces_of(cell)
        method: emi.IntrinsicReward = METHODS["`EMI`"](*spaces)
        if mark or ((name, cell[1]) == FAILS_ALONE and works(TRAINERS[name], spaces)):
            assert TRAINERS[name](method, spaces) > 0
        elif (name, cell[1]) == FAILS_ALONE:
            with pytest.raises(RuntimeError, match="result type Float"):
                TRAINERS[name](method, spaces)
        else:
            with pytest.raises(ValueError, match=r"not supported|only supports|CnnPolicy unknown"):
                TRAINERS[name](method, spaces)
