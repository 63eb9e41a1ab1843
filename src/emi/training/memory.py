"""The memory that a run needs, estimated from its config and spaces before it is allocated.

The estimate counts what grows with a setting: simulators, the batch, networks and memories. It is
for settings that cannot work, such as a hundred million environments; the true use differs by the
interpreter, the libraries and the temporary memory of single operations.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import gymnasium

from emi.batch import PIECE_ENTRIES
from emi.envs.table import is_atari
from emi.errors import UserError
from emi.images import is_image
from emi.intrinsic.disagreement import DisagreementConfig
from emi.intrinsic.e3b import E3BConfig
from emi.intrinsic.emi import EMIConfig
from emi.intrinsic.ex2 import CONVOLUTIONS as EX2_CONVOLUTIONS
from emi.intrinsic.ex2 import STEPS, EX2Config
from emi.intrinsic.gradients.ex2 import layer_shapes
from emi.intrinsic.icm import CONVOLUTIONS as ICM_CONVOLUTIONS
from emi.intrinsic.icm import UNITS, ICMConfig
from emi.intrinsic.ngu import NGUConfig
from emi.intrinsic.noveld import NovelDConfig
from emi.intrinsic.pseudo_counts import PseudoCountsConfig
from emi.intrinsic.re3 import CHUNK, RE3Config
from emi.intrinsic.ride import RIDEConfig
from emi.intrinsic.rnd import CONVOLUTIONS as RND_CONVOLUTIONS
from emi.intrinsic.rnd import RNDConfig
from emi.intrinsic.simhash import BLOCK, PRIMES, SimHashConfig
from emi.intrinsic.vime import VIMEConfig
from emi.nets import Conv, Pixels
from emi.spaces import ActionGroups, DiscreteSpace, require_box
from emi.training.config import TrainConfig, flatten

FLOAT = 4  # bytes
# Bytes of a weight with its gradient and both moments of Adam; with the vectors of TRPO.
TRAINED, TRUST_REGION = 4 * FLOAT, 10 * FLOAT
STEP = 150  # bytes of a step besides observation and action: rewards, ends, indices, advantages
ATARI, OTHER_SIMULATOR = 1_500_000, 20_000  # bytes of one environment, measured
LAYER = 10_000  # bytes of the objects that a layer consists of

_LIMITS = ("memory.max", "memory/memory.limit_in_bytes")  # of a container: cgroup v2, v1


def require_memory(
    config: TrainConfig,
    observation_space: gymnasium.Space,
    action_space: gymnasium.Space,
    available: int | None = None,
) -> None:
    """Raise UserError if the run needs more memory than `available`, by default the machine's."""
    parts = memory_of(config, observation_space, action_space)
    need, have = sum(parts.values()), available or machine_memory()
    if need <= have:
        return
    key = max(parts, key=lambda key: parts[key])
    value = str(flatten(config)[key])
    shown = value if len(value) <= 60 else f"{value[:60]}…"
    lower = f"{key} or steps_per_iteration" if key == "num_envs" else key
    raise UserError(
        f"{key}={shown} needs about {as_text(need)}, this machine has {as_text(have)}: "
        f"lower {lower}"
    )


def machine_memory() -> int:
    """Bytes of main memory, or fewer if this process is in a container with a limit.

    All memory, not what is free now: the same command must not fail because of other programs.
    """
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for name in _LIMITS:
        try:
            memory = min(memory, int((Path("/sys/fs/cgroup") / name).read_text()))
        except (OSError, ValueError):  # no such limit, or the word `max`
            continue
    return memory


def as_text(size: int) -> str:
    """`48 GB`, `270 MB`."""
    for unit, name in ((10**9, "GB"), (10**6, "MB")):
        if size >= unit:
            return f"{size / unit:,.0f} {name}"
    return f"{size:,} bytes"


