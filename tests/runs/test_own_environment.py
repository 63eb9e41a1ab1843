"""A user's own environment, with arguments and wrappers, on the command line and in runs."""

import dataclasses
import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from test_run import assert_same_run

import emi
from emi.cli import main
from emi.errors import ForeignError
from emi.runs import run as run_module
from emi.runs.run import run
from emi.runs.run_directory import RunDirectory, difference, read_config
from emi.sweeps.plan import plan
from emi.training.config import TrainConfig, differences
from emi.training.presets import changed_settings, command_words, resolve
from emi.training.trainer import Report, Trainer

MODULE = '''
import gymnasium
import numpy as np
from gymnasium import spaces


class Line(gymnasium.Env):
    """Action 1 moves right, 0 left; the last cell ends the episode. `fails` in that function."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}

    def __init__(self, size: int = 5, fails: str = "", render_mode: str | None = None) -> None:
        self.size, self.fails, self.render_mode = size, fails, render_mode
        self.fail("init")
        cell, wind = spaces.Discrete(size), spaces.Box(-1, 1, (2,))
        self.observation_space = spaces.Dict(cell=cell, wind=wind, name=spaces.Text(9))
        self.action_space = spaces.Discrete(2)

    def fail(self, place: str) -> None:
        if place == self.fails:
            raise RuntimeError(f"broken {place}")

    def look(self) -> dict:
        wind = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        cell = self.cell + (99 if self.fails == "look" else 0)
        return {"cell": cell, "wind": wind, "name": "line"}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.fail("reset")
        self.cell = 0
        return self.look(), {}

    def step(self, action):
        self.fail("step")
        self.cell = min(max(self.cell + 2 * int(action) - 1, 0), self.size - 1)
        done = self.cell == self.size - 1
        return self.look(), float(done), done, False, {}

    def render(self):
        self.fail("render")
        return np.full((32, 32, 3), 40 * self.cell, np.uint8)


class Scaled(gymnasium.RewardWrapper):
    def __init__(self, env, factor: float = 2.0) -> None:
        super().__init__(env)
        if factor < 0:
            raise ValueError("negative factor")
        self.factor = factor

    def reward(self, reward):
        return self.factor * reward


def nothing(env):
    return None


TEN = 10
gymnasium.register("Line-v0", Line, max_episode_steps=20)
'''
NAME, SCALED = "gym:line_of_a_user:Line-v0", 'line_of_a_user:Scaled{"factor": 3}'
SIZES = {"steps": 300, "steps_per_iteration": 60, "num_envs": 2, "threads": 1}
WORDS = [
    *("--method", "simhash", "--steps", "120", "--threads", "1"),
    *("--set", "steps_per_iteration=60", "num_envs=2"),
]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory with the user's module, which is not imported before or after."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, ""])
    (tmp_path / "line_of_a_user.py").write_text(MODULE)
    yield tmp_path
    sys.modules.pop("line_of_a_user", None)
    gymnasium.registry.pop("Line-v0", None)


class Stopped(Trainer):
    """Receives SIGTERM in its second iteration."""

    def iterate(self) -> Report:
        if self.iteration == 1:
            os.kill(os.getpid(), signal.SIGTERM)
        return super().iterate()


