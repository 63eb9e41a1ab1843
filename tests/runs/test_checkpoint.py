"""Checkpoints come back bit for bit, survive crashes, and are safe to read."""

import hashlib
import json
import math
import os
import random
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from emi.errors import UserError
from emi.runs import checkpoint
from emi.runs.checkpoint import latest_iteration, load_latest, save

DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
]


def small_state(number: int = 0) -> dict[str, Any]:
    return {
        "iteration": number,
        "weights": {"layer.0": torch.full((3, 2), float(number)), 0: torch.arange(4)},
        "rng": {"state": 2**100 + number, "name": "PCG64"},
    }


def same(a: Any, b: Any) -> bool:
    """Equal in value, type, dtype and shape, at every depth; NaN equals NaN."""
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.Tensor):
        raw = [t.contiguous().reshape(-1).view(torch.uint8) for t in (a, b)]
        return a.dtype == b.dtype and a.shape == b.shape and torch.equal(*raw)
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, dict):
        return list(a) == list(b) and all(
            type(k) is type(j) and same(a[k], b[k]) for k, j in zip(a, b, strict=True)
        )
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float):
        return a.hex() == b.hex()
    return a == b


def round_trip(directory: Path, state: dict[str, Any]) -> dict[str, Any]:
    save(directory, 1, state)
    return load_latest(directory).state


class TestRoundTrip:
    @pytest.mark.parametrize("dtype", DTYPES)
    def test_tensors_keep_bits_dtype_and_shape(self, tmp_path: Path, dtype: torch.dtype) -> None:
        values = torch.tensor([[0, 1, 7], [2, 3, 1]]).to(dtype)
        state = {
            "plain": values,
            "scalar": values[0, 1],
            "empty": values[:0],
            "transposed": values.t(),
            "strided": values[:, ::2],
            "view": values[1],
        }
        assert same(round_trip(tmp_path, state), state)

    def test_not_finite_tensors(self, tmp_path: Path) -> None:
        state = {"x": torch.tensor([math.nan, math.inf, -math.inf, -0.0, 1e-45])}
        assert same(round_trip(tmp_path, state), state)

    @pytest.mark.parametrize("dtype", ["?", "u1", "u4", "u8", "i8", "f4", "f8"])
    def test_arrays_come_back_as_arrays(self, tmp_path: Path, dtype: str) -> None:
        array = np.arange(6, dtype="i8").reshape(2, 3).astype(dtype)
        frozen = array.copy()
        frozen.flags.writeable = False
        state = {"a": array, "t": array.T, "zero": array[0, 0, None][0:1].reshape(()), "f": frozen}
        assert same(round_trip(tmp_path, state), state)

    def test_plain_values(self, tmp_path: Path) -> None:
        state = {
            "none": None,
            "flags": [True, False],
            "ints": [0, -1, 2**63 - 1, -(2**63), 2**63, 2**127 + 1, -(2**200), 10**6000],
            "floats": [0.1, -0.0, 1e-323, 1.7976931348623157e308, math.nan, math.inf, -math.inf],
            "words": ["", "φ → ψ", "items", "\ud800", "a\x00b"],
            "empty": [{}, [], ()],
            "pair": (0.9, 0.999),
            "items": {"tensor": "tensor", "items": [["a", 1]]},
        }
        assert same(round_trip(tmp_path, state), state)

    def test_integer_keys_stay_integers(self, tmp_path: Path) -> None:
        state = {"state": {0: torch.ones(1), "0": torch.zeros(1), 1: {"step": 3}}, "a/b": {"c": 1}}
        assert same(round_trip(tmp_path, state), state)

    def test_names_that_could_collide(self, tmp_path: Path) -> None:
        state = {"a": {"b": torch.zeros(1)}, "a/b": torch.ones(1), "__metadata__": torch.ones(2)}
        assert same(round_trip(tmp_path, state), state)

    def test_shared_memory_comes_back_as_values(self, tmp_path: Path) -> None:
        whole = torch.arange(10.0)
        state = {"whole": whole, "again": whole, "part": whole[2:5]}
        assert same(round_trip(tmp_path, state), state)

    def test_parameters_and_optimizer(self, tmp_path: Path) -> None:
        net = torch.nn.Linear(3, 2)
        adam = torch.optim.Adam(net.parameters())
        net(torch.ones(1, 3)).sum().backward()
        adam.step()
        state = {"net": dict(net.state_dict()), "adam": adam.state_dict()}
        assert same(round_trip(tmp_path, state), state)

    def test_what_was_read_does_not_depend_on_the_file(self, tmp_path: Path) -> None:
        state = round_trip(tmp_path, {"x": torch.ones(1000)})
        tensors = tmp_path / "00000001" / "tensors.safetensors"
        tensors.write_bytes(bytes(tensors.stat().st_size))
        assert torch.equal(state["x"], torch.ones(1000))

    @pytest.mark.parametrize(
        "value",
        [
            {1, 2},
            1j,
            b"bytes",
            np.array(["a"]),
            np.array([object()]),
            np.float32(1),
            torch.ones(1, dtype=torch.complex64),
        ],
        ids=lambda value: type(value).__name__,
    )
    def test_a_value_that_cannot_be_stored_is_named(self, tmp_path: Path, value: Any) -> None:
        with pytest.raises(ValueError, match=r"^state/a/0 is a .*; a checkpoint cannot keep it$"):
            save(tmp_path, 1, {"a": [value]})
        assert not any(tmp_path.iterdir())

    def test_a_key_that_cannot_be_stored(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match=r"^state has the key \(1, 2\)"):
            save(tmp_path, 1, {(1, 2): 3})  # type: ignore[dict-item]


