"""PPO with and without a bonus: the rows of a run, its files, its table and its figure."""

from pathlib import Path
from typing import Any

import pytest

from emi.errors import UserError
from emi.reproduction import sb3_success as bench
from emi.reproduction.experiment import Budget, find


def episodes(*totals: float) -> list[Any]:
    """An episode every 100 steps, at the flag if it pays."""
    return [
        bench.EpisodeEnd(100 * k, total, int(total > 0)) for k, total in enumerate(totals, start=1)
    ]


def runs_of(finals: dict[tuple[str, int], float]) -> dict[Any, Any]:
    runs = {}
    for (arm, seed), final in finals.items():
        found = episodes(-50.0, *[final] * 20)
        runs[arm, seed] = (bench.summarise_run(arm, seed, 3_000, found, 12.34), found)
    return runs


TWO = runs_of({("ppo", 0): -1.5, ("ppo", 1): -0.5, ("emi", 0): 93.25, ("emi", 1): 91.75})


def test_a_row_by_hand() -> None:
    found = episodes(-40.0, *[80.0] * 10, *[92.0] * 20)
    row = bench.summarise_run("emi", 3, 5_000, found, 1.26)
    assert row == ("emi", 3, 5_000, 31, 92.0, 1, round(30 / 31, 4), 200, 1.3)
    lazy = bench.summarise_run("ppo", 3, 5_000, episodes(*[-0.1] * 5), 1.0)
    assert (lazy.final_return, lazy.solved, lazy.reached, lazy.first_reached) == (
        -0.1,
        0,
        0.0,
        None,
    )
    with pytest.raises(UserError, match="no episode ended in 10 steps"):
        bench.summarise_run("ppo", 0, 10, [], 1.0)


