"""Summaries of groups and their tables, with numbers computed by hand."""

import math
from pathlib import Path

from run_files import write_run

from emi.report.load import Run, load_run
from emi.report.reference import Reference
from emi.report.summary import Estimate, Summary, summarise
from emi.report.tables import csv_row, estimate, return_table, write_csv

CHEETAH = Reference(
    "paper", {"emi": 218.1, "trpo": 0.0}, steps=5_000_000, decimals=1, solved_above=50.0
)
SWIMMER = Reference("paper", {"emi": 0.438}, steps=100_000_000, decimals=3)


def finished_run(directory: Path, method: str, seed: int, final: float) -> Run:
    return load_run(write_run(directory, [0.0] * 9 + [final], method=method, seed=seed))


def summarise_method(runs: list[Run], reference: Reference) -> Summary:
    return summarise(runs, reference, reference_value=reference.returns.get(runs[0].method))


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_every_column_by_hand(tmp_path: Path) -> None:
    finals = [0.0, 50.0, 51.0, 300.0]
    runs = [finished_run(tmp_path / f"{k}", "emi", k, final) for k, final in enumerate(finals)]
    trpo = [finished_run(tmp_path / "trpo", "trpo", 0, 0.0)]
    rows = [summarise_method(group, CHEETAH) for group in (runs, trpo)]
    header, _, emi, plain = return_table(rows, CHEETAH).splitlines()
    assert cells(header) == [
        "method",
        "seeds",
        "final return, mean [95 % CI]",
        "IQM [95 % CI]",
        "mean of the last 10 iterations",
        "solved (> 50) [95 % CI]",
        "first reward, median steps (seeds that met one)",
        "paper, at 5M steps",
    ]
    row = cells(emi)
    assert row[:2] == ["EMI", "4"]
    assert row[2].startswith("100.2 [")  # 401 / 4
    assert row[3].startswith("50.5 [")
    assert row[4:6] == ["10.0", "2/4 [0.15, 0.85]"]
    # Three of four met a reward, in their tenth and last iteration of 5,000 steps.
    assert row[6:] == ["0.05M (3/4)", "218.1"]
    solved = "0/1 [0.00, 0.79]"
    assert cells(plain) == ["TRPO", "1", "0.0", "0.0", "0.0", solved, "– (0/1)", "0.0"]


def test_the_iqm_has_an_interval_of_its_own(tmp_path: Path) -> None:
    finals = [10.0, 10.0, 10.0, 10.0, 10.0, 10.0, 10.0, 1000.0]
    runs = [finished_run(tmp_path / f"{k}", "emi", k, final) for k, final in enumerate(finals)]
    row = summarise(runs, CHEETAH)
    assert row.iqm is not None
    assert row.mean is not None
    assert row.iqm.value == 10
    assert row.mean.value == 133.75
    assert row.iqm.low == 10
    assert row.iqm.high < row.mean.high


def test_a_variant_has_its_own_label_and_number(tmp_path: Path) -> None:
    runs = [finished_run(tmp_path / "run", "emi", 0, 1.0)]
    variant = summarise(runs, CHEETAH, label="no error model")
    row = cells(return_table([variant], CHEETAH).splitlines()[2])
    assert (row[0], row[-1]) == ("no error model", "–")
    whole = summarise(runs, CHEETAH, label="EMI", reference_value=7.0)
    assert cells(return_table([whole], CHEETAH).splitlines()[2])[-1] == "7.0"


def test_a_method_without_a_published_return_gets_a_dash(tmp_path: Path) -> None:
    runs = [finished_run(tmp_path / "run", "emi-d", 0, 1.0)]
    table = return_table([summarise_method(runs, CHEETAH)], CHEETAH)
    assert cells(table.splitlines()[2])[-1] == "–"


def test_without_a_reference_there_is_no_solve_rate_and_no_published_return(
    tmp_path: Path,
) -> None:
    run = load_run(write_run(tmp_path / "run", [1.0] * 10, env="gym:Ant-v5"))
    header, _, row = return_table([summarise_method([run], Reference())], Reference()).splitlines()
    assert "solved" not in header
    assert len(cells(header)) == len(cells(row)) == 6
    assert cells(header)[-1].startswith("first reward")
    assert cells(row)[2] == "1.0"