class TestFolders:
    def test_layout(self, tmp_path: Path) -> None:
        folder = save(tmp_path, 120, small_state())
        assert folder == tmp_path / "00000120"
        manifest = json.loads((folder / "manifest.json").read_text())
        assert {k: manifest[k] for k in ("format", "version", "iteration")} == {
            "format": "emi-checkpoint",
            "version": 1,
            "iteration": 120,
        }
        for name in ("state.json", "tensors.safetensors"):
            data = (folder / name).read_bytes()
            digest = hashlib.sha256(data).hexdigest()
            assert manifest["files"][name] == {"bytes": len(data), "sha256": digest}

    def test_the_last_two_are_kept_and_leftovers_removed(self, tmp_path: Path) -> None:
        stale = tmp_path / ".writing-00000002"
        stale.mkdir()
        (stale / "state.json").write_text("half")
        for number in (0, 1, 5, 9):
            save(tmp_path, number, small_state(number))
        assert sorted(p.name for p in tmp_path.iterdir()) == ["00000005", "00000009"]

    def test_the_newest_is_loaded(self, tmp_path: Path) -> None:
        save(tmp_path, 9, small_state(9))
        save(tmp_path, 10, small_state(10))
        loaded = load_latest(tmp_path)
        assert (loaded.iteration, loaded.path.name, loaded.warnings) == (10, "00000010", ())
        assert same(loaded.state, small_state(10))

    def test_a_sound_checkpoint_is_not_written_again(self, tmp_path: Path) -> None:
        folder = save(tmp_path, 3, small_state(3))
        before = (folder / "manifest.json").stat().st_mtime_ns
        assert save(tmp_path, 3, small_state(3)) == folder
        assert (folder / "manifest.json").stat().st_mtime_ns == before

    def test_a_damaged_one_of_the_same_iteration_is_replaced(self, tmp_path: Path) -> None:
        save(tmp_path, 3, small_state(3))
        (tmp_path / "00000003" / "state.json").write_text("{}")
        save(tmp_path, 3, small_state(3))
        assert same(load_latest(tmp_path).state, small_state(3))

    def test_a_damaged_later_one_is_removed_when_the_run_continues(self, tmp_path: Path) -> None:
        save(tmp_path, 3, small_state(3))
        save(tmp_path, 8, small_state(8))
        (tmp_path / "00000008" / "manifest.json").unlink()
        save(tmp_path, 5, small_state(5))
        assert sorted(p.name for p in tmp_path.iterdir()) == ["00000003", "00000005"]

    def test_other_names_are_ignored(self, tmp_path: Path) -> None:
        save(tmp_path, 3, small_state(3))
        for name in ("99", "00000x99", "٠٠٠٠٠٠٩٩", "latest"):
            (tmp_path / name).mkdir()
        assert load_latest(tmp_path).iteration == 3


