"""`emi report --figures`: learning curves, a table and embeddings of any runs."""

import math
import os
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from run_files import write_run, write_sample

from emi.cli import main
from emi.report import curves
from emi.report.load import find_runs
from emi.report.reference import Reference
from emi.report.statistics import thin


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    rise = np.linspace(0, 280, 20)
    for method, gain in (("trpo", 0.0), ("vime", 0.5), ("emi", 1.0), ("emi-d", 0.1)):
        for seed in range(3):
            write_run(tmp_path / "runs" / f"{method}{seed}", gain * rise, method=method, seed=seed)
    return tmp_path / "runs"


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that are drawn, instead of their files."""
    drawn: list[Figure] = []
    monkeypatch.setattr(curves, "save_figure", lambda figure, stem: drawn.append(figure) or stem)
    return drawn


def write_figures(runs: Path, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    assert main(["report", str(runs), "--figures", str(out)]) == 0


def test_figure_and_table_list_the_methods_in_order(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "new" / "out"
    assert main(["report", str(runs), "--figures", str(out)]) == 0
    names = ["learning_curves.png", "table.md"]
    assert capsys.readouterr().out.split() == [str(out / name) for name in names]
    assert (out / names[0]).read_bytes().startswith(b"\x89PNG")
    table = (out / "table.md").read_text().splitlines()
    assert table[0] == "**SparseHalfCheetah, 0.1M steps**"
    methods = [line.split(" | ")[0].removeprefix("| ") for line in table[4:]]
    assert methods == ["EMI", "EMI-D", "VIME", "TRPO"]
    assert table[4].endswith(" | 218.1 |")  # the paper's return is handed in


def test_embeddings_are_drawn_for_each_run_that_has_one(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("emi0", "emi-d2"):
        write_sample(runs / name, [[30]])
    out = tmp_path / "out"
    write_figures(runs, out)
    assert capsys.readouterr().out.split()[2:] == [
        str(out / "runs" / run / f"{figure}.png")
        for run in ("emi0", "emi-d2")
        for figure in ("embedding", "error_model")
    ]
    assert not (tmp_path / "report.html").exists()


def test_drawing_twice_gives_the_same_bytes(runs: Path, tmp_path: Path) -> None:
    for out in ("first", "second"):
        write_figures(runs, tmp_path / out)
    first, second = (
        {path.name: path.read_bytes() for path in (tmp_path / out).iterdir()}
        for out in ("first", "second")
    )
    assert len(first) == 2
    assert first == second


def test_a_panel_shows_seeds_mean_and_the_published_value(
    runs: Path, tmp_path: Path, figures: list[Figure]
) -> None:
    write_figures(runs, tmp_path / "out")
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
    assert panels[0].texts[0].get_text() == "paper 218.1, at 5M steps"  # as text: these have 0.1M
    assert len(panels[1].texts) == 0  # the paper has no value of EMI-D
    assert panels[0].get_ylim() == panels[3].get_ylim()
    assert "paper" not in [text.get_text() for text in figures[0].legends[0].get_texts()]


def test_runs_without_a_finished_episode_are_counted_and_not_drawn(
    tmp_path: Path, figures: list[Figure]
) -> None:
    write_run(tmp_path / "runs" / "a", [1.0, 2.0])
    write_run(tmp_path / "runs" / "b", [math.nan, math.nan], seed=1)
    write_run(tmp_path / "runs" / "c", [math.nan, math.nan], method="trpo")
    write_run(tmp_path / "runs" / "d", [], method="trpo", seed=1, iterations=2)
    write_figures(tmp_path / "runs", tmp_path / "out")
    emi, trpo = figures[0].axes
    assert [panel.get_title() for panel in (emi, trpo)] == ["EMI, 2 seeds", "TRPO, 2 seeds"]
    assert len(emi.lines) == 2  # one seed and the mean
    assert emi.texts[0].get_text() == "1 run without a finished episode"
    assert len(trpo.lines) == 0
    assert trpo.texts[0].get_text() == "2 runs without a finished episode"
    table = (tmp_path / "out" / "table.md").read_text()
    assert "| EMI | 2 | 2.0 | 2.0 |" in table
    assert "No finished episode: emi, seed 1." in table


def test_the_published_value_is_a_line_for_runs_of_as_many_steps(
    runs: Path, tmp_path: Path, figures: list[Figure]
) -> None:
    three = find_runs([runs])[:3]
    panels = [
        curves.Panel("EMI", three, 218.1, Reference("book", steps=steps))
        for steps in (100_000, None)
    ]
    curves.draw_learning_curves({"task": panels}, tmp_path / "x")
    for panel in figures[0].axes:
        *_, mean, value = panel.lines
        assert list(value.get_ydata()) == [218.1, 218.1]
        assert (mean.get_linestyle(), value.get_linestyle()) == ("-", "--")
        assert panel.texts[0].get_text() == "book 218.1"
    assert [text.get_text() for text in figures[0].legends[0].get_texts()][-1] == "book"


def test_a_long_title_is_wrapped() -> None:
    title = "; ".join(f"Environment {k} at 1M of 50M steps" for k in range(5))
    figure = curves.new_figure(4, 3, title)
    assert figure.get_suptitle().replace("\n", " ") == title
    assert max(map(len, figure.get_suptitle().split("\n"))) <= 50


def test_long_curves_are_thinned_and_keep_their_end() -> None:
    curve = np.arange(1_003.0)[None]
    thinned = thin(curve, 6)
    assert thinned.shape == (1, 168)
    assert thinned[0, 0] == 2.5
    assert thinned[0, -1] == 1_002  # the last point has one value only
    np.testing.assert_array_equal(thin(curve, 1), curve)


def test_six_panels_are_arranged_in_three_columns(
    runs: Path, tmp_path: Path, figures: list[Figure]
) -> None:
    three = find_runs([runs])[:3]
    panels = [curves.Panel(f"variant {k}", three) for k in range(6)]
    curves.draw_learning_curves({"task": panels}, tmp_path / "x", title="SCALED: a note")
    grid = figures[0].axes[5].get_subplotspec()
    assert grid is not None
    assert (grid.rowspan.start, grid.colspan.start) == (1, 2)
    assert figures[0].get_suptitle() == "SCALED: a note"
    (legend,) = figures[0].legends
    texts = [text.get_text() for text in legend.get_texts()]
    assert texts == ["mean", "95 % bootstrap interval", "one seed"]  # no published value here


def test_other_settings_are_another_panel(
    runs: Path, tmp_path: Path, figures: list[Figure]
) -> None:
    write_run(runs / "other", [1.0] * 20, seed=5, eta=0.1, changed=["eta"])
    write_figures(runs, tmp_path / "out")
    titles = [panel.get_title() for panel in figures[0].axes[:2]]
    assert titles == ["EMI, 3 seeds", "EMI (eta=0.1), 1 seed"]
    assert "| EMI (eta=0.1) | 1 | 1.0 |" in (tmp_path / "out" / "table.md").read_text()


def test_errors_are_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(tmp_path / "nowhere"), "--figures", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("emi: there is no ")
    assert error.count("\n") == 1


def test_a_full_disk_leaves_the_old_figure(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_figures(runs / "emi0", tmp_path / "out")
    before = {p: p.read_bytes() for p in (tmp_path / "out").iterdir()}

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert main(["report", str(runs), "--figures", str(tmp_path / "out")]) == 1
    assert capsys.readouterr().err.startswith("emi: cannot write: no space left on device")
    assert {p: p.read_bytes() for p in (tmp_path / "out").iterdir()} == before
