"""A checkpoint that a stranger made: it fits and is loaded, or one sentence says what does not."""

import copy
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from test_checkpoint import _sign, same
from torch import Tensor

from emi.batch import Transitions
from emi.errors import UserError
from emi.intrinsic import simhash
from emi.intrinsic.contract import IntrinsicReward
from emi.intrinsic.pool import Pool
from emi.intrinsic.table import METHODS
from emi.runs import checkpoint
from emi.runs.checkpoint import load_latest, save
from emi.runs.run import restore_newest, run
from emi.runs.run_directory import RunDirectory
from emi.training.config import TrainConfig
from emi.training.presets import resolve
from emi.training.trainer import Trainer

SIZES = {"steps": 400, "steps_per_iteration": 100, "num_envs": 2, "threads": 1}
SMALL: dict[str, dict[str, Any]] = {
    "ex2": {"min_replay": 50, "updates": 2, "first_updates": 2, "minibatch": 8},
    "vime": {"min_replay": 50, "updates": 2},
    "ae-simhash": {"ae_updates": 2, "ae_every": 1},
    "rnd": {"features": 4, "hidden": (8,)},
}


def small(method: str, value: str = "network", env: str = "SparseHalfCheetah") -> TrainConfig:
    settings: dict[str, Any] = {**SIZES, "value.kind": value}
    if method in SMALL:
        settings["intrinsic"] = SMALL[method]
    return resolve(env, method, settings)


def trained(config: TrainConfig) -> dict[str, Any]:
    """The state after two iterations."""
    trainer = Trainer(config)
    for _ in range(2):
        trainer.iterate()
    trainer.close()
    return copy.deepcopy(trainer.state_dict())


Path_ = tuple[Any, ...]


def leaves(state: Any, path: Path_ = ()) -> Iterator[Path_]:
    """The paths of all values that are no containers, and of the containers."""
    if path:
        yield path
    if isinstance(state, dict):
        for key in state:
            yield from leaves(state[key], (*path, key))
    elif isinstance(state, list | tuple):
        for i, value in enumerate(state):
            yield from leaves(value, (*path, i))


def at(state: Any, path: Path_) -> Any:
    for key in path:
        state = state[key]
    return state


def put(state: Any, path: Path_, value: Any) -> Any:
    """`state` with another value at `path`; containers on the way are copied."""
    if not path:
        return value
    key, *rest = path
    changed = put(state[key], tuple(rest), value)
    if isinstance(state, dict):
        return {**state, key: changed}
    return type(state)([*state[:key], changed, *state[key + 1 :]])


def without(state: Any, path: Path_) -> Any:
    inside = at(state, path[:-1])
    if isinstance(inside, dict):
        left: Any = {k: v for k, v in inside.items() if k != path[-1]}
    else:
        left = type(inside)(v for i, v in enumerate(inside) if i != path[-1])
    return put(state, path[:-1], left)


def mutations(value: Any) -> list[Any]:
    """Other values in the place of one."""
    match value:
        case Tensor():
            other = torch.float64 if value.dtype == torch.float32 else torch.float32
            big = torch.zeros(*value.shape, 3, dtype=value.dtype)
            found = [value.to(other), big, value.reshape(-1)[:0], None, 7, [value.sum().item()]]
            if value.is_floating_point():
                found.append(torch.full_like(value, float("nan")))
            return [*found, torch.full_like(value, 255 if value.dtype == torch.uint8 else -5)]
        case bool():
            return [2, "yes", torch.tensor(True)]
        case int():
            return [-1, 2**70, 1.5, "1", True, 16**9_999]
        case float():
            return [float("nan"), float("inf"), "1", 3, torch.ones(2)]
        case str():
            return ["MT19937", 3, "x" * 10_000]
        case dict():
            return [{**value, "unknown": 1}, {**value, 99: torch.ones(1)}, [], None]
        case list() | tuple():
            return [[*value, torch.ones(2)], {}, 5, "text"]
        case _:
            return [torch.ones(2), "text"]


