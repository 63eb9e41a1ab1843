"""Collecting a batch in several processes, each of which steps a part of the environments.

With few and fast environments, half of a step is Python, and waking a thread at every step takes as
long as the physics. A worker instead plays its part of the batch alone: it receives the policy's
weights, the noise of the actions and the seed, and returns its steps. The batch is that of
`emi.agent.rollout.collect`, bit for bit.

A worker is a Python interpreter with pipes. It imports neither PyTorch nor the user's main module,
and it ends when its input does: also if this process is killed.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import struct
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import IO, Any, NamedTuple

import numpy as np

from emi.agent.acting import ActingLayer, ActingNetwork, actions_of
from emi.agent.observations import make_keeper
from emi.agent.play import Trace, first_rows, play
from emi.batch import Array, IntArray
from emi.envs import make_vec
from emi.errors import FAILED, NotFiniteError, UserError
from emi.spaces import require_actions

_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from emi.training.workers import work; work(sys.argv[2])"
)
_LENGTH = struct.Struct("<Q")
STOPS = {signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP}
_PIPE_BYTES = 2**20  # a batch of SparseHalfCheetah fits: a worker need not wait for its reader


class Share(NamedTuple):
    """What one worker steps: environments `first` to `last` − 1 of `num_envs`."""

    env: str
    num_envs: int
    first: int
    last: int
    env_args: Mapping[str, Any]


class Played(NamedTuple):
    """A batch, or a worker's part of it."""

    pool: Array  # [rows, *observation], see `Trace`
    steps: Trace


