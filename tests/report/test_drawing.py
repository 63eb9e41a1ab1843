"""The two commands of `python -m emi.report`, from run directories to figure and table."""

import json
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from run_files import write_run

from emi.report import curves
from emi.report.__main__ import main
from emi.report.load import load_runs


@pytest.fixture
def results(tmp_path: Path) -> Path:
    rise = np.linspace(0, 280, 20)
    runs = [
        write_run(tmp_path / "runs" / f"{method}{seed}", gain * rise, method=method, seed=seed)
        for method, gain in (("trpo", 0.0), ("vime", 0.5), ("emi", 1.0), ("emi-d", 0.1))
        for seed in range(3)
    ]
    experiment = tmp_path / "results" / "sparse_half_cheetah"
    assert main(["collect", *map(str, runs), "--into", str(experiment)]) == 0
    return experiment


def test_draw_writes_figure_and_table_in_the_papers_order(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    out = tmp_path / "out"
    assert main(["draw", str(results), "--out", str(out)]) == 0
    names = ["learning_curves.png", "learning_curves.svg", "table.md"]
    assert capsys.readouterr().out.split() == [str(out / name) for name in names]
    assert (out / names[0]).read_bytes().startswith(b"\x89PNG")
    table = (out / "table.md").read_text().splitlines()
    assert table[0] == "**SparseHalfCheetah, 0.1M steps**"
    methods = [line.split(" | ")[0].removeprefix("| ") for line in table[4:]]
    assert methods == ["EMI", "EMI-D", "VIME", "TRPO"]


def test_drawing_twice_gives_the_same_bytes(results: Path, tmp_path: Path) -> None:
    for out in ("first", "second"):
        assert main(["draw", str(results), "--out", str(tmp_path / out)]) == 0
    first, second = (
        {path.name: path.read_bytes() for path in (tmp_path / out).iterdir()}
        for out in ("first", "second")
    )
    assert len(first) == 3
    assert first == second


def test_a_panel_shows_seeds_mean_band_and_the_papers_value(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures: list[Figure] = []
    monkeypatch.setattr(curves, "save_figure", lambda figure, stem: figures.append(figure) or [])
    main(["draw", str(results), "--out", str(tmp_path / "out")])
    panels = figures[0].axes
    assert [panel.get_title() for panel in panels] == [
        "EMI, 3 seeds",
        "EMI-D, 3 seeds",
        "VIME, 3 seeds",
        "TRPO, 3 seeds",
    ]
    *seeds, mean = panels[0].lines
    assert len(seeds) == 3
    assert mean.get_xdata()[-1] == pytest.approx(0.1)  # 20 iterations of 5,000 steps, in millions
    assert mean.get_ydata()[-1] == pytest.approx(280)
    assert panels[0].texts[0].get_text() == "paper 218.1, at 5M steps"  # in words: these have 0.1M
    assert len(panels[1].texts) == 0  # no value of EMI-D in the paper
    assert panels[0].get_ylim() == panels[3].get_ylim()
    assert "paper" not in [text.get_text() for text in figures[0].legends[0].get_texts()]


def test_the_papers_value_is_a_line_where_the_steps_are_as_many(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures: list[Figure] = []
    monkeypatch.setattr(curves, "save_figure", lambda figure, stem: figures.append(figure) or [])
    runs = load_runs(results)[:3]
    panels = [curves.Panel("EMI", runs, 218.1, paper_steps=steps) for steps in (100_000, None)]
    curves.draw_learning_curves({"task": panels}, tmp_path / "x")
    for panel in figures[0].axes:
        *_, mean, paper = panel.lines
        assert list(paper.get_ydata()) == [218.1, 218.1]
        assert (mean.get_linestyle(), paper.get_linestyle()) == ("-", "--")
        assert panel.texts[0].get_text() == "paper 218.1"
    assert [text.get_text() for text in figures[0].legends[0].get_texts()][-1] == "paper"


def test_a_long_title_is_broken_into_lines_that_fit() -> None:
    title = "; ".join(f"World {k} at 1M of 50M steps" for k in range(5))
    figure = curves.new_figure(4, 3, title)
    assert figure.get_suptitle().replace("\n", " ") == title
    assert max(map(len, figure.get_suptitle().split("\n"))) <= 50


def test_long_curves_are_thinned_and_keep_their_end() -> None:
    curve = np.arange(1_003.0)[None]
    thinned = curves.thin(curve, most=200)
    assert thinned.shape == (1, 167)  # six neighbours each
    assert thinned[0, 0] == 1 + 2.5  # the first one did not fill a point
    assert thinned[0, -1] == (997 + 1002) / 2
    np.testing.assert_array_equal(curves.thin(curve[:, :200], most=200), curve[:, :200])


def test_six_panels_stand_in_three_columns(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures: list[Figure] = []
    monkeypatch.setattr(curves, "save_figure", lambda figure, stem: figures.append(figure) or [])
    runs = load_runs(results)[:3]
    panels = [curves.Panel(f"variant {k}", runs) for k in range(6)]
    curves.draw_learning_curves({"task": panels}, tmp_path / "x", title="SCALED: a note")
    grid = figures[0].axes[5].get_subplotspec()
    assert grid is not None
    assert (grid.rowspan.start, grid.colspan.start) == (1, 2)
    assert figures[0].get_suptitle() == "SCALED: a note"
    (legend,) = figures[0].legends
    texts = [text.get_text() for text in legend.get_texts()]
    assert texts == ["mean", "95 % bootstrap interval", "one seed"]  # the paper has no value here


@pytest.mark.parametrize(
    ("seed", "eta", "sentence"),
    [
        (2, 0.001, "seed 2 of emi on SparseHalfCheetah is there twice"),
        (5, 0.1, "runs of emi on SparseHalfCheetah have eta=0.001 and 0.1: give a folder of one"),
    ],
)
def test_only_runs_that_differ_in_their_seeds_are_put_together(
    results: Path, seed: int, eta: float, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    other = write_run(results / "other", [1.0] * 20, method="emi", seed=seed)
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps(config | {"eta": eta}))
    assert main(["draw", str(results), "--out", str(results / "out")]) == 2
    assert capsys.readouterr().err.startswith(f"emi.report: {sentence}")


def test_a_run_without_an_iteration_cannot_be_drawn(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(results / "other", [], method="emi", seed=7, iterations=20)
    assert main(["draw", str(results), "--out", str(results / "out")]) == 2
    assert "seed 7 of emi on SparseHalfCheetah has no iteration yet: " in capsys.readouterr().err


def test_errors_are_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["draw", str(tmp_path / "nowhere"), "--out", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("emi.report: no runs below ")
    assert error.count("\n") == 1
