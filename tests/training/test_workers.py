"""Batches played by several processes equal those of one, and the processes end with this one."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode
from oracle import OracleVectorEnv

from emi.agent.acting import ActingLayer, ActingNetwork
from emi.agent.numpy_policy import network_of
from emi.agent.play import Trace
from emi.agent.policy import AnyPolicy, PolicyConfig, make_policy
from emi.agent.rollout import Rollout, collect, draw_noise, rollout_of
from emi.envs import make_vec
from emi.errors import NotFiniteError, UserError
from emi.runs.stop_signals import SIGNALS
from emi.training import workers as module
from emi.training.workers import Played, Share, Workers, joined


def policy_of(envs: Any) -> AnyPolicy:
    return make_policy(
        envs.single_observation_space,
        envs.single_action_space,
        PolicyConfig(),
        torch.Generator().manual_seed(0),
    )


@contextlib.contextmanager
def working(env: str, num_envs: int, count: int) -> Iterator[Workers]:
    workers = Workers(env, num_envs, count)
    try:
        yield workers
    finally:
        workers.close()


def play(workers: Workers, policy: AnyPolicy, num_envs: int, steps: int, seed: int) -> Rollout:
    noise = draw_noise(policy, steps, num_envs, np.random.default_rng(seed))
    workers.start(network_of(policy.trunk, policy.head), noise, seed)
    return rollout_of(*workers.result())


def assert_equal(a: Rollout, b: Rollout) -> None:
    for name in (entry.name for entry in dataclasses.fields(Rollout)):
        left, right = (np.asarray(getattr(rollout, name)) for rollout in (a, b))
        assert left.dtype == right.dtype, name
        np.testing.assert_array_equal(left, right, err_msg=name)


# Parts of unequal size. The 600 steps of each cheetah contain the end of an episode.
@pytest.mark.parametrize(
    ("env", "steps"), [("SparseHalfCheetah", 4_200), ("SwimmerGather", 210), ("NoisyTV", 2_100)]
)
def test_processes_give_the_bits_of_one(env: str, steps: int) -> None:
    envs = make_vec(env, 7, threads=1)
    policy = policy_of(envs)
    with working(env, 7, 3) as workers:
        for seed in (3, 4):
            expected = collect(envs, policy, steps, np.random.default_rng(seed), seed)
            assert_equal(play(workers, policy, 7, steps, seed), expected)
    if env == "SparseHalfCheetah":
        assert expected.truncated.sum() == 7
    envs.close()


def part_of(rollout: Rollout, envs: slice) -> Played:
    """What a worker with some of the environments would have returned."""
    assert isinstance(rollout.pool, np.ndarray)
    length, total = rollout.index.shape
    grid = rollout.pool[: (length + 1) * total].reshape(length + 1, total, -1)[:, envs]
    next_index = rollout.next_index[:, envs]
    last = next_index >= (length + 1) * total
    rows = np.arange(grid.shape[0] * grid.shape[1]).reshape(grid.shape[:2])
    own = rows[1:].copy()
    own[last] = rows.size + np.arange(last.sum())
    ends = iter(rollout.episode_returns)
    of_end = {tuple(place): next(ends) for place in np.argwhere(rollout.ended)}
    columns = range(total)[envs]
    returns = [r for (_, env), r in of_end.items() if env in columns]
    pool = np.concatenate([grid.reshape(rows.size, -1), rollout.pool[next_index[last]]])
    cut = {
        name: getattr(rollout, name)[:, envs]
        for name in Trace._fields
        if name not in ("next_index", "episode_returns")
    }
    return Played(pool, Trace(next_index=own, episode_returns=np.array(returns), **cut))


def test_parts_with_many_ends_are_joined_in_the_order_of_time() -> None:
    envs = OracleVectorEnv(7, AutoresetMode.SAME_STEP)
    whole = collect(envs, policy_of(envs), 3_000, np.random.default_rng(0), 0)
    assert len(whole.episode_returns) > 300
    parts = [part_of(whole, envs) for envs in (slice(0, 2), slice(2, 3), slice(3, 7))]
    assert_equal(rollout_of(*joined(parts)), whole)


def test_a_worker_that_was_killed_is_one_sentence() -> None:
    envs = make_vec("SparseHalfCheetah", 2)
    with working("SparseHalfCheetah", 2, 2) as workers:
        play(workers, policy_of(envs), 2, 20, 0)
        workers._processes[1].kill()
        workers._processes[1].wait()
        with pytest.raises(UserError, match="ended with -9: if the system stopped it") as caught:
            play(workers, policy_of(envs), 2, 20, 1)
    assert caught.value.exit_code == 1


def test_stop_signals_are_left_to_the_trainer() -> None:
    envs = make_vec("SparseHalfCheetah", 2)
    policy = policy_of(envs)
    with working("SparseHalfCheetah", 2, 2) as workers:
        before = play(workers, policy, 2, 20, 0)
        for process in workers._processes:
            for each in SIGNALS:
                process.send_signal(each)
        assert_equal(play(workers, policy, 2, 20, 0), before)


ORPHANS = """
from emi.runs.stop_signals import SIGNALS
from emi.training.workers import Workers
workers = Workers("SparseHalfCheetah", 2, 2)
print(*(process.pid for process in workers._processes), flush=True)
input()
"""


def test_workers_end_when_the_trainer_is_killed() -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", ORPHANS], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with parent:
        assert parent.stdout is not None
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(pids) == 2
        assert all(runs(pid) for pid in pids)
        parent.kill()
    deadline = time.monotonic() + 60
    while any(runs(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(runs(pid) for pid in pids)


def runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"  # ended, and not yet noticed by its parent


def test_workers_do_not_import_pytorch() -> None:
    program = "import sys, emi.training.workers; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr


@pytest.mark.parametrize(
    ("raised", "expected", "message"),
    [
        (NotFiniteError("observation became NaN"), NotFiniteError, "^observation became NaN$"),
        (KeyError("apples"), RuntimeError, r"(?s)steps environments failed:.*KeyError: 'apples'"),
    ],
)
def test_errors_reach_the_trainer(
    monkeypatch: pytest.MonkeyPatch, raised: Exception, expected: type, message: str
) -> None:
    def fail(*arguments: Any) -> None:
        raise raised

    monkeypatch.setattr(module, "play", fail)
    request, answer = io.BytesIO(), io.BytesIO()
    network = ActingNetwork(
        [ActingLayer("linear")], [np.zeros((6, 20), np.float32), np.zeros(6, np.float32)]
    )
    module._send(request, [0, network.layers], [np.zeros((3, 1, 6)), *network.weights])
    request.seek(0)
    module._work(Share("SparseHalfCheetah", 1, 0, 1, {}), request, answer)
    answer.seek(0)

    workers = Workers.__new__(Workers)
    workers._processes = [type("Process", (), {"stdout": answer})()]  # type: ignore[list-item]
    with pytest.raises(expected, match=message):
        workers.result()


def test_descriptors_are_closed() -> None:
    def count() -> int:
        return len(os.listdir("/proc/self/fd"))

    before = count()
    with working("SparseHalfCheetah", 2, 2):
        assert count() == before + 4
    assert count() == before
