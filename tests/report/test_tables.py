from pathlib import Path

from run_files import write_run

from emi.envs import ENVIRONMENTS
from emi.report.load import Run, load_run
from emi.reproduction.paper_values import METHOD_ORDER, PAPER, TITLES
from emi.report.statistics import Interval
from emi.report.tables import (
    csv_row,
    estimate,
    return_table,
    summarise,
    summarise_method,
    write_csv,
)


def finished_run(directory: Path, method: str, seed: int, final: float) -> Run:
    return load_run(write_run(directory, [0.0] * 9 + [final], method=method, seed=seed))


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_every_column_by_hand(tmp_path: Path) -> None:
    finals = [0.0, 50.0, 51.0, 300.0]
    runs = [finished_run(tmp_path / f"{k}", "emi", k, final) for k, final in enumerate(finals)]
    trpo = [finished_run(tmp_path / "trpo", "trpo", 0, 0.0)]
    header, _, emi, plain = return_table(
        [summarise_method(runs), summarise_method(trpo)]
    ).splitlines()
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
    row = summarise(runs)
    assert row.iqm == 10
    assert row.mean == 133.75
    assert row.iqm_interval.low == 10
    assert row.iqm_interval.high < row.mean_interval.high


def test_a_variant_has_its_own_label_and_number(tmp_path: Path) -> None:
    runs = [finished_run(tmp_path / "run", "emi", 0, 1.0)]
    row = cells(return_table([summarise(runs, label="no error model")]).splitlines()[2])
    assert (row[0], row[-1]) == ("no error model", "–")
    row = cells(return_table([summarise(runs, label="EMI", paper=7.0)]).splitlines()[2])
    assert row[-1] == "7.0"


def test_a_method_without_a_number_in_the_paper_gets_a_dash(tmp_path: Path) -> None:
    runs = [finished_run(tmp_path / "run", "emi-d", 0, 1.0)]
    assert cells(return_table([summarise_method(runs)]).splitlines()[2])[-1] == "–"


def test_an_unknown_environment_has_no_solve_rate(tmp_path: Path) -> None:
    run = load_run(write_run(tmp_path / "run", [1.0] * 10, env="gym:Ant-v5"))
    header, _, row = return_table([summarise_method([run])]).splitlines()
    assert "solved" not in header
    assert len(cells(header)) == len(cells(row)) == 7
    assert (cells(header)[-1], cells(row)[-1]) == ("paper", "–")


def test_unfinished_runs_are_named_below_the_table(tmp_path: Path) -> None:
    run = load_run(write_run(tmp_path / "run", [1.0], seed=3, iterations=2))
    table = return_table([summarise_method([run])])
    assert "Not finished: emi, seed 3, 5000 of 10000 steps." in table


def test_small_returns_have_the_decimals_they_need(tmp_path: Path) -> None:
    run = load_run(write_run(tmp_path / "run", [0.0625] * 10, env="SwimmerGather"))
    header, _, row = return_table([summarise_method([run])]).splitlines()
    assert cells(header)[-1] == "paper, at 100M steps"
    assert (cells(row)[2], cells(row)[-1]) == ("0.062", "0.438")


def test_one_run_has_no_interval(tmp_path: Path) -> None:
    """Redrawn from itself it would have one of width 0, as if it were certain."""
    row = summarise([finished_run(tmp_path / "run", "emi", 0, 12.5)])
    assert cells(return_table([row]).splitlines()[2])[2:4] == ["12.5", "12.5"]
    names = ("mean_low", "mean_high", "iqm_low", "iqm_high")
    assert [csv_row(row)[name] for name in names] == [None] * 4
    assert estimate(1.25, Interval(1.0, 2.0), runs=2, decimals=2) == "1.25 [1.00, 2.00]"


def test_numbers_for_machines(tmp_path: Path) -> None:
    runs = [
        finished_run(tmp_path / f"{k}", "emi", k, final) for k, final in enumerate([0.0, 100 / 3])
    ]
    path = write_csv(tmp_path / "out" / "table.csv", [csv_row(summarise(runs))])
    names, values = (line.split(",") for line in path.read_text().splitlines())
    row = dict(zip(names, values, strict=True))
    assert (row["env"], row["method"], row["seeds"], row["steps"]) == (
        "SparseHalfCheetah",
        "EMI",
        "2",
        "50000",
    )
    assert (row["mean"], row["mean_low"], row["mean_high"]) == ("16.6667", "0", "33.3333")
    assert (row["solved"], row["first_reward_median"], row["paper"]) == ("0", "50000", "")


def test_the_papers_values_have_an_order_and_a_title() -> None:
    assert set(METHOD_ORDER) == set(TITLES)
    assert PAPER["SparseHalfCheetah"].returns == {
        "emi": 218.1,
        "ex2": 153.7,
        "icm": 1.4,
        "rnd": 3.4,
        "ae-simhash": 0.5,
        "simhash": 0.5,
        "vime": 98.0,
        "trpo": 0.0,
    }
    # Table 1, its last column but for AE-SimHash's and VIME's, and its best numbers.
    assert [PAPER[env].returns["trpo"] for env in PAPER] == [0, 0, 26.7, 2034, 263, 508, 3101, 0]
    best = {
        env: max(values.returns, key=values.returns.__getitem__) for env, values in PAPER.items()
    }
    assert best == {
        **dict.fromkeys(PAPER, "emi"),
        "Venture": "rnd",
        "Solaris": "ae-simhash",
    }
    assert set(PAPER) == set(ENVIRONMENTS) - {"BoxImage"}
