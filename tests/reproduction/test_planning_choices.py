"""The study of choices for planning: variants, file and table."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from emi.errors import UserError
from emi.reproduction import planning, planning_choices
from emi.reproduction.experiment import Budget, find
from emi.reproduction.planning_choices import (
    CELLS,
    EXPERIMENT,
    REFERENCE,
    STUDIES,
    Choice,
    PlanningMeasure,
    load,
    make,
    save,
    sizes,
    table,
    trained,
    untrained_data,
)

SMALL = {"steps_per_iteration": 1_000}


def test_every_choice_differs_from_the_reference_in_one_thing() -> None:
    reference = Choice("")
    for study in STUDIES.values():
        for title, choice in study.choices.items():
            plain = replace(choice, title="")
            fields = ("settings", "passes", "even", "untrained")
            differ = [name for name in fields if getattr(plain, name) != getattr(reference, name)]
            assert len(differ) == (title != REFERENCE)
            assert len(choice.settings) <= 1


def test_the_reference_is_the_task_s_own_setting() -> None:
    for study, d in (("BoxImage", 2), ("PointMaze", 8)):
        config = planning_choices.config_of(STUDIES[study].task, 0, 1).intrinsic
        assert config.embedding_dim == d
        titles = STUDIES[study].choices
        assert f"d = {d}" not in titles
        assert f"λ_error = {config.lambda_error:g}" not in titles


def test_an_untrained_policy_stays_as_it_is() -> None:
    task = replace(planning.POINT_MAZE, settings=planning.POINT_MAZE.settings | SMALL)
    first, second = (untrained_data(task, 0, steps) for steps in (1_000, 2_000))
    np.testing.assert_array_equal(np.asarray(first.action), np.asarray(second.action)[:1_000])
    assert len(second) == 2_000


def test_passes_and_settings_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    task = replace(planning.POINT_MAZE, settings=planning.POINT_MAZE.settings | SMALL)
    study = replace(STUDIES["PointMaze"], task=task)
    data = untrained_data(task, 0, 1_000)
    learned: list[int] = []
    plain = planning_choices.EMI.learn

    def learn(self: planning_choices.EMI, batch: object) -> dict[str, float]:
        learned.append(len(batch))  # type: ignore[arg-type]
        return plain(self, batch)  # type: ignore[arg-type]

    monkeypatch.setattr(planning_choices.EMI, "learn", learn)
    emi = trained(study, Choice("", {"embedding_dim": 4}, passes=3), data, 0)
    assert emi.config.embedding_dim == 4
    assert learned == [1_000] * 3
    some = replace(study, rows=600)
    trained(some, Choice("", passes=1, even=False), data, 0)
    trained(some, Choice("", passes=1), data, 0)
    assert learned[3:] == [600, 600]


def test_run_and_draw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = replace(
        planning.POINT_MAZE, pairs=2, limit=3, settings=planning.POINT_MAZE.settings | SMALL
    )
    maze = replace(STUDIES["PointMaze"], task=task)
    monkeypatch.setitem(planning_choices.STUDIES, "PointMaze", maze)
    monkeypatch.setattr(planning, "KEPT", 500)
    cells = [("PointMaze/1 pass", 1), ("PointMaze/data of an untrained policy", 1)]
    make(tmp_path, cells, 2_000, Budget())
    assert sizes(tmp_path) == dict.fromkeys(cells, 2_000)
    assert all(row.in_time == -1 and 0 <= row.reached <= 1 for row in load(tmp_path).values())
    written = EXPERIMENT.draw(find(EXPERIMENT, tmp_path), tmp_path / "out" / "planning_choices")
    assert [path.suffix for path in written] == [".png", ".md"]
    text = written[1].read_text(encoding="utf-8")
    assert "**SCALED: 2,000 of 100,000 steps**" in text
    assert "The reference has d = 8, λ_error = 0.1, 4 passes of all rows." in text


def test_the_table_has_means(tmp_path: Path) -> None:
    rows = {
        ("BoxImage/d = 4", seed): PlanningMeasure(
            "BoxImage", "d = 4", seed, 100_000, 0.5 + seed / 4, 0.25
        )
        for seed in range(2)
    }
    save(tmp_path, rows)
    assert load(tmp_path) == rows
    assert "| d = 4 | 2 | 0.625 [0.500, 0.750] | 0.250 [0.250, 0.250] |" in table(rows, "BoxImage")
    assert len(CELLS) == 3 * sum(len(study.choices) for study in STUDIES.values())


@pytest.mark.parametrize("line", ["BoxImage,d = 5,0,1,1,1", "BoxImage,d = 4,0,1,nan,1", "x"])
def test_a_damaged_file_is_one_sentence(tmp_path: Path, line: str) -> None:
    save(tmp_path, {})
    path = tmp_path / planning_choices.FILE
    path.write_text(f"{','.join(PlanningMeasure._fields)}\n{line}\n")
    with pytest.raises(UserError, match=r"is damaged .*: run planning_choices again"):
        load(tmp_path)