def _forget(folder: Path, name: str) -> None:
    (folder / name).unlink()


def _flip(folder: Path, name: str) -> None:
    data = bytearray((folder / name).read_bytes())
    data[len(data) // 2] ^= 1
    (folder / name).write_bytes(data)


def _shorten(folder: Path, name: str) -> None:
    data = (folder / name).read_bytes()
    (folder / name).write_bytes(data[:-2])


def _empty(folder: Path, name: str) -> None:
    (folder / name).write_bytes(b"")


def _link(folder: Path, name: str) -> None:
    (folder / name).rename(folder / "elsewhere")
    (folder / name).symlink_to("elsewhere")


def _pipe(folder: Path, name: str) -> None:
    (folder / name).unlink()
    os.mkfifo(folder / name)


class TestDamage:
    @pytest.mark.parametrize("damage", [_forget, _flip, _shorten, _empty, _link, _pipe])
    @pytest.mark.parametrize("name", ["manifest.json", "state.json", "tensors.safetensors"])
    def test_the_previous_one_is_used(self, tmp_path: Path, damage: Any, name: str) -> None:
        save(tmp_path, 60, small_state(60))
        save(tmp_path, 120, small_state(120))
        damage(tmp_path / "00000120", name)
        loaded = load_latest(tmp_path)
        assert loaded.iteration == 60
        assert same(loaded.state, small_state(60))
        (warning,) = loaded.warnings
        assert warning.startswith("checkpoint 00000120 is damaged (")
        assert warning.endswith("): using 00000060 instead")
        assert latest_iteration(tmp_path) == 60

    @pytest.mark.parametrize(
        ("key", "value", "reason"),
        [
            ("version", 2, "emi-checkpoint version 2"),
            ("format", "other", "other version 1"),
            ("iteration", 121, "belongs to iteration 121"),
            ("files", {}, "does not match its checksum"),
            ("files", None, "incomplete"),
        ],
    )
    def test_a_wrong_manifest(self, tmp_path: Path, key: str, value: Any, reason: str) -> None:
        save(tmp_path, 60, small_state(60))
        manifest = save(tmp_path, 120, small_state(120)) / "manifest.json"
        manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {key: value}))
        loaded = load_latest(tmp_path)
        assert loaded.iteration == 60
        assert reason in loaded.warnings[0]

    def test_none_left(self, tmp_path: Path) -> None:
        for number in (60, 120):
            save(tmp_path, number, small_state(number))
        for number in (60, 120):
            _flip(tmp_path / f"{number:08d}", "tensors.safetensors")
        with pytest.raises(UserError, match=r"no usable .*00000120 .*; .*00000060 "):
            load_latest(tmp_path)
        assert latest_iteration(tmp_path) is None

    def test_no_checkpoint(self, tmp_path: Path) -> None:
        for directory in (tmp_path, tmp_path / "missing"):
            with pytest.raises(UserError, match="there is no checkpoint in"):
                load_latest(directory)
            assert latest_iteration(directory) is None
            assert not checkpoint.exists(directory)


