"""`emi report --figures`: learning curves, a table and embeddings of any runs."""

import math
import os
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image
from run_files import write_run, write_sample

from emi.cli import main
from emi.report import curves
from emi.report.groups import group_runs
from emi.report.load import find_runs, load_run
from emi.report.reference import Reference
from emi.report.statistics import thin
from emi.report.style import looks, new_figure


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


def legend(figure: Figure) -> list[str]:
    (only,) = figure.legends
    return [text.get_text() for text in only.get_texts()]


def test_the_methods_of_an_environment_share_axes(
    runs: Path, tmp_path: Path, figures: list[Figure]
) -> None:
    write_figures(runs, tmp_path / "out")
    (panel,) = figures[0].axes
    assert panel.get_title(loc="left") == "SparseHalfCheetah"
    assert panel.get_xlabel() == "environment steps (millions)"
    # The first method is drawn last, above the others; four methods leave no room for seeds.
    trpo, vime, emi_d, emi = panel.lines
    assert [line.get_color() for line in (emi, emi_d, vime, trpo)] == [
        "#0072b2",
        "#56b4e9",
        "#7b838c",
        "#000000",
    ]
    assert emi.get_xdata()[-1] == pytest.approx(0.1)  # 20 iterations of 5,000 steps, in millions
    assert emi.get_ydata()[-1] == pytest.approx(280)
    assert len(panel.collections) == 4  # the bands
    # As text: these runs have 0.1M steps. The paper has no value of EMI-D.
    (about,) = panel.texts
    assert " ".join(about.get_text().split()) == (
        "3 seeds each; paper at 5M steps: EMI 218.1, VIME 98, TRPO 0"
    )
    assert legend(figures[0]) == ["EMI", "EMI-D", "VIME", "TRPO", "95 % interval of the mean"]


def test_few_methods_show_every_seed(tmp_path: Path, figures: list[Figure]) -> None:
    for seed in range(3):
        write_run(tmp_path / "runs" / str(seed), [0.0, seed], seed=seed)
    write_figures(tmp_path / "runs", tmp_path / "out")
    *seeds, mean = figures[0].axes[0].lines
    assert [line.get_ydata()[-1] for line in seeds] == [0, 1, 2]
    assert mean.get_ydata()[-1] == 1
    assert legend(figures[0]) == ["EMI", "95 % interval of the mean", "one seed"]


def test_runs_without_a_finished_episode_are_counted_and_not_drawn(
    tmp_path: Path, figures: list[Figure]
) -> None:
    write_run(tmp_path / "runs" / "a", [1.0, 2.0])
    write_run(tmp_path / "runs" / "b", [math.nan, math.nan], seed=1)
    write_run(tmp_path / "runs" / "c", [math.nan, math.nan], method="trpo")
    write_run(tmp_path / "runs" / "d", [], method="trpo", seed=1, iterations=2)
    write_figures(tmp_path / "runs", tmp_path / "out")
    (panel,) = figures[0].axes
    (emi,) = panel.lines
    assert emi.get_ydata().tolist() == [1, 2]
    assert " ".join(panel.texts[0].get_text().split()).startswith(
        "2 seeds each; runs without a finished episode: 1 of EMI, 2 of TRPO; paper at "
    )
    assert legend(figures[0]) == ["EMI"]  # one run has no interval, and TRPO no curve
    table = (tmp_path / "out" / "table.md").read_text()
    assert "| EMI | 2 | 2.0 | 2.0 |" in table
    assert "No finished episode: emi, seed 1." in table


def test_without_any_return_the_panel_says_so(tmp_path: Path, figures: list[Figure]) -> None:
    write_run(tmp_path / "runs" / "a", [math.nan, math.nan])
    write_figures(tmp_path / "runs", tmp_path / "out")
    (panel,) = figures[0].axes
    assert "no finished episode" in [text.get_text() for text in panel.texts]
    assert (len(panel.lines), figures[0].legends) == (0, [])


def test_a_single_iteration_is_a_point(tmp_path: Path, figures: list[Figure]) -> None:
    write_run(tmp_path / "runs" / "a", [7.0])
    write_figures(tmp_path / "runs", tmp_path / "out")
    (line,) = figures[0].axes[0].lines
    assert (line.get_marker(), line.get_ydata().tolist()) == ("o", [7])


def test_the_published_value_is_a_line_for_runs_of_as_many_steps(
    runs: Path, tmp_path: Path, figures: list[Figure]
) -> None:
    groups, _ = group_runs(find_runs([runs]))
    values = {"emi": 218.1, "vime": 3.0, "trpo": 0.0}
    panels = [
        curves.return_panel("task", groups["SparseHalfCheetah"], Reference("book", values, steps))
        for steps in (100_000, None, 100_001)
    ]
    curves.draw_learning_curves(panels, tmp_path / "x")
    *reached, later = figures[0].axes
    for panel in reached:
        dashed = [line for line in panel.lines if line.get_linestyle() == "--"]
        assert [line.get_ydata()[0] for line in dashed] == [0.0, 3.0, 218.1]
        assert [line.get_color() for line in dashed] == ["#000000", "#7b838c", "#0072b2"]
        _, *labels, source = panel.texts
        assert [text.get_text() for text in labels] == ["TRPO 0", "VIME 3", "EMI 218.1"]
        assert source.get_text() == "book"
        # 0 and 3 are next to each other; their labels are not.
        heights = [text.xy[1] for text in labels]
        assert heights[1] - heights[0] > 15
        assert heights[2] == 218.1
    assert not [line for line in later.lines if line.get_linestyle() == "--"]
    assert "book at 0.100001M steps: EMI" in " ".join(later.texts[0].get_text().split(" "))
    assert legend(figures[0])[-1] == "book"


