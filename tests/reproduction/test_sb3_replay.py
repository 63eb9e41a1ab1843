"""SAC and DQN with and without a bonus: the arms, their rows, their files and their tables."""

from pathlib import Path
from typing import Any

import pytest

from emi.errors import UserError
from emi.reproduction import sb3_replay as bench
from emi.reproduction import sb3_success
from emi.reproduction.experiment import Budget, find
from emi.reproduction.sb3_success import EpisodeEnd


def runs_of(made: bench.Bench, finals: dict[tuple[str, int], float]) -> dict[Any, Any]:
    runs = {}
    for (arm, seed), final in finals.items():
        found = [EpisodeEnd(100 * k, final, int(final > made.failed)) for k in range(1, 22)]
        row = sb3_success.summarise_run(arm, seed, 2_100, found, 12.34, made.task)
        runs[arm, seed] = (row, found)
    return runs


LAKE = runs_of(bench.DQN, {("dqn", 0): 0.0, ("dqn-emi", 0): 1.0, ("dqn-emi", 1): 0.4})


def test_rows_by_hand() -> None:
    assert LAKE["dqn", 0][0] == ("dqn", 0, 2_100, 21, 0.0, 0, 0.0, None, 12.3)
    assert LAKE["dqn-emi", 0][0] == ("dqn-emi", 0, 2_100, 21, 1.0, 1, 1.0, 100, 12.3)
    assert LAKE["dqn-emi", 1][0].solved == 0
    assert LAKE["dqn-emi", 1][0].reached == 1.0


def test_the_table_by_hand() -> None:
    lines = sb3_success.table(LAKE, bench.DQN.task).splitlines()
    assert lines[0].startswith(
        "FrozenLake 8×8 without holes, mean return of the last 100 training episodes"
    )
    assert "solved (> 0.5) [95 % CI] | episodes at the goal" in lines[2]
    # Wilson's interval of 1 of 2.
    assert "| DQN + EMI | 2 | 2,100 | 0.70 [0.40, 1.00] | 1/2 [0.09, 0.91] |" in lines[-1]
    assert "first at the goal, median steps (seeds)" in lines[2]
    assert "| 0% | – | 12 |" in lines[-2]
    assert "| 100% | 100 (2/2) | 12 |" in lines[-1]


def test_an_episode_of_the_lake_is_as_long_as_the_shortest_path() -> None:
    env = bench.DQN.make()
    assert env.reset(seed=0)[0].tolist() == [1] + 63 * [0]
    ends = [env.step(action)[1:4] for action in 7 * [1] + 7 * [2]]  # down, then right
    assert ends == 13 * [(0, False, False)] + [(1, True, True)]


def test_both_arms_have_the_settings_of_the_bench() -> None:
    assert dict(bench.DQN.settings) == {"target_update_interval": 500}
    assert bench.SAC.settings == bench.SAC_DECAY.settings == {}  # SB3's defaults


@pytest.mark.parametrize("name", bench.BENCHES)
def test_files_come_back_and_are_drawn(name: str, tmp_path: Path) -> None:
    made = bench.BENCHES[name]
    runs = runs_of(made, dict.fromkeys(made.cells[:2], 93.0))
    sb3_success.save(tmp_path / name, runs, made.task)
    assert sb3_success.load(tmp_path / name, made.task) == runs
    with pytest.raises(UserError, match=r"damaged \(an unknown arm.*\): run sb3_success again"):
        sb3_success.load(tmp_path / name)  # the files of another experiment
    (experiment,) = (
        e
        for e in (bench.SAC_EXPERIMENT, bench.SAC_DECAY_EXPERIMENT, bench.DQN_EXPERIMENT)
        if e.name == made.task.folder
    )
    figure, page = experiment.draw(find(experiment, tmp_path), tmp_path / "out" / name)
    assert figure.stat().st_size > 2_000
    assert f"**SCALED: 2,100 of {made.task.steps:,} steps**" in page.read_text()
    assert experiment.maker is not None
    left = experiment.maker.lacking(tmp_path, Budget(scale=0.001))
    assert left == list(made.cells[2:])  # seed by seed
    assert experiment.maker.merge(tmp_path, tmp_path / "results") == [
        tmp_path / "results" / name / file for file in ("runs.csv", "curves.csv.gz")
    ]
    assert experiment.maker.sizes(tmp_path / "results") == dict.fromkeys(made.cells[:2], 2_100)


@pytest.mark.parametrize("name", bench.BENCHES)
def test_every_arm_trains(name: str) -> None:
    made = bench.BENCHES[name]
    small = {"policy_kwargs": {"net_arch": [8]}, "batch_size": 8, "train_freq": 50}
    for arm in made.task.titles:
        found = bench.train(made, arm, 0, 1_100, **small)
        assert 1 <= len(found) <= 1_100 // 14
        assert all(episode.reached == (episode.total > made.failed) for episode in found)