@pytest.mark.parametrize(
    ("method", "value"), [*((method, "network") for method in METHODS), ("trpo", "linear")]
)
def test_a_changed_state_is_refused_and_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, method: str, value: str
) -> None:
    monkeypatch.setattr(simhash, "PRIMES", (5, 7, 11, 13, 17, 19))  # small tables are compared fast
    config = small(method, value)
    state = trained(config)
    trainer = Trainer(config)
    fresh = copy.deepcopy(trainer.state_dict())
    sentences: list[str] = []
    loaded = 0
    for path in leaves(state):
        if "optimizer" in path and "state" in path and any(type(k) is int and k > 0 for k in path):
            continue  # the moments of the first parameter stand for those of all
        changed = [put(state, path, value) for value in mutations(at(state, path))]
        for forged in [*changed, without(state, path)]:
            try:
                trainer.load_state_dict(forged)
            except UserError as error:
                sentences.append(str(error))
                assert same(trainer.state_dict(), fresh), path
            else:
                loaded += 1
                trainer.load_state_dict(fresh)
    trainer.load_state_dict(state)
    assert same(trainer.state_dict(), state)
    trainer.close()
    assert len(sentences) > 5 * loaded
    assert max(map(len, sentences)) < 300


def test_the_rows_of_a_pool_of_images() -> None:
    config = small("ex2", env="BoxImage")
    state = trained(config)
    trainer = Trainer(config)
    rows = state["intrinsic"]["pool._extra_state"]["rows"]
    path = ("intrinsic", "pool._extra_state", "rows")
    for forged, sentence in (
        (rows[:, :, :-1], r"^intrinsic\.pool\.rows has shape \(200, 1, 51, 52\), expected \(200, "),
        (rows.float(), r"^intrinsic\.pool\.rows has dtype float32, expected uint8$"),
    ):
        with pytest.raises(UserError, match=sentence):
            trainer.load_state_dict(put(state, path, forged))
    trainer.load_state_dict(state)
    trainer.close()


DESCENT = ("intrinsic", "descent._extra_state")
ADAM = (*DESCENT, "optimizer")
Change = Callable[[Any], Any]
FORGED: dict[str, tuple[tuple[Any, ...], Change, str]] = {
    "moment of another shape": (
        (*ADAM, "state", 0, "exp_avg"),
        lambda found: torch.zeros(2, 3),
        "intrinsic.descent.optimizer.state.0.exp_avg has shape (2, 3), expected (64, 20)",
    ),
    "moment of another dtype": (
        (*ADAM, "state", 0, "exp_avg_sq"),
        lambda found: found.double(),
        "intrinsic.descent.optimizer.state.0.exp_avg_sq has dtype float64, expected float32",
    ),
    "negative moment": (
        (*ADAM, "state", 0, "exp_avg_sq"),
        lambda found: found - 1e9,
        "intrinsic.descent.optimizer.state.0.exp_avg_sq holds -1000000000.0, expected 0 or more",
    ),
    "learning rate": (
        (*ADAM, "param_groups", 0, "lr"),
        lambda found: 1e30,
        "intrinsic.descent.optimizer.param_groups.0.lr is 1e+30, expected 0.001",
    ),
    "parameter that is not there": (
        (*ADAM, "state"),
        lambda found: found | {1_000: found[0]},
        "intrinsic.descent.optimizer.state has the unknown key 1000",
    ),
    "generator of another size": (
        (*DESCENT, "generator"),
        lambda found: found[:-1].clone(),
        "intrinsic.descent.generator has shape (5055,), expected (5056,)",
    ),
    "weights of the policy": (
        ("policy", "head.weight"),
        lambda found: found * float("inf"),
        "policy.head.weight is not finite",
    ),
    "more steps than iterations allow": (
        ("steps",),
        lambda found: 401,
        "steps is 401, expected a whole number from 2 to 400",
    ),
    "more iterations than the run has": (
        ("iteration",),
        lambda found: 5,
        "iteration is 5, expected a whole number from 0 to 4",
    ),
    "another generator": (
        ("value_rng", "bit_generator"),
        lambda found: "MT19937",
        "value_rng.bit_generator is 'MT19937', expected 'PCG64'",
    ),
    "a very long number": (
        ("action_rng", "state", "state"),
        lambda found: 16**1_000_000,
        "action_rng.state.state is a number of 4000001 bits, expected a whole number from 0 to "
        f"{2**128 - 1}",
    ),
}


@pytest.fixture(scope="module")
def of_emi() -> tuple[TrainConfig, dict[str, Any]]:
    config = small("emi")
    return config, trained(config)


@pytest.mark.parametrize("case", FORGED)
def test_the_sentence_names_checkpoint_and_field(
    tmp_path: Path, of_emi: tuple[TrainConfig, dict[str, Any]], case: str
) -> None:
    config, state = of_emi
    path, change, sentence = FORGED[case]
    forged = put(state, path, change(at(state, path)))
    if path == ("iteration",):
        save(tmp_path / "checkpoints", 5, forged)
    else:
        save(tmp_path / "checkpoints", 2, forged)
    trainer = Trainer(config)
    with pytest.raises(UserError) as caught:
        restore_newest(trainer, RunDirectory(tmp_path), print)
    trainer.close()
    assert str(caught.value).startswith(str(tmp_path / "checkpoints" / "0000000"))
    assert str(caught.value).endswith(f": {sentence}")