def test_a_thinned_curve_counts_all_its_steps(tmp_path: Path, figures: list[Figure]) -> None:
    run = load_run(write_run(tmp_path / "run", np.arange(401.0)))
    curve = curves.curve_of("EMI", [run], reference=218.1)
    assert (len(curve.x), curve.end) == (134, 2.005)  # means of three points; 401 × 5,000 steps
    panel = curves.Panel("task", [curve], reference=Reference("book", steps=2_005_000))
    curves.draw_learning_curves([panel], tmp_path / "x")
    (axis,) = figures[0].axes
    assert axis.get_xlim() == (0, 2.005)
    assert [text.get_text() for text in axis.texts] == ["1 seed", "EMI 218.1", "book"]


def test_a_long_title_is_wrapped() -> None:
    title = "; ".join(f"Environment {k} at 1M of 50M steps" for k in range(5))
    figure = new_figure(4, 3, title)
    assert figure.get_suptitle().replace("\n", " ") == title
    figure.draw_without_rendering()
    (written,) = figure.texts
    assert written.get_window_extent().width <= figure.bbox.width


def test_long_curves_are_thinned_and_keep_their_end() -> None:
    curve = np.arange(1_003.0)[None]
    thinned = thin(curve, 6)
    assert thinned.shape == (1, 168)
    assert thinned[0, 0] == 2.5
    assert thinned[0, -1] == 1_002  # the last point has one value only
    np.testing.assert_array_equal(thin(curve, 1), curve)


@pytest.mark.parametrize(
    ("count", "wide", "columns"),
    [
        # The columns of a grid with two per panel at which each panel begins.
        (1, False, [0]),
        (3, False, [0, 2, 4]),
        (4, False, [0, 2, 0, 2]),
        (5, False, [0, 2, 4, 1, 3]),
        (7, False, [0, 2, 4, 0, 2, 4, 2]),
        (3, True, [0, 2, 1]),
    ],
)
def test_an_incomplete_row_of_panels_is_centred(count: int, wide: bool, columns: list[int]) -> None:
    _, axes = curves.arrange(count, wide=wide)
    grids = [axis.get_subplotspec() for axis in axes]
    assert [grid.colspan.start for grid in grids if grid is not None] == columns
    assert {len(grid.colspan) for grid in grids if grid is not None} == {2}


def test_variants_take_the_colours_of_absent_methods() -> None:
    emi, variant, ex2 = looks({"EMI": "emi", "EMI (eta=0.1)": "emi", "EX2": "ex2"}).values()
    assert (emi.colour, ex2.colour) == ("#0072b2", "#d55e00")
    assert variant.colour not in (emi.colour, ex2.colour)
    # The method under its own title keeps its colour, also if a variant comes first.
    _, emi = looks({"no error model": "emi", "EMI": "emi"}).values()
    assert emi.colour == "#0072b2"
    many = looks({f"m{k}": f"mine:M{k}" for k in range(20)})
    assert len(set(map(str, many.values()))) == 20  # with dashes after the ninth


def test_other_settings_are_another_curve(
    runs: Path, tmp_path: Path, figures: list[Figure]
) -> None:
    write_run(runs / "other", [1.0] * 20, seed=5, eta=0.1, changed=["eta"])
    write_figures(runs, tmp_path / "out")
    (panel,) = figures[0].axes
    assert panel.texts[0].get_text().startswith("seeds: EMI\u00a03, EMI (eta=0.1)\u00a01,")
    assert legend(figures[0])[:2] == ["EMI", "EMI (eta=0.1)"]
    assert "| EMI (eta=0.1) | 1 | 1.0 |" in (tmp_path / "out" / "table.md").read_text()


def test_letters_are_readable_in_print(runs: Path, tmp_path: Path, figures: list[Figure]) -> None:
    write_figures(runs, tmp_path / "out")
    figures[0].draw_without_rendering()
    texts = [text for text in figures[0].findobj(Text) if text.get_text()]
    assert min(text.get_fontsize() for text in texts) >= 7
    assert figures[0].get_figwidth() <= 7.2  # inches, the width of a page's text


def test_a_picture_has_200_dots_per_inch(runs: Path, tmp_path: Path) -> None:
    write_figures(runs, tmp_path / "out")
    with Image.open(tmp_path / "out" / "learning_curves.png") as image:
        assert image.width == 920  # 4.6 inches
        assert image.getpixel((0, 0)) == (255, 255, 255)


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