def test_unfinished_runs_are_listed_below_the_table(tmp_path: Path) -> None:
    run = load_run(write_run(tmp_path / "run", [1.0], seed=3, iterations=2))
    table = return_table([summarise_method([run], CHEETAH)], CHEETAH)
    assert "Not finished: emi, seed 3, 5000 of 10000 steps." in table


def test_small_returns_have_the_decimals_they_need(tmp_path: Path) -> None:
    run = load_run(write_run(tmp_path / "run", [0.0625] * 10, env="SwimmerGather"))
    header, _, row = return_table([summarise_method([run], SWIMMER)], SWIMMER).splitlines()
    assert cells(header)[-1] == "paper, at 100M steps"
    assert (cells(row)[2], cells(row)[-1]) == ("0.062", "0.438")


def test_one_run_has_no_interval(tmp_path: Path) -> None:
    """Resampled from itself it would have one of width 0, as if it were certain."""
    row = summarise([finished_run(tmp_path / "run", "emi", 0, 12.5)], CHEETAH)
    assert cells(return_table([row], CHEETAH).splitlines()[2])[2:4] == ["12.5", "12.5"]
    names = ("mean_low", "mean_high", "iqm_low", "iqm_high")
    assert [csv_row(row)[name] for name in names] == [None] * 4
    assert estimate(Estimate(1.25, 1.0, 2.0), runs=2, decimals=2) == "1.25 [1.00, 2.00]"


def test_numbers_as_csv(tmp_path: Path) -> None:
    runs = [
        finished_run(tmp_path / f"{k}", "emi", k, final) for k, final in enumerate([0.0, 100 / 3])
    ]
    path = write_csv(tmp_path / "out" / "table", [csv_row(summarise(runs, CHEETAH))])
    assert path.name == "table.csv"
    names, values = (line.split(",") for line in path.read_text().splitlines())
    row = dict(zip(names, values, strict=True))
    assert (row["env"], row["method"], row["seeds"], row["steps"]) == (
        "SparseHalfCheetah",
        "EMI",
        "2",
        "50000",
    )
    assert (row["mean"], row["mean_low"], row["mean_high"]) == ("16.6667", "0", "33.3333")
    assert (row["solved"], row["first_reward_median"], row["reference"]) == ("0", "50000", "")


class TestRunsWithoutAFinishedEpisode:
    def test_they_are_in_no_statistic_of_returns(self, tmp_path: Path) -> None:
        runs = [
            load_run(write_run(tmp_path / "no", [math.nan] * 3, method="trpo", seed=1)),
            *(finished_run(tmp_path / f"{k}", "trpo", k, 60.0 * k) for k in (0, 2)),
        ]
        row = summarise_method(runs, CHEETAH)
        assert row.seeds == 3
        assert row.finals.tolist() == [0.0, 120.0]
        assert row.mean is not None
        assert row.mean.value == 60.0
        table = return_table([row], CHEETAH)
        line = cells(table.splitlines()[2])
        assert line[1] == "3"
        assert line[2].startswith("60.0 [0.0, 120.0]")
        assert line[5].startswith("1/2 [")
        assert line[6] == "0.05M (1/3)"  # one of two that lasted that long
        assert table.endswith("\n\nNo finished episode: trpo, seed 1.\n")

    def test_a_group_of_them_has_no_return(self, tmp_path: Path) -> None:
        runs = [
            load_run(write_run(tmp_path / "no", [math.nan] * 3)),
            load_run(write_run(tmp_path / "new", [], seed=1, iterations=3)),
        ]
        row = summarise_method(runs, CHEETAH)
        line = cells(return_table([row], CHEETAH).splitlines()[2])
        assert line == ["EMI", "2", "–", "–", "–", "–", "– (0/1)", "218.1"]
        numbers = csv_row(row)
        assert (numbers["seeds"], numbers["mean"], numbers["late_mean"]) == (2, None, None)