def memory_of(
    config: TrainConfig, observation_space: gymnasium.Space, action_space: gymnasium.Space
) -> dict[str, int]:
    """Bytes by the setting that decides them; a user's own method is not counted."""
    shape = observation_space.shape or ()
    entries, actions = math.prod(shape), action_size(action_space)
    per_env = math.ceil(config.steps_per_iteration / config.num_envs)
    rows = (per_env + 1) * config.num_envs
    # With a second thread, the next batch is collected while the last one is still in use.
    batches = 2 if config.threads > 1 and not is_image(observation_space) else 1
    simulator = ATARI if is_atari(config.env) else OTHER_SIMULATOR
    parts = {
        "num_envs": config.num_envs * (simulator + FLOAT * entries),
        "steps_per_iteration": batches
        * rows
        * (STEP + stored_observation(observation_space) + 2 * FLOAT * actions),
    }
    # Hidden layers are computed for a piece of the batch at a time.
    piece = min(rows, max(1, PIECE_ENTRIES // max(1, entries)))
    policy, value = config.policy.hidden, config.value.hidden
    parts["policy.hidden"] = (
        TRUST_REGION * trunk_weights(observation_space, [*policy, 2 * actions])
        + piece * FLOAT * 3 * sum(policy)
        + LAYER * len(policy)
    )
    if config.value.kind == "network":
        parts["value.hidden"] = (
            TRAINED * trunk_weights(observation_space, [*value, 1])
            + piece * FLOAT * sum(value)
            + LAYER * len(value)
        )
        if config.streams.separate:  # another one, for the bonus
            parts["value.hidden"] *= 2
    else:
        features = 2 * entries + 4
        parts["steps_per_iteration"] += 2 * rows * 8 * features + 3 * 8 * features**2
        if config.value.memory > 0:
            parts["value.memory"] = 8 * features**2
    steps, envs = config.steps + rows, config.num_envs
    own = method_memory(config.intrinsic, observation_space, actions, rows, steps, envs)
    return parts | {f"intrinsic.{key}": size for key, size in own.items()}


def action_size(space: gymnasium.Space) -> int:
    """Entries of an action as a vector; one for each choice of discrete actions."""
    if isinstance(space, DiscreteSpace):
        return ActionGroups.of(space).size
    return math.prod(space.shape or ())


def stored_observation(space: gymnasium.Space) -> int:
    """Bytes of one observation in a batch: a vector of floats, or an image.

    Of a stack of frames only the newest is stored, and the places of all.
    """
    shape = space.shape or ()
    if not is_image(space):
        return FLOAT * math.prod(shape)
    if len(shape) == 3 and 1 < shape[0] <= shape[2]:
        return math.prod(shape[1:]) + 8 * shape[0]
    return math.prod(shape)


def dense_weights(sizes: Sequence[int]) -> int:
    """Weights and biases of fully connected layers."""
    return sum((inputs + 1) * outputs for inputs, outputs in pairwise(sizes))


def convolution_weights(pixels: Pixels, layers: Sequence[Conv]) -> tuple[int, int]:
    """Weights of convolutions, and the number of their outputs."""
    height, width, channels, weights = pixels.height, pixels.width, pixels.channels, 0
    for layer in layers:
        weights += (channels * layer.kernel**2 + 1) * layer.filters
        height, width, channels = layer.output(height), layer.output(width), layer.filters
    return weights, height * width * channels


def trunk_weights(
    space: gymnasium.Space, sizes: Sequence[int], layers: Sequence[Conv] | None = None
) -> int:
    """Weights of a network on observations: hidden layers for vectors, convolutions for images.

    `sizes` are those of the layers after the observation, with the output. On images, only the
    output counts, which comes after 256 units.
    """
    if not is_image(space):
        return dense_weights([math.prod(space.shape or ()), *sizes])
    pixels = Pixels(require_box(space), newest_frame=layers is not None)
    weights, width = convolution_weights(pixels, layers or (Conv(16, 8, 4), Conv(32, 4, 2)))
    return weights + dense_weights([width, 256, sizes[-1]])


def method_memory(
    config: Any, space: gymnasium.Space, actions: int, rows: int, steps: int, envs: int
) -> dict[str, int]:
    """Bytes of a method of ours by its setting, for batches of `rows` in a run of `steps`."""
    entries = math.prod(space.shape or ())
    frame = 0
    if is_image(space):
        frame = math.prod(Pixels(require_box(space), newest_frame=True).shape)
    piece = min(rows, max(1, PIECE_ENTRIES // max(1, entries))) * FLOAT
    match config:
        case EMIConfig():
            d, hidden = config.embedding_dim, [*config.state_hidden]
            width = 256 if frame else [entries, *hidden][-1]
            statistics = [3 * d, *config.information_hidden, 1]
            joint = [width + actions, config.error_hidden, d]
            return {
                "state_hidden": TRAINED * 2 * trunk_weights(space, [*hidden, d])
                + piece * 4 * sum(hidden)
                + 2 * LAYER * len(hidden),
                "action_hidden": TRAINED * dense_weights([actions, config.action_hidden, d])
                + piece * config.action_hidden,
                "error_hidden": TRAINED * dense_weights(joint) + piece * config.error_hidden,
                "information_hidden": TRAINED * 2 * dense_weights(statistics)
                + piece * sum(config.information_hidden)
                + 2 * LAYER * len(config.information_hidden),
                "embedding_dim": rows * FLOAT * 5 * d,
                "error_action_layer": TRAINED
                * (dense_weights([actions, actions]) if config.error_action_layer else 0),
            }
        case RNDConfig() | NovelDConfig():
            k, hidden = config.features, [*config.hidden]
            top = dense_weights([256 if frame else [entries, *hidden][-1], k, k, k])
            both = 2 * trunk_weights(space, [*hidden, k], RND_CONVOLUTIONS)
            return _visited(config, envs) | {
                "hidden": TRAINED * both + piece * 2 * sum(hidden) + 2 * LAYER * len(hidden),
                "features": TRAINED * top + rows * FLOAT * k + piece * 4 * k,
            }
        case DisagreementConfig():
            d, units, hidden = config.features, config.units, [*config.hidden]
            inner = dense_weights([d + actions, *[units + actions] * 2 * config.blocks, units, d])
            minibatch = math.ceil(rows / config.minibatches)
            return {
                "hidden": FLOAT * trunk_weights(space, [*hidden, d], RND_CONVOLUTIONS)
                + piece * sum(hidden)
                + LAYER * len(hidden),
                "features": rows * FLOAT * 2 * d,
                "units": TRAINED * config.models * inner
                + FLOAT * config.models * minibatch * 4 * units * (1 + config.blocks),
            }
        case RE3Config():
            k, hidden = config.features, [*config.hidden]
            kept = min(config.pool_size, steps)
            return {
                "hidden": FLOAT * trunk_weights(space, [*hidden, k], RND_CONVOLUTIONS)
                + piece * sum(hidden)
                + LAYER * len(hidden),
                "features": (rows + kept) * FLOAT * 3 * k,
                "pool_size": FLOAT * (2 * kept * (k if frame else entries) + CHUNK),
            }
        case ICMConfig() | RIDEConfig():
            hidden = [*config.hidden]
            width = 256 if frame else [entries, *hidden][-1]
            models = dense_weights([2 * width, UNITS, actions])
            models += dense_weights([width + actions, UNITS, width])
            phi = trunk_weights(space, hidden or [entries], ICM_CONVOLUTIONS)
            layers = piece * 3 * sum(hidden) + LAYER * len(hidden)
            return _visited(config, envs) | {"hidden": TRAINED * (phi + models) + layers}
        case EX2Config():
            h, f = config.hidden, config.features
            inputs = entries + actions * config.use_actions
            first = [inputs, h, h]
            if frame:
                pixels = Pixels(require_box(space), newest_frame=True)
                first = [convolution_weights(pixels, EX2_CONVOLUTIONS)[1]]
            weights = sum(k * (i + 1) * o for k, i, o in layer_shapes(first, h, f))
            row = frame or FLOAT * inputs
            return {
                "hidden": TRAINED * weights + piece * 8 * h,
                "features": piece * 8 * f,
                "minibatch": STEPS * config.minibatch * (5 * row + 4 * FLOAT * f),
                "replay_size": 2 * min(config.replay_size, steps) * row,
            }
        case SimHashConfig():
            if not config.autoencoder:
                width = frame or entries
                return {"key_bits": 8 * config.key_bits * (width + len(PRIMES)) + _tables()}
            if frame:
                code, side = config.ae_code, config.ae_filters * frame // 64
                net = 2 * dense_weights([side, config.ae_hidden, code]) + 64 * frame
            else:
                code = config.ae_vector_code
                net = 2 * dense_weights([entries, *config.ae_vector_hidden, code])
            row = frame or FLOAT * entries
            block = BLOCK * config.ae_minibatch
            return {
                "key_bits": 8 * config.key_bits * (code + len(PRIMES)) + _tables(),
                "ae_hidden" if frame else "ae_vector_hidden": TRAINED * net
                + LAYER * len(config.ae_vector_hidden),
                "ae_minibatch": block * (row + FLOAT * code)
                + config.ae_minibatch * FLOAT * 64 * frame,
                "ae_pool": 2 * min(config.ae_pool, steps) * row,
            }
        case VIMEConfig():
            sizes = [entries + actions, *config.hidden, entries]
            units, row = sum(sizes[1:]), FLOAT * (2 * entries + actions)
            return {
                "hidden": 2 * TRAINED * dense_weights(sizes)
                + piece * 6 * sum(config.hidden)
                + LAYER * len(config.hidden),
                "minibatch": 2 * config.updates * config.minibatch * row,
                "samples": config.updates * config.samples * units * FLOAT,
                "replay_size": 2 * min(config.replay_size, steps) * row,
            }
        case E3BConfig() | PseudoCountsConfig():
            d, hidden = config.width, [*config.hidden]
            phi = trunk_weights(space, [*hidden, d], ICM_CONVOLUTIONS)
            width = TRAINED * dense_weights([2 * d, UNITS, actions]) + rows * FLOAT * 4 * d
            if isinstance(config, E3BConfig):
                width += 3 * 8 * envs * d**2  # C⁻¹, a copy to score with, and an update of it
            layers = piece * 3 * sum(hidden) + LAYER * len(hidden)
            return {"hidden": TRAINED * phi + layers, "width": width}
        case NGUConfig():
            known = space, actions, rows, steps, envs
            parts = {"episodic": config.episodic, "lifelong": config.lifelong}
            return {
                f"{name}.{key}": size
                for name, part in parts.items()
                for key, size in method_memory(part, *known).items()
            }
        case _:
            return {}


def _visited(config: Any, envs: int) -> dict[str, int]:
    """Bytes of the visits that a method remembers, if it counts them, and of a copy to score."""
    if not isinstance(config, NovelDConfig | RIDEConfig):
        return {}
    return {"steps": 2 * 8 * envs * config.steps}


def _tables() -> int:
    """Bytes of SimHash's tables of counts."""
    return 4 * len(PRIMES) * max(PRIMES)