def test_a_state_that_does_not_fit_is_not_skipped(
    tmp_path: Path, of_emi: tuple[TrainConfig, dict[str, Any]]
) -> None:
    config, state = of_emi
    fresh = Trainer(config)
    save(tmp_path / "checkpoints", 0, fresh.state_dict())
    save(tmp_path / "checkpoints", 2, put(state, ("steps",), 0))
    with pytest.raises(UserError, match="00000002 does not fit"):
        restore_newest(fresh, RunDirectory(tmp_path), print)
    assert fresh.iteration == 0
    fresh.close()


def test_resume_with_a_forged_moment_ends_in_one_sentence(tmp_path: Path) -> None:
    """The fused step of Adam wrote past the moment and crashed with SIGSEGV."""
    config = small("rnd")
    run(config, tmp_path / "run")
    directory = RunDirectory(tmp_path / "run")
    state = load_latest(directory.checkpoints).state
    path = (*ADAM, "state", 0, "exp_avg")
    forged = put(put(state, path, torch.zeros(1)), ("iteration",), 3)
    save(directory.checkpoints, 3, put(forged, ("steps",), 300))
    resume = [sys.executable, "-m", "emi", "resume", str(directory.path)]
    done = subprocess.run(resume, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert "intrinsic.descent.optimizer.state.0.exp_avg has shape (1,), expected (8, 20)" in (
        done.stderr
    )


@pytest.mark.parametrize(("left", "position"), [(624, 600), (0, 1), (625, 0), (2, 624), (-1, 0)])
def test_a_generator_that_would_read_outside_its_words(left: int, position: int) -> None:
    config = small("emi")
    trainer = Trainer(config)
    state = copy.deepcopy(trainer.state_dict())
    words = state["intrinsic"]["descent._extra_state"]["generator"]
    words[8:12] = torch.from_numpy(np.frombuffer(np.int32(left).tobytes(), np.uint8).copy())
    words[16:24] = torch.from_numpy(np.frombuffer(np.int64(position).tobytes(), np.uint8).copy())
    with pytest.raises(UserError, match=r"^intrinsic\.descent\.generator is not the state of"):
        trainer.load_state_dict(state)
    trainer.close()


@pytest.mark.parametrize("draws", [0, 1, 623, 624, 625, 1_000])
def test_every_true_state_of_a_generator_is_loaded(draws: int) -> None:
    trainer = Trainer(small("emi"))
    assert trainer.intrinsic is not None
    torch.rand(draws, generator=trainer.intrinsic.descent.generator)  # type: ignore[union-attr, arg-type]
    trainer.load_state_dict(copy.deepcopy(trainer.state_dict()))
    trainer.close()


@pytest.mark.parametrize(
    ("rows", "position", "sentence"),
    [
        (torch.ones(4, 2), 0, "pool.rows has 4 rows, expected 1 to 3"),
        (torch.ones(0, 2), 0, "pool.rows has 0 rows, expected 1 to 3"),
        (torch.ones(2, 3), 2, "pool.rows has shape (2, 3), expected (2, 2)"),
        (torch.ones(2, 2), 1, "pool.next is 1, expected a whole number from 2 to 2"),
        (torch.ones(3, 2), 3, "pool.next is 3, expected a whole number from 0 to 2"),
        (
            torch.ones(()),
            0,
            "pool.rows is a tensor or array of shape (), expected a tensor of rows",
        ),
        (None, 1, "pool.next is 1, expected a whole number from 0 to 0"),
    ],
)
def test_a_pool(rows: Tensor | None, position: int, sentence: str) -> None:
    pool = Pool(3, [2])
    with pytest.raises(UserError) as caught:
        pool.set_extra_state({"rows": rows, "next": position})
    assert str(caught.value) == sentence


class Notes(IntrinsicReward):
    """A user's method: its state has any shape, and loading it can fail halfway."""

    def __init__(
        self,
        observation_space: gymnasium.Space,
        action_space: gymnasium.Space,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.notes: dict[str, Any] = {"seen": 0}

    def reward(self, batch: Transitions) -> Tensor:
        return torch.ones(len(batch))

    def learn(self, batch: Transitions) -> dict[str, float]:
        self.notes[f"batch {len(self.notes)}"] = torch.ones(len(self.notes), 2)
        return {}

    def get_extra_state(self) -> dict[str, Any]:
        return dict(self.notes)

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self.notes = {"seen": -1}
        self.notes["seen"] = state["seen"]
        self.notes = dict(state)


def test_a_users_method_loads_any_state_and_a_failure_is_undone() -> None:
    config = resolve("SparseHalfCheetah", f"{__name__}:Notes", SIZES)
    state = trained(config)
    assert list(state["intrinsic"]["_extra_state"]) == ["seen", "batch 1", "batch 2"]
    trainer = Trainer(config)
    before = copy.deepcopy(trainer.state_dict())
    with pytest.raises(UserError, match=r"^KeyError: 'seen'$"):
        trainer.load_state_dict(without(state, ("intrinsic", "_extra_state", "seen")))
    assert same(trainer.state_dict(), before)
    trainer.load_state_dict(state)
    assert same(trainer.state_dict(), state)
    trainer.close()


class TestFiles:
    def test_a_state_of_another_iteration_is_damaged(self, tmp_path: Path) -> None:
        save(tmp_path, 3, {"iteration": 3})
        save(tmp_path, 9, {"iteration": 3})
        loaded = load_latest(tmp_path)
        assert loaded.iteration == 3
        assert "state.json belongs to another iteration" in loaded.warnings[0]

    def test_a_key_that_occurs_twice(self, tmp_path: Path) -> None:
        folder = save(tmp_path, 7, {"x": 1})
        (folder / "state.json").write_text('{"items":[["x",1],["x",2]]}')
        _sign(folder)
        with pytest.raises(UserError, match="is damaged"):
            load_latest(tmp_path)
        manifest = folder / "manifest.json"
        manifest.write_text(manifest.read_text().replace("{", '{"version": 1,', 1))
        with pytest.raises(UserError, match="the key 'version' occurs twice"):
            load_latest(tmp_path)

    def test_an_array_that_numpy_does_not_have(self, tmp_path: Path) -> None:
        folder = save(tmp_path, 7, {"x": torch.ones(1, dtype=torch.bfloat16)})
        (folder / "state.json").write_text('{"items":[["x",{"array":"state/x"}]]}')
        _sign(folder)
        with pytest.raises(UserError, match=r"NumPy has no torch\.bfloat16"):
            load_latest(tmp_path)

    def test_tensors_that_are_larger_than_the_memory_are_not_read(self, tmp_path: Path) -> None:
        folder = save(tmp_path, 7, {"x": torch.ones(1)})
        with (folder / "tensors.safetensors").open("ab") as file:
            file.truncate(2**43)  # sparse: no disk is used
        with pytest.raises(UserError, match="too much for the memory of this machine"):
            load_latest(tmp_path)

    def test_nothing_is_written_through_a_link(self, tmp_path: Path) -> None:
        outside = tmp_path / "outside"
        outside.mkdir()
        (tmp_path / "checkpoints").symlink_to(outside)
        with pytest.raises(UserError, match="is a link or a device"):
            save(tmp_path / "checkpoints", 1, {"iteration": 1})
        assert list(outside.iterdir()) == []

    @pytest.mark.parametrize("name", [".writing-00000005", "00000005", "00000009"])
    def test_a_link_is_removed_but_not_what_it_leads_to(self, tmp_path: Path, name: str) -> None:
        outside = tmp_path / "outside"
        outside.mkdir()
        (outside / "thesis.tex").write_text("mine")
        directory = tmp_path / "checkpoints"
        save(directory, 3, {"iteration": 3})
        (directory / name).symlink_to(outside)
        save(directory, 5, {"iteration": 5})
        assert (outside / "thesis.tex").read_text() == "mine"
        assert sorted(p.name for p in directory.iterdir()) == ["00000003", "00000005"]
        assert not (directory / "00000005").is_symlink()

    def test_a_file_in_the_place_of_a_directory_is_replaced(self, tmp_path: Path) -> None:
        save(tmp_path, 3, {"iteration": 3})
        (tmp_path / ".writing-00000005").write_text("")
        (tmp_path / "00000005").write_text("")
        save(tmp_path, 5, {"iteration": 5})
        assert load_latest(tmp_path).iteration == 5

    def test_only_the_newest_of_many_entries_are_tried(self, tmp_path: Path) -> None:
        for number in range(99_999_000, 99_999_999):
            os.mkdir(tmp_path / str(number))
        with pytest.raises(UserError) as caught:
            load_latest(tmp_path)
        assert str(caught.value).count("is damaged") == 10
        assert checkpoint.latest_iteration(tmp_path) is None
