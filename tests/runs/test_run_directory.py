"""What a run directory holds, who may write it, and when it is refused."""

import dataclasses
import json
import os
import platform
import re
import shutil
import socket
import subprocess
from importlib.metadata import version
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import emi
from emi.agent.trpo import TRPOConfig
from emi.errors import UserError
from emi.runs import checkpoint
from emi.runs.provenance import describe_start
from emi.runs.run_directory import (
    RunDirectory,
    add_start,
    default_path,
    locked,
    read_config,
    require_free,
    write_config,
    write_embedding,
)
from emi.training.presets import resolve

CONFIG = resolve("SparseHalfCheetah", settings={"steps": 10_000, "threads": 1})


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    made = RunDirectory(tmp_path / "run")
    made.path.mkdir()
    return made


class TestConfig:
    def test_it_reads_back(self, directory: RunDirectory) -> None:
        write_config(directory, CONFIG)
        assert read_config(directory.config) == CONFIG

    @pytest.mark.parametrize(
        "text", ["", "{", "[]", "3", '{"env": 3}', '{"nonsense": 1}', "[" * 100_000, "\x00"]
    )
    def test_a_config_that_is_not_one(self, directory: RunDirectory, text: str) -> None:
        directory.config.write_text(text)
        with pytest.raises(UserError, match=r"^(cannot read )?.*config\.json:? ."):
            read_config(directory.config)

    def test_no_config(self, directory: RunDirectory) -> None:
        with pytest.raises(UserError, match="holds no run"):
            read_config(directory.config)

    def test_default_path(self) -> None:
        assert default_path(CONFIG) == Path("runs/SparseHalfCheetah-emi-seed0")
        config = resolve("gym:CartPole-v1", "trpo", {"seed": 7})
        assert default_path(config) == Path("runs/gym-CartPole-v1-trpo-seed7")
        own = dataclasses.replace(config, env="gym:lab/Maze-v0", method="lab.methods:Visits")
        assert default_path(own) == Path("runs/gym-lab-Maze-v0-lab.methods-Visits-seed7")