def test_files_come_back_and_are_the_same_bytes_for_the_same_runs(tmp_path: Path) -> None:
    assert bench.load(tmp_path) == {}
    bench.save(tmp_path / "a", TWO)
    assert bench.load(tmp_path / "a") == TWO
    bench.save(tmp_path / "b", dict(reversed(TWO.items())))
    for name in ("runs.csv", "curves.csv.gz"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    lines = (tmp_path / "a" / "runs.csv").read_text().splitlines()
    assert lines[0].startswith("arm,seed,steps,episodes,final_return,solved,reached")
    assert lines[1] == "ppo,0,3000,21,-1.5,0,0.0,,12.3"
    assert lines[3] == "emi,0,3000,21,93.25,1,0.9524,200,12.3"


MAKER = bench.EXPERIMENT.maker
assert MAKER is not None


def test_existing_runs_are_not_repeated(tmp_path: Path) -> None:
    assert MAKER is not None
    more = runs_of({("emi-standardised", 0): 93.0, ("emi-recipe", 0): 93.0})
    bench.save(tmp_path / "sb3_success", TWO | more)
    small = MAKER.lacking(tmp_path, Budget(scale=0.001))
    assert small[:2] == [("emi-standardised", 1), ("emi-recipe", 1)]
    assert small[2] == ("ppo", 2)  # seed by seed
    assert len(small) == 2 + 4 * 3
    assert MAKER.lacking(tmp_path, Budget(seeds=(0,), scale=0.001)) == []
    assert len(MAKER.lacking(tmp_path, Budget(seeds=(0,)))) == 4  # those have fewer steps


def test_runs_that_another_folder_lacks_are_copied(tmp_path: Path) -> None:
    assert MAKER is not None
    runs, results = tmp_path / "runs", tmp_path / "results"
    longer = {cell: (row._replace(steps=9_000), found) for cell, (row, found) in TWO.items()}
    bench.save(runs / "sb3_success", {("ppo", 0): longer["ppo", 0], ("emi", 1): TWO["emi", 1]})
    bench.save(results / "sb3_success", {("ppo", 0): TWO["ppo", 0], ("emi", 0): longer["emi", 0]})
    files = ["runs.csv", "curves.csv.gz"]
    assert MAKER.merge(runs, results) == [results / "sb3_success" / name for name in files]
    assert bench.load(results / "sb3_success") == {
        ("ppo", 0): longer["ppo", 0],
        ("emi", 0): longer["emi", 0],
        ("emi", 1): TWO["emi", 1],
    }
    assert MAKER.merge(runs, results) == []


def test_the_table_by_hand() -> None:
    lines = bench.table(TWO).splitlines()
    # Wilson's interval of 0 of 2 and of 2 of 2.
    assert lines[-2] == "| PPO | 2 | 3,000 | -1.0 [-1.5, -0.5] | 0/2 [0.00, 0.66] | 0% | 12 |"
    emi = "| PPO + EMI, raw | 2 | 3,000 | 92.5 [91.8, 93.2] | 2/2 [0.34, 1.00] |"
    assert lines[-1] == f"{emi} 95% | 12 |"


def test_a_curve_is_the_mean_of_the_last_twenty() -> None:
    steps, means = bench.smooth(episodes(*map(float, range(30))))
    assert steps.tolist() == [100.0 * k for k in range(1, 31)]
    assert means[[0, 4, 19, 29]].tolist() == [0.0, 2.0, 9.5, 19.5]
    together = [
        bench.EpisodeEnd(100, 1.0, 1),
        bench.EpisodeEnd(100, 3.0, 1),
        bench.EpisodeEnd(200, 5.0, 1),
    ]
    steps, means = bench.smooth(together)
    assert (steps.tolist(), means.tolist()) == ([100.0, 200.0], [2.0, 3.0])


def test_drawing_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    bench.save(tmp_path / "sb3_success", TWO)
    found = find(bench.EXPERIMENT, tmp_path)
    assert found.missing_files == ()
    first, second = (bench.draw(found, tmp_path / out / "sb3_success") for out in ("one", "two"))
    assert [path.suffix for path in first] == [".png", ".md"]
    for one, two in zip(first, second, strict=True):
        assert one.read_bytes() == two.read_bytes()
        assert len(one.read_bytes()) > 200
    page = first[1].read_text()
    assert bench.table(TWO) in page
    assert "**SCALED: 3,000 of 200,000 steps**" in page


def test_a_table_without_a_row_cannot_be_drawn(tmp_path: Path) -> None:
    bench.save(tmp_path / "sb3_success", {})
    with pytest.raises(UserError, match=r"runs\.csv holds no run"):
        bench.draw(find(bench.EXPERIMENT, tmp_path), tmp_path / "out")


def test_scaled_steps() -> None:
    assert MAKER is not None
    scales = (1.0, 0.1, 0.0001)
    assert [MAKER.asked(Budget(scale=scale)) for scale in scales] == [200_000, 20_000, 3_000]


@pytest.mark.parametrize("arm", list(bench.TITLES))
def test_every_arm_trains(arm: str) -> None:
    found = bench.train(arm, 0, 2_000, n_steps=1_000, batch_size=1_000, n_epochs=1)
    assert 2 <= len(found) <= 4  # the car has 999 steps, and twice as many have been taken
    assert all(episode.steps <= 2_000 and episode.total < 100 for episode in found)
    assert all(episode.reached == (episode.total > 0) for episode in found)


def test_damaged_files_are_named(tmp_path: Path) -> None:
    bench.save(tmp_path / "sb3_success", TWO)
    curves = tmp_path / "sb3_success" / "curves.csv.gz"
    curves.write_bytes(curves.read_bytes()[:-9])
    with pytest.raises(UserError, match=r"sb3_success is damaged \("):
        bench.sizes(tmp_path)


def test_a_run_without_a_number_is_damaged(tmp_path: Path) -> None:
    bench.save(tmp_path / "sb3_success", TWO)
    rows = tmp_path / "sb3_success" / "runs.csv"
    rows.write_text(rows.read_text().rpartition(",")[0] + ",\n")  # the last cell, the seconds
    with pytest.raises(UserError, match=r"sb3_success is damaged \(a number is missing\)"):
        bench.sizes(tmp_path)
