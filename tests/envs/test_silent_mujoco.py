"""MuJoCo's warnings reach neither the terminal nor a file."""

import os
import subprocess
import sys
from pathlib import Path

import mujoco
import numpy as np
import pytest

import emi
from emi.envs.silent_mujoco import silence
from emi.errors import NotFiniteError
from emi.training.presets import resolve
from emi.training.trainer import Trainer


def run(code: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(Path(emi.__file__).parents[1])}
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("name", "num_envs"),
    [("SparseHalfCheetah", 1), ("SparseHalfCheetah", 64), ("SwimmerGather", 4)],
)
def test_an_unstable_simulation(name: str, num_envs: int, tmp_path: Path) -> None:
    done = run(
        "import emi, numpy as np\n"
        f"env = emi.make_vec({name!r}, {num_envs}, seed=0, threads=2)\n"
        "env._state[0, 1:] = 1e12\n"
        "for _ in range(3):\n    obs = env.step(env.action_space.sample())[0]\n"
        "print(np.isfinite(obs[0]).all(), np.isfinite(obs[1:]).all())",
        tmp_path,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "False True\n", "")
    assert not any(tmp_path.iterdir())


def test_a_model_of_gymnasium(tmp_path: Path) -> None:
    done = run("import emi; emi.make_vec('gym:HalfCheetah-v5')", tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not any(tmp_path.iterdir())


def test_training_stops_with_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"steps": 40, "steps_per_iteration": 20, "num_envs": 2, "threads": 1}
    trainer = Trainer(resolve("SwimmerGather", "trpo", sizes))
    monkeypatch.setattr("emi.envs.mujoco_env.POSITION_NOISE", 1e12)
    monkeypatch.setattr("emi.envs.mujoco_env.VELOCITY_NOISE", 1e12)
    with pytest.raises(NotFiniteError, match=r"observation became (NaN|infinite)"):
        trainer.iterate()
    trainer.close()


def test_a_handler_of_the_program_is_kept() -> None:
    before = mujoco.get_mju_user_warning()
    seen: list[str] = []
    try:
        mujoco.set_mju_user_warning(seen.append)
        silence()
        model = mujoco.MjModel.from_xml_string(
            "<mujoco><worldbody><body><freejoint/><geom size='1'/></body></worldbody></mujoco>"
        )
        data = mujoco.MjData(model)
        data.qvel[:] = np.inf
        mujoco.mj_step(model, data)
    finally:
        mujoco.set_mju_user_warning(before)
    assert "Nan, Inf or huge value in QVEL" in seen[0]