class TestFree:
    def test_a_new_or_empty_directory(self, tmp_path: Path) -> None:
        require_free(RunDirectory(tmp_path / "a" / "b"), CONFIG)
        require_free(RunDirectory(tmp_path), CONFIG)
        assert not any(tmp_path.iterdir())

    def test_what_a_run_leaves_that_was_killed_at_its_start(self, directory: RunDirectory) -> None:
        (directory.path / ".lock").touch()
        (directory.path / ".config.json.writing").write_text("{")
        require_free(directory, CONFIG)

    def test_other_files(self, directory: RunDirectory) -> None:
        (directory.path / "thesis.tex").touch()
        with pytest.raises(UserError, match=r"holds other files \(thesis\.tex\)"):
            require_free(directory, CONFIG)

    def test_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(UserError, match="is a file"):
            require_free(RunDirectory(tmp_path / "file"), CONFIG)
        with pytest.raises(UserError, match="is not a directory"):
            require_free(RunDirectory(tmp_path / "file" / "run"), CONFIG)

    def test_another_run(self, directory: RunDirectory) -> None:
        write_config(directory, dataclasses.replace(CONFIG, seed=1))
        with pytest.raises(UserError, match=r"holds another run \(seed differs\)"):
            require_free(directory, CONFIG)

    def test_this_run_stopped(self, directory: RunDirectory) -> None:
        write_config(directory, CONFIG)
        checkpoint.save(directory.checkpoints, 1, {})
        sentence = f"stopped at iteration 1 of 2: resume with: emi resume {directory.path}"
        with pytest.raises(UserError, match=re.escape(sentence)):
            require_free(directory, CONFIG)

    def test_this_run_complete(self, directory: RunDirectory) -> None:
        write_config(directory, CONFIG)
        checkpoint.save(directory.checkpoints, 2, {})
        with pytest.raises(UserError, match="holds this run, complete"):
            require_free(directory, CONFIG)

    def test_no_permission(self, directory: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
        # Not by chmod: root, who runs tests in containers, may write everywhere.
        monkeypatch.setattr(os, "access", lambda path, mode: False)
        for where in (directory, RunDirectory(directory.path / "deeper")):
            with pytest.raises(UserError, match="no permission to write in"):
                require_free(where, CONFIG)


class TestLock:
    def test_one_writer_at_a_time(self, directory: RunDirectory) -> None:
        with (
            locked(directory),
            pytest.raises(UserError, match="being written by another process"),
            locked(directory),
        ):
            pass
        with locked(directory):
            assert (directory.path / ".lock").exists()


class TestProvenance:
    def test_starts_are_added(self, directory: RunDirectory) -> None:
        add_start(directory, CONFIG, ["emi", "train", "SparseHalfCheetah"], 0)
        add_start(directory, CONFIG, ["emi", "resume", "/somewhere/private/run"], 12)
        starts = json.loads(directory.provenance.read_text())["starts"]
        assert [s["iteration"] for s in starts] == [0, 12]
        assert starts[0]["command"] == "emi train SparseHalfCheetah"
        assert starts[1]["command"] == "emi resume run"
        assert starts[0]["versions"]["python"] == platform.python_version()
        assert starts[0]["versions"]["torch"] == version("torch")
        assert {"mujoco", "ale-py", "stable-baselines3"} <= starts[0]["versions"].keys()
        assert starts[0]["machine"].keys() == {"cpu", "instructions", "cores", "platform"}

    def test_an_unreadable_record_does_not_stop_training(self, directory: RunDirectory) -> None:
        directory.provenance.write_text("{")
        add_start(directory, CONFIG, ["emi"], 3)
        assert len(json.loads(directory.provenance.read_text())["starts"]) == 1

    def test_changed_settings_are_stored_once(
        self, directory: RunDirectory, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        config = dataclasses.replace(CONFIG, discount=0.9, trpo=TRPOConfig(max_kl=0.02))
        add_start(directory, config, ["emi"], 0)
        changed = json.loads(directory.provenance.read_text())["changed"]
        assert set(changed) - {"threads"} == {"discount", "steps", "trpo.max_kl"}
        # A later version has another preset.
        monkeypatch.setattr("emi.runs.run_directory.changed_settings", lambda config: ["eta"])
        add_start(directory, config, ["emi"], 5)
        assert json.loads(directory.provenance.read_text())["changed"] == changed

    def test_a_record_of_an_older_version_has_no_changed_settings(
        self, directory: RunDirectory
    ) -> None:
        directory.provenance.write_text('{"starts": [{"iteration": 0, "command": "emi train"}]}')
        add_start(directory, CONFIG, ["emi", "resume", "run"], 5)
        record = json.loads(directory.provenance.read_text())
        assert list(record) == ["starts"]
        assert [start["command"] for start in record["starts"]] == ["emi train", "emi resume run"]

    def test_no_private_paths_or_names(self) -> None:
        words = ["emi", "train", "X", "--out=/home/me/run", "--set", "a=/b/c", "--out", "/d/e", "r"]
        start = describe_start(words, 0)
        assert start["command"] == "emi train X --out=run --set a=c --out e r"
        text = json.dumps(start)
        assert socket.gethostname() not in text.replace(start["machine"]["platform"], "")
        assert str(Path.cwd()) not in text
        assert str(Path.home()) not in text

    @pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
    def test_commit_of_a_checkout(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def git(*words: str) -> str:
            identity = ["-c", "user.name=n", "-c", "user.email=e"]
            done = subprocess.run(
                ["git", *identity, *words], cwd=tmp_path, capture_output=True, text=True, check=True
            )
            return done.stdout.strip()

        package = tmp_path / "src"
        package.mkdir()
        (package / "cli.py").write_text("1")
        monkeypatch.setattr(emi, "__path__", [str(package)])
        git("init", "-q")
        start = describe_start([], 0)  # inside a repository, but not part of it
        assert (start["commit"], start["modified"]) == (None, None)
        git("add", ".")
        git("commit", "-qm", "m")
        start = describe_start([], 0)
        assert (start["commit"], start["modified"]) == (git("rev-parse", "HEAD"), False)
        (package / "cli.py").write_text("2")
        assert describe_start([], 0)["modified"] is True


class TestEmbedding:
    def test_it_is_written(self, directory: RunDirectory) -> None:
        whole = torch.arange(6.0).reshape(2, 3)
        write_embedding(directory, {"phi": whole[:, :2], "obs": whole})
        read = load_file(directory.embedding)
        assert torch.equal(read["phi"], torch.tensor([[0.0, 1.0], [3.0, 4.0]]))
        assert torch.equal(read["obs"], whole)

    def test_methods_without_embedding_leave_no_file(self, directory: RunDirectory) -> None:
        write_embedding(directory, {})
        assert not any(directory.path.iterdir())
