"""DoorKey-8x8 by PPO: observations, the order of the runs, the table and the figure."""

from pathlib import Path

import numpy as np

from emi.reproduction import door_key, ppo_runs
from emi.reproduction.experiment import find
from emi.reproduction.ppo_runs import PPORow


def row(arm: str, seed: int, final: float, first: int | None) -> PPORow:
    curve = " ".join(["0"] * 10 + ["100"] * 10)
    return PPORow(arm, seed, 150_000, 300, 1.0, final, first, 0.0, 0, 90.0, curve)


RUNS = {
    (r.arm, r.seed): r
    for r in (
        row("ppo", 0, 0.02, None),
        row("noveld", 0, 0.95, 20_000),
        row("noveld", 1, 0.85, 40_000),
    )
}


def test_cells_are_one_hot() -> None:
    env = door_key.TASK.make()
    obs, _ = env.reset(seed=0)
    assert env.observation_space.contains(obs)
    assert obs.shape == (7 * 7 * 20,)
    # 49 cells, each with one object, one colour and one state.
    assert obs.sum() == 3 * 49
    assert set(np.unique(obs)) == {0.0, 1.0}
    env.close()


def test_the_question_is_answered_first() -> None:
    assert set(door_key.CELLS[:10]) == {(a, s) for a in ("ppo", "noveld") for s in range(5)}
    assert len(set(door_key.CELLS)) == len(door_key.CELLS) == 5 * len(door_key.ARMS)


def test_the_table_by_hand() -> None:
    lines = door_key.table(RUNS).splitlines()
    assert "| PPO | 1 | 0.020 | 0.020 | 0/1 [0.00, 0.79] | – |" in lines
    # 0.95 and 0.85: one of two is solved, first at the goal after 20,000 and 40,000 steps.
    assert (
        "| PPO + NovelD | 2 | 0.900 [0.850, 0.950] | 0.850 | 1/2 [0.09, 0.91] | 30,000 |" in lines
    )


def test_what_there_is_is_drawn(tmp_path: Path) -> None:
    ppo_runs.save(tmp_path / door_key.FOLDER, RUNS, door_key.ARMS)
    found = find(door_key.EXPERIMENT, tmp_path)
    figure, page = door_key.EXPERIMENT.draw(found, tmp_path / "out")
    assert figure.read_bytes()[:4] == b"\x89PNG"
    assert "SCALED" not in page.read_text(encoding="utf-8")
    assert ppo_runs.load(tmp_path / door_key.FOLDER, door_key.ARMS) == RUNS