class Workers:
    """`count` processes that share the environments. `start` a batch, then wait for its `result`.

    The environments must be some of our own (`gym:` names may exist in this process only), with
    vectors as observations.
    """

    def __init__(
        self, env: str, num_envs: int, count: int, env_args: Mapping[str, Any] | None = None
    ) -> None:
        bounds = [num_envs * i // count for i in range(count + 1)]
        self._shares = [Share(env, num_envs, *pair, env_args or {}) for pair in pairwise(bounds)]
        self._processes = [_launch(share) for share in self._shares]

    def start(self, network: ActingNetwork, noise: Array, seed: int) -> None:
        """Let the workers play a batch; `noise` is [time, env, A]."""
        for share, process in zip(self._shares, self._processes, strict=True):
            part = noise[:, share.first : share.last]
            assert process.stdin is not None
            try:
                _send(process.stdin, [seed, network.layers], [part, *network.weights])
            except BrokenPipeError:
                raise _ended(process) from None

    def result(self) -> Played:
        """The batch that was started; raises what a worker raised."""
        # All answers are read before one is judged, so that another batch can be started.
        answers = [_answer(process) for process in self._processes]
        for (kind, text), _ in answers:
            if kind == "not finite":
                raise NotFiniteError(text)
            if kind == "error":
                raise RuntimeError(f"a process that steps environments failed:\n{text}")
        return joined([Played(pool, Trace(*steps)) for _, (pool, *steps) in answers])

    def close(self) -> None:
        for process in self._processes:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdout.close()  # a worker that is still playing cannot answer, and ends
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
            process.wait()


def joined(parts: Sequence[Played]) -> Played:
    """The batch of all environments, laid out as if one process had played it."""
    steps = [part.steps for part in parts]
    length = len(steps[0].reward)
    sizes = [s.reward.shape[1] for s in steps]
    rows = first_rows(length, sum(sizes))
    starts = [(length + 1) * size for size in sizes]  # of the last observations in each pool
    grids = [
        part.pool[:start].reshape(length + 1, size, *part.pool.shape[1:])
        for part, start, size in zip(parts, starts, sizes, strict=True)
    ]
    last = np.concatenate([part.pool[start:] for part, start in zip(parts, starts, strict=True)])
    places, order = _in_time(
        [s.next_index >= start for s, start in zip(steps, starts, strict=True)]
    )
    next_index = rows[1:].copy()
    next_index[tuple(places.T)] = rows.size + np.arange(len(places))
    pool = np.concatenate(grids, axis=1).reshape(rows.size, *last.shape[1:])
    _, ends = _in_time([s.terminated | s.truncated for s in steps])
    columns = {
        name: np.concatenate([getattr(s, name) for s in steps], axis=1)
        for name in ("action", "reward", "terminated", "truncated", "clock", "valid")
    }
    returns = np.concatenate([s.episode_returns for s in steps])[ends]
    return Played(
        np.concatenate([pool, last[order]]),
        Trace(next_index=next_index, episode_returns=returns, **columns),
    )


def _in_time(masks: Sequence[Array]) -> tuple[IntArray, IntArray]:
    """The true entries of masks [time, env_k] as places [m, 2] in one grid, sorted by time.

    Also the order that sorts them, if they are listed mask by mask.
    """
    firsts = np.cumsum([0, *(mask.shape[1] for mask in masks)])
    places = np.concatenate([np.argwhere(mask) for mask in masks])
    places[:, 1] += np.repeat(firsts[:-1], [np.count_nonzero(mask) for mask in masks])
    order = np.lexsort((places[:, 1], places[:, 0]))
    return places[order], order


def _launch(share: Share) -> subprocess.Popen[bytes]:
    """Start a worker."""
    # The worker inherits the blocked signals: a Ctrl-C is for this process, which decides when the
    # run ends. One that arrives now is delivered below.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
    try:
        return subprocess.Popen(
            # -P: a json.py in the current directory is not imported.
            [sys.executable, "-P", "-c", _START, json.dumps(sys.path), json.dumps(share)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pipesize=_PIPE_BYTES,
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def work(share: str) -> None:
    """The main function of a worker: answers one request after another until its input ends."""
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a simulator prints is not an answer
    with contextlib.suppress(BrokenPipeError):
        _work(Share(*json.loads(share)), requests, answers)


def _work(share: Share, requests: IO[bytes], answers: IO[bytes]) -> None:
    envs = make_vec(share.env, share.last - share.first, threads=1, env_args=share.env_args)
    space = envs.single_observation_space
    actions = actions_of(require_actions(envs.single_action_space))
    # The network reads as many rows as in one process: how a matrix product is computed, and so its
    # last bits, depend on their number and on the place of a row.
    observed = np.zeros((share.num_envs, *(space.shape or ())), np.float32)

    while (request := _receive(requests)) is not None:
        (seed, layers), (noise, *weights) = request
        of_all = ActingNetwork([ActingLayer(*layer) for layer in layers], weights).function()

        def outputs(obs: Array, of_all: Callable[[Array], Array] = of_all) -> Array:
            observed[share.first : share.last] = obs
            return of_all(observed)[share.first : share.last]

        try:
            keeper = make_keeper(space, (len(noise) + 1) * envs.num_envs)
            obs, _ = envs.reset(seed=seed, options={"first": share.first})
            steps = play(envs, outputs, actions, noise, obs, keeper)
            _send(answers, ["played", ""], [np.asarray(keeper.pool()), *steps])
        except NotFiniteError as error:
            _send(answers, ["not finite", str(error)], [])
        except BrokenPipeError:
            raise
        except Exception:
            _send(answers, ["error", traceback.format_exc()], [])


def _answer(process: subprocess.Popen[bytes]) -> tuple[Any, list[Array]]:
    assert process.stdout is not None
    answer = _receive(process.stdout)
    if answer is None:
        raise _ended(process)
    return answer


def _ended(process: subprocess.Popen[bytes]) -> UserError:
    return UserError(
        f"a process that steps environments ended with {process.wait()}: if the system stopped it "
        "for lack of memory, resume the run with fewer --threads",
        FAILED,
    )


def _send(stream: IO[bytes], head: Any, arrays: Sequence[Array]) -> None:
    """Write a message: the length of its header, the header as JSON, the bytes of the arrays."""
    header = json.dumps([head, [[a.dtype.str, a.shape] for a in arrays]]).encode()
    stream.write(_LENGTH.pack(len(header)))
    stream.write(header)
    for array in arrays:
        stream.write(np.ascontiguousarray(array).data)
    stream.flush()


def _receive(stream: IO[bytes]) -> tuple[Any, list[Array]] | None:
    """Read a message; None if the stream ended."""
    length = stream.read(_LENGTH.size)
    if len(length) < _LENGTH.size:
        return None
    head, kinds = json.loads(stream.read(_LENGTH.unpack(length)[0]))
    arrays = []
    for name, shape in kinds:
        dtype = np.dtype(name)
        data = stream.read(math.prod(shape) * dtype.itemsize)
        if len(data) < math.prod(shape) * dtype.itemsize:
            return None
        arrays.append(np.frombuffer(data, dtype).reshape(shape))
    return head, arrays