@pytest.mark.parametrize(
    ("env", "options", "trust"),
    [
        (NAME, {"env_args": {"size": 7}, "wrappers": [SCALED]}, ["--trust", "line_of_a_user"]),
        ("gym:MiniGrid-DoorKey-6x6-v0", {"env_args": {"max_steps": 25}}, []),
        ("gym:PointMaze_UMaze-v3", {"env_args": {"max_episode_steps": 25}}, []),
    ],
)
@pytest.mark.usefixtures("here")
def test_a_run_is_stopped_resumed_and_watched(
    env: str,
    options: dict[str, Any],
    trust: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    config = resolve(env, "simhash", SIZES | options)
    with monkeypatch.context() as patched:
        patched.setattr(run_module, "Trainer", Stopped)
        stopped = run(config, "run")
    assert (stopped.iteration, stopped.stopped_by) == (2, signal.SIGTERM)
    assert main(["resume", "run", *trust]) == 0
    run(config, "straight")
    assert_same_run(Path("straight"), Path("run"))
    text = capsys.readouterr().out
    left = {NAME: "name", "gym:MiniGrid-DoorKey-6x6-v0": "mission"}.get(env)
    note = "left out of the observations, because networks read no text:"
    assert (f"{note} {left}\n" in text) == (left is not None)
    assert f"watch run{''.join(f' {word}' for word in trust)}\n" in text
    assert main(["watch", "run", "--out", "video.mp4", *trust]) == 0
    assert Path("video.mp4").stat().st_size > 500
    limit = 20 if env == NAME else 25
    assert int(capsys.readouterr().out.split(" in ")[1].split(" steps")[0]) <= limit


@pytest.mark.usefixtures("here")
def test_arguments_and_wrappers_reach_every_copy() -> None:
    (report,) = emi.train(
        NAME, "trpo", env_args={"size": 2}, wrappers=[SCALED], **SIZES | {"steps": 60}
    )
    assert report.metrics["return_max"] == 3.0
    envs: Any = emi.make_vec(
        NAME, 2, env_args={"size": 4}, wrappers=[SCALED, "line_of_a_user:Scaled"]
    )
    assert [env.unwrapped.size for env in envs.envs] == [4, 4]
    # The first wrapper is the innermost; the last one reads the observations.
    assert [wrapper.factor for wrapper in (envs.envs[0].env, envs.envs[0].env.env)] == [2, 3]
    # cell one-hot, name left out, wind.
    assert envs.single_observation_space.shape == (6,)
    assert emi.make_vec(NAME, observation="wind").single_observation_space.shape == (2,)


@pytest.mark.usefixtures("here")
def test_options_are_stored_in_the_config(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--env-arg", "size=7", "fails=never", "--wrapper", SCALED, "--observation", "wind"]
    assert main(["train", NAME, *options, *WORDS, "--print-config"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["env_args"] == {"size": 7, "fails": "never"}
    assert (printed["wrappers"], printed["observation"]) == ([SCALED], "wind")
    Path("mine.json").write_text(json.dumps(printed))
    trust = ["--trust", "line_of_a_user"]
    # Options override single arguments of the file.
    words = ["train", "--config", "mine.json", *trust, "--env-arg", "size=9", "--print-config"]
    assert main(words) == 0
    again = json.loads(capsys.readouterr().out)
    assert again == printed | {"env_args": {"size": 9, "fails": "never"}}


@pytest.mark.usefixtures("here")
def test_runs_with_other_arguments_are_other_runs(capsys: pytest.CaptureFixture[str]) -> None:
    plain = resolve(NAME, "simhash", SIZES)
    changed = resolve(NAME, "simhash", SIZES | {"env_args": {"size": 7}, "wrappers": [SCALED]})
    assert differences(plain, changed) == ["env_args.size", "wrappers"]
    assert changed_settings(changed) == sorted(
        [*changed_settings(plain), *differences(plain, changed)]
    )
    run(plain, "out")
    assert difference(Path("out/config.json"), changed) == "env_args.size"
    assert read_config(Path("out/config.json"), plain.modules) == plain
    # A sweep names them to its runs, in a file and in a command that can be pasted.
    (cell,) = plan(Path("sweep"), [NAME], ["simhash"], [0], dataclasses.asdict(changed))
    assert cell.arguments[-2:] == ("--trust", "line_of_a_user")
    words = shlex.split(cell.command)
    assert words[:4] == ["emi", "train", NAME, "--method"]
    assert main([*words[1:], "--print-config"]) == 0
    assert json.loads(capsys.readouterr().out)["env_args"] == {"size": 7}
    assert TrainConfig(NAME, "simhash").modules == ("line_of_a_user",)
    assert main(["report", "out", "--out", "report.html"]) == 0


def test_the_command_names_only_what_differs() -> None:
    maze = resolve("gym:PointMaze_UMaze-v3", "trpo")
    assert command_words(maze) == ["train", maze.env, "--method", "trpo", "--seed", "0"]
    other = resolve(
        maze.env, "trpo", {"env_args": {"continuing_task": True, "reward_type": "dense"}}
    )
    arguments = ["--env-arg", "continuing_task=true", "--env-arg", 'reward_type="dense"']
    assert command_words(other)[4:8] == arguments


def test_a_sweep_and_a_diagnosis(here: Path) -> None:
    """The module is found in the working directory."""
    sizes = ["steps_per_iteration=60", "num_envs=2"]
    words = ["sweep", NAME, "--methods", "simhash", "--seeds", "1", "--steps", "120"]
    for command in (
        [*words, "--env-arg", "size=3", "--wrapper", SCALED, "--set", *sizes, "--out", "out"],
        *(
            [*task, "out/gym-line_of_a_user-Line-v0/simhash/seed1", "--trust", "line_of_a_user"]
            for task in (["resume"], ["doctor", "--bonus"])
        ),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "emi", *command],
            cwd=here,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, "emi: " in done.stderr) == (0, False), done
    stored = RunDirectory(here / "out/gym-line_of_a_user-Line-v0/simhash/seed1").config
    assert json.loads(stored.read_text())["env_args"] == {"size": 3}


@pytest.mark.parametrize("place", ["init", "reset", "step"])
@pytest.mark.usefixtures("here")
def test_an_exception_of_an_environment_is_its_own(
    place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", NAME, "--env-arg", f"fails={place}", *WORDS, "--out", "out"]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1] == f"emi: the environment '{NAME}' raised RuntimeError: broken {place}"
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[-2] == f"RuntimeError: broken {place}"
    frames = [line for line in lines if line.startswith("  File")]
    assert len(frames) == 2  # the caller of `fail`, and `fail`
    assert all("line_of_a_user.py" in frame for frame in frames)
    assert Path("out").exists() == (place != "init")


@pytest.mark.usefixtures("here")
def test_an_exception_in_a_video(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", NAME, "--env-arg", "fails=render", *WORDS, "--out", "out"]) == 0
    capsys.readouterr()
    assert main(["watch", "out", "--trust", "line_of_a_user"]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1] == f"emi: {NAME} cannot be rendered: broken render"
    assert any('line_of_a_user.py", line' in line for line in lines)


@pytest.mark.usefixtures("here")
@pytest.mark.filterwarnings("ignore:.*not within the observation space")
def test_an_observation_outside_of_its_space(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", NAME, "--env-arg", "fails=look", *WORDS, "--out", "out"]) == 1
    error = capsys.readouterr().err
    assert f"emi: '{NAME}' returned an observation that is not in its space Dict(" in error
    assert error.endswith(": the observation 99 is not in Discrete(5)\n")


def test_a_bug_of_emi_is_not_blamed_on_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = Trainer(resolve("gym:CartPole-v1", "simhash", SIZES))

    def broken(obs: Any) -> None:
        raise RuntimeError("in a network")

    monkeypatch.setattr(trainer.policy, "forward", broken)
    monkeypatch.setattr(trainer.collector, "batch", broken)
    with pytest.raises(RuntimeError, match="in a network") as caught:
        trainer.iterate()
    assert not isinstance(caught.value, ForeignError)
    trainer.close()


W = "line_of_a_user"
BAD = {
    ("--env-arg", "sise=7"): f"{NAME} takes no argument 'sise': did you mean 'size'?",
    ("--env-arg", "colour=7"): f"{NAME} takes no argument 'colour': it takes size, fails",
    ("--env-arg", "size"): "--env-arg takes KEY=VALUE, got 'size'",
    ("--env-arg", "render_mode=human"): f"'render_mode' is no argument of {NAME}: emi sets it",
    ("--env-arg", "max_episode_steps=0"): "max_episode_steps must be a positive whole number",
    ("--wrapper", f"{W}:nothing"): f"'{W}:nothing' is not a wrapper: called with an environment, "
    "it returned NoneType instead of a gymnasium.Env",
    ("--wrapper", f"{W}:TEN"): f"the wrapper '{W}:TEN' is not a class: name a class or a function",
    ("--wrapper", f"{W}:Scale"): f"there is no wrapper 'Scale' in {W}: did you mean 'Scaled'?",
    ("--wrapper", f'{W}:Scaled{{"f": 2}}'): "the wrapper 'Scaled' takes no argument 'f': it takes ",
    ("--wrapper", f"{W}:Scaled{{f: 2}}"): "the arguments of the wrapper 'line_of_a_user:Scaled{f",
    ("--wrapper", f"{W}.Scaled"): "a wrapper is package.module:Class or package.module:Class{",
    (
        "--wrapper",
        "no_such_module:X",
    ): "cannot load the wrapper 'no_such_module:X': No module named "
    "'no_such_module': is it in this directory, or installed?",
    ("--wrapper", "gymnasium.wrappers.vector:ClipReward"): "the wrapper 'gymnasium.wrappers.vector:"
    "ClipReward' is for vector environments: name one for single environments",
    ("--observation", "wnd"): f"cannot use '{NAME}': the observations have no entry 'wnd': choose",
    ("--observation", "name"): f"cannot use '{NAME}': the observations Text(",
    ("--set", "env_args.size=3"): "env_args.size cannot be changed with --set: use --env-arg",
    ("--set", "wrappers=a:B"): "wrappers cannot be changed with --set: use --wrapper",
}


@pytest.mark.parametrize(("words", "sentence"), BAD.items())
@pytest.mark.usefixtures("here")
def test_wrong_options_are_one_sentence(
    words: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", NAME, *words, *WORDS, "--out", "out"]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"emi: {sentence}")
    assert error.count("\n") == 1
    assert not Path("out").exists()


@pytest.mark.usefixtures("here")
def test_what_a_wrapper_or_an_import_raises(capsys: pytest.CaptureFixture[str]) -> None:
    negative = 'line_of_a_user:Scaled{"factor": -1}'
    assert main(["train", NAME, "--wrapper", negative, *WORDS]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1] == f"emi: the wrapper '{negative}' raised ValueError: negative factor"
    assert lines[-2] == "ValueError: negative factor"
    Path("raises_of_a_user.py").write_text("1 / 0\n")
    assert main(["train", "gym:raises_of_a_user:X-v0", *WORDS]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1] == (
        "emi: cannot make 'gym:raises_of_a_user:X-v0': importing raises_of_a_user raised "
        "ZeroDivisionError: division by zero"
    )
    assert [line for line in lines if line.startswith("  File")] == [lines[1]]
    assert "raises_of_a_user.py" in lines[1]


def test_our_own_environments_take_few_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    envs = emi.make_vec("BoxImage", env_args={"max_episode_steps": 3})
    envs.reset(seed=0)
    assert [bool(envs.step(envs.action_space.sample())[3][0]) for _ in range(3)][2]
    for words, sentence in {
        ("BoxImage", "--env-arg", "max_steps=3"): "BoxImage takes no argument 'max_steps': did you",
        ("Freeway", "--env-arg", "game=Pong"): "Freeway takes no argument 'game': it takes max_epi",
        (
            "BoxImage",
            "--wrapper",
            "a:B",
        ): "wrappers need a gym: environment: use gym:emi/BoxImage-v",
        ("atari:Pong", "--wrapper", "a:B"): "wrappers need a gym: environment: use gym:emi/Atari-v0"
        " --env-arg game=Pong",
        (
            "BoxImage",
            "--observation",
            "x",
        ): "the observations Box(0, 255, (1, 52, 52), uint8) have no",
    }.items():
        assert main(["train", *words]) == 2
        assert capsys.readouterr().err.startswith(f"emi: {sentence}")
