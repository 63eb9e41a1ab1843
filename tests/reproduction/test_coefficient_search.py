"""The search for coefficients: equal budgets, the rule that chooses, the table."""

from __future__ import annotations

from pathlib import Path

import pytest
from run_files import write_run

from emi.errors import UserError
from emi.report.load import find_runs
from emi.reproduction.coefficient_search import by_method, chosen, search_table


def cell(root: Path, method: str, eta: float, *seeds: list[float]) -> None:
    for seed, returns in enumerate(seeds, 5):
        directory = root / f"{method}-{eta}-{seed}"
        write_run(directory, returns, method=method, seed=seed, eta=eta)


def test_the_best_late_return_is_chosen_and_drawn_in_bold(tmp_path: Path) -> None:
    cell(tmp_path, "rnd", 0.1, [0.0] * 20, [0.0] * 10 + [8.0] * 10)
    # Much reward early on does not count, only the last ten iterations.
    cell(tmp_path, "rnd", 0.01, [50.0] * 10 + [0.0] * 10, [3.0] * 20)
    runs = find_runs([tmp_path]).runs
    assert chosen(by_method(runs)["rnd"]) == [0.1]
    assert search_table(by_method(runs)).splitlines() == [
        "| method | η = 0.01 | η = 0.1 |",
        "| --- | ---: | ---: |",
        "| RND | 0.0, 3.0 (75%) | **0.0, 8.0 (25%)** |",
    ]


def test_among_equal_returns_rewarded_iterations_decide(tmp_path: Path) -> None:
    cell(tmp_path, "icm", 0.1, [1.0] * 5 + [0.0] * 15)
    cell(tmp_path, "icm", 0.01, [9.0] * 2 + [0.0] * 18)
    assert chosen(by_method(find_runs([tmp_path]).runs)["icm"]) == [0.1]


def test_trials_with_the_same_score_are_all_chosen(tmp_path: Path) -> None:
    for eta in (0.1, 0.01):
        cell(tmp_path, "icm", eta, [0.0] * 20)
    assert chosen(by_method(find_runs([tmp_path]).runs)["icm"]) == [0.01, 0.1]


def test_unequal_budgets_are_refused(tmp_path: Path) -> None:
    cell(tmp_path, "icm", 0.1, [0.0] * 20, [0.0] * 20)
    cell(tmp_path, "rnd", 0.1, [0.0] * 20)
    with pytest.raises(UserError, match="rnd and icm were searched with different"):
        by_method(find_runs([tmp_path]).runs)


def test_a_coefficient_without_a_finished_episode_is_the_worst(tmp_path: Path) -> None:
    cell(tmp_path, "icm", 0.1, [float("nan")] * 20)
    cell(tmp_path, "icm", 0.01, [-5.0] * 20)
    assert chosen(by_method(find_runs([tmp_path]).runs)["icm"]) == [0.01]