class TestCrash:
    def test_a_failure_at_any_call_leaves_the_previous_one(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        save(tmp_path, 1, small_state(1))
        real = {"fsync": os.fsync, "replace": os.replace}
        calls: list[str] = []
        fail_at = -1

        def counted(name: str) -> Any:
            def call(*args: Any) -> Any:
                calls.append(name)
                if len(calls) - 1 == fail_at:
                    raise OSError(28, "No space left on device")
                return real[name](*args)

            return call

        for name in real:
            monkeypatch.setattr(os, name, counted(name))
        save(tmp_path, 2, small_state(2))
        total = len(calls)
        # Three files and the folder are flushed before the rename, the parent after it.
        assert calls == ["fsync"] * 4 + ["replace", "fsync"]
        for fail_at in range(total):
            shutil.rmtree(tmp_path)
            calls = ["not counted"] * 100
            save(tmp_path, 1, small_state(1))
            calls = []
            with pytest.raises(OSError, match="No space left"):
                save(tmp_path, 2, small_state(2))
            loaded = load_latest(tmp_path)
            assert loaded.warnings == ()
            assert same(loaded.state, small_state(loaded.iteration))
            assert loaded.iteration == (2 if fail_at == total - 1 else 1)
            assert not list(tmp_path.glob(".writing-*"))

    @pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
    def test_sigkill_at_any_moment(self, tmp_path: Path) -> None:
        chance = random.Random(0)
        newest = 0
        save(tmp_path, 0, small_state(0))
        for _ in range(60):
            reading, writing = os.pipe()
            child = os.fork()
            if child == 0:
                try:
                    for number in range(newest + 1, newest + 1_000_000):
                        os.write(writing, b".")
                        save(tmp_path, number, small_state(number))
                finally:
                    os._exit(1)  # never back into pytest
            begun = chance.randint(1, 2)
            for _ in range(begun):
                os.read(reading, 1)
            time.sleep(chance.uniform(0.0, 0.01))  # a save takes a few milliseconds
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            os.close(reading)
            os.close(writing)
            loaded = load_latest(tmp_path)
            assert loaded.warnings == ()
            assert same(loaded.state, small_state(loaded.iteration))
            assert loaded.iteration >= newest + begun - 1
            newest = loaded.iteration


def _sign(folder: Path) -> None:
    """Make the manifest fit the files, as an attacker would."""
    manifest = json.loads((folder / "manifest.json").read_text())
    for name in manifest["files"]:
        data = (folder / name).read_bytes()
        digest = hashlib.sha256(data).hexdigest()
        manifest["files"][name] = {"bytes": len(data), "sha256": digest}
    (folder / "manifest.json").write_text(json.dumps(manifest))


class TestHostile:
    @pytest.mark.parametrize(
        ("name", "signed"),
        [
            ("manifest.json", False),
            ("state.json", False),
            ("state.json", True),
            ("tensors.safetensors", False),
            ("tensors.safetensors", True),
        ],
    )
    def test_mutations(self, tmp_path: Path, name: str, signed: bool) -> None:
        chance = random.Random(f"{name}{signed}")
        folder = save(tmp_path, 7, small_state(7))
        original = (folder / name).read_bytes()
        manifest = (folder / "manifest.json").read_bytes()
        alphabet = b'{}[]":,0123456789eE-.\\ntfaNI\x00\xff' + original
        refused = 0
        for _ in range(200):
            data = bytearray(original)
            for _ in range(chance.randint(1, 4)):
                at = chance.randrange(len(data) + 1)
                kind = chance.randrange(3)
                piece = bytes(chance.choices(alphabet, k=chance.randint(1, 6)))
                data[at : at + (0, 1, len(piece))[kind]] = piece if kind != 1 else b""
            (folder / "manifest.json").write_bytes(manifest)
            (folder / name).write_bytes(data)
            if signed:
                _sign(folder)
            try:
                state = load_latest(tmp_path).state
            except UserError:
                refused += 1
            else:
                assert isinstance(state, dict)
        assert refused >= (60 if signed else 150)

    @pytest.mark.parametrize(
        "skeleton",
        [
            b"[" * 100_000 + b"]" * 100_000,
            b'{"items":[["a",' * 20_000 + b"0" + b"]]}" * 20_000,
            b'{"items":[["a",NaN]]}',
            b'{"items":[["a",' + b"9" * 5_000 + b"]]}",
            b'{"items":[["a",{"int":"__import__"}]]}',
            b'{"items":[["a",{"float":"1.5"}]]}',
            b'{"items":[["a",{"tensor":"nowhere"}]]}',
            b'{"items":[["a",{"tensor":["state/weights/0"]}]]}',
            b'{"items":[["a",{"pickle":"gASVCg=="}]]}',
            b'{"items":[[true,1]]}',
            b'{"items":[["a"]]}',
            b'{"items":{"a":1}}',
            b'{"items":[],"tuple":[]}',
            b"[]",
            b"null",
            b"\xff\xfe",
        ],
        ids=range(16),
    )
    def test_forged_state(self, tmp_path: Path, skeleton: bytes) -> None:
        folder = save(tmp_path, 7, {"nothing": 0})
        (folder / "state.json").write_bytes(skeleton)
        _sign(folder)
        with pytest.raises(UserError, match="checkpoint 00000007 is damaged"):
            load_latest(tmp_path)

    @pytest.mark.parametrize(
        "header",
        [
            {"x": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]}},
            {"x": {"dtype": "F32", "shape": [2**63, 2], "data_offsets": [0, 4]}},
            {"x": {"dtype": "F32", "shape": [1], "data_offsets": [-4, 0]}},
            {"x": {"dtype": "O", "shape": [1], "data_offsets": [0, 4]}},
            {"x": {"dtype": "F8_E8M0", "shape": [4], "data_offsets": [0, 4]}},
            {"../../x": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}},
        ],
        ids=range(6),
    )
    def test_forged_tensors(self, tmp_path: Path, header: dict[str, Any]) -> None:
        folder = save(tmp_path, 7, {"x": torch.ones(1)})
        text = json.dumps(header).encode()
        data = len(text).to_bytes(8, "little") + text + bytes(4)
        (folder / "tensors.safetensors").write_bytes(data)
        _sign(folder)
        with pytest.raises(UserError, match="checkpoint 00000007 is damaged"):
            load_latest(tmp_path)

    def test_a_tensor_that_belongs_to_nothing(self, tmp_path: Path) -> None:
        folder = save(tmp_path, 7, {"x": torch.ones(1)})
        (folder / "state.json").write_text('{"items":[]}')
        _sign(folder)
        with pytest.raises(UserError, match="tensor 'state/x' belongs to nothing"):
            load_latest(tmp_path)

    def test_a_pickle_is_not_run(self, tmp_path: Path) -> None:
        folder = save(tmp_path, 7, {"x": torch.ones(1)})
        trap = tmp_path / "trap"
        call = f"cos\nmkdir\n(S'{trap}'\ntR.".encode()
        for name in ("tensors.safetensors", "state.json"):
            (folder / name).write_bytes(call)
        _sign(folder)
        with pytest.raises(UserError):
            load_latest(tmp_path)
        assert not trap.exists()

    def test_names_in_the_manifest_open_nothing(self, tmp_path: Path) -> None:
        folder = save(tmp_path / "checkpoints", 7, {"x": 1})
        manifest = json.loads((folder / "manifest.json").read_text())
        outside = tmp_path / "outside"
        os.mkfifo(outside)  # opening it would hang
        manifest["files"]["../../outside"] = {"bytes": 0, "sha256": "0" * 64}
        (folder / "manifest.json").write_text(json.dumps(manifest))
        assert load_latest(tmp_path / "checkpoints").state == {"x": 1}

    def test_a_huge_manifest_is_not_read(self, tmp_path: Path) -> None:
        folder = save(tmp_path, 7, {"x": 1})
        with (folder / "manifest.json").open("ab") as file:
            file.truncate(10 * 2**30)  # sparse: no disk is used
        with pytest.raises(UserError, match=r"manifest\.json is too large"):
            load_latest(tmp_path)
