"""Figures of an embedding sample: which episode, which peaks, which frames."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from run_files import write_run, write_sample

from emi.errors import UserError
from emi.report import embedding
from emi.report.embedding import (
    PEAK_COLOURS,
    along,
    choose_episode,
    draw_embedding,
    draw_error_model,
    path_rows,
    peaks,
    plane,
    read_sample,
)
from emi.report.load import load_run


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that are drawn, instead of their files."""
    drawn: list[Figure] = []
    monkeypatch.setattr(embedding, "save_figure", lambda figure, stem: drawn.append(figure) or stem)
    return drawn


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run", [0, 1, 2], seed=3)


@pytest.mark.parametrize(
    ("norm", "count", "apart", "expected"),
    [
        ([0, 5, 4, 0, 3, 0, 0, 9, 0], 2, 2, [1, 7]),  # 4 is the slope of 5, not a peak
        ([0, 5, 0, 4, 0, 0, 3, 0], 2, 3, [1, 6]),  # 4 is too near to 5
        ([0, 5, 0, 4, 0, 0, 3, 0], 2, 2, [1, 3]),
        ([1, 2, 2, 2, 1, 3, 0], 5, 2, [1, 5]),  # of a plateau, the first
        ([3, 1, 2], 5, 1, [0, 2]),  # the ends
        ([2, 2, 2, 2], 5, 1, []),
        ([7], 5, 1, []),
    ],
)
def test_peaks(norm: list[float], count: int, apart: int, expected: list[int]) -> None:
    assert peaks(np.array(norm, float), count, apart).tolist() == expected


def test_episodes_are_split_by_environment_and_end() -> None:
    env = np.array([0, 1, 0, 1, 0, 1, 0, 1])
    episodes = path_rows({"env": env, "ended": np.isin(np.arange(8), [2])})
    assert [(e.rows.tolist(), e.whole) for e in episodes] == [
        ([0, 2], True),
        ([4, 6], False),
        ([1, 3, 5, 7], False),
    ]
    # An end in the last row leaves no empty episode behind.
    last = path_rows({"env": env, "ended": np.isin(np.arange(8), [2, 7])})
    assert [len(e.rows) for e in last] == [2, 2, 4]
    assert [e.whole for e in last] == [True, False, True]
    # A whole episode is preferred to a longer one.
    assert choose_episode(episodes) is episodes[0]
    assert choose_episode(episodes[1:]) is episodes[2]
    assert choose_episode(episodes[1:2] * 2) is episodes[1]
    assert episodes[0].describe() == "a whole episode, 2 steps"
    assert episodes[2].describe() == "one episode, 4 steps up to the end of the sample"


def test_frames_are_spread_over_the_path() -> None:
    rows = np.arange(100, 111)
    assert along(rows, 6).tolist() == [100, 102, 104, 106, 108, 110]
    assert along(rows[:2], 6).tolist() == [100, 101]


def test_the_plane_of_each_dimension() -> None:
    clock = np.arange(3)
    phi = np.array([[1.0, 5.0], [2.0, 4.0], [3.0, 9.0]])
    points, labels = plane(phi, clock)
    assert points.tolist() == phi.tolist()
    assert labels == ("φ₁(s)", "φ₂(s)")
    points, labels = plane(phi[:, 1:], clock)
    assert points.tolist() == [[0, 5], [1, 4], [2, 9]]
    assert labels == ("step of the episode", "φ(s)")
    # Twice as far along the last axis as along the first; the one between is constant.
    phi = np.array([[1.0, 7, 0], [-1, 7, 0], [0, 7, 2], [0, 7, -2]])
    points, labels = plane(phi, np.arange(4))
    assert points == pytest.approx(np.array([[0.0, 1], [0, -1], [2, 0], [-2, 0]]))
    assert labels == (
        "principal component 1 of 3, 80% of the variance",
        "principal component 2 of 3, 20% of the variance",
    )


def images(panels: list[Axes]) -> list[int]:
    """The level of each frame that is shown."""
    return [int(np.unique(panel.images[0].get_array()).item()) for panel in panels if panel.images]


def test_vectors_by_time_and_by_bonus(run: Path, tmp_path: Path, figures: list[Figure]) -> None:
    sample = write_sample(run, [[40], [40]])
    draw_embedding(load_run(run), tmp_path / "embedding")
    by_time, by_bonus = (p for p in figures[0].axes if p.collections and p.get_xlabel())
    assert figures[0].get_suptitle() == (
        "SparseHalfCheetah, EMI, seed 3, 15,000 steps\n80 states of the last batch; "
        "the line is one episode, 40 steps up to the end of the sample"
    )
    for panel, name in ((by_time, "clock"), (by_bonus, "bonus")):
        (dots,) = panel.collections
        assert isinstance(dots, PathCollection)
        assert np.array_equal(dots.get_offsets(), sample["phi"])
        assert np.array_equal(dots.get_array(), sample[name])
    bars = [panel.child_axes[0].get_xlabel() for panel in (by_time, by_bonus)]
    assert bars == ["step of the episode", "bonus"]
    path, start, end = by_time.lines
    own = sample["phi"][sample["env"] == 0]
    assert np.array_equal(path.get_xydata(), own)
    assert (start.get_label(), *start.get_xydata()[0]) == ("start", *own[0])
    assert (end.get_label(), *end.get_xydata()[0]) == ("end", *own[-1])
    assert not by_bonus.lines


def test_frames_of_the_path_are_numbered(run: Path, tmp_path: Path, figures: list[Figure]) -> None:
    sample = write_sample(run, [[7, 21, 3]], images=True)  # the longest is rows 7 to 27
    draw_embedding(load_run(run), tmp_path / "embedding")
    scatter, *strip = figures[0].axes
    assert "the line is a whole episode, 21 steps" in figures[0].get_suptitle()
    assert images(strip) == [7, 11, 15, 19, 23, 27]
    assert [p.get_title(loc="left") for p in strip] == [
        f"{number}: step {step}" for number, step in enumerate([0, 4, 8, 12, 16, 20], 1)
    ]
    assert [text.get_text() for text in scatter.texts] == list("123456")
    assert [text.xy for text in scatter.texts] == pytest.approx(sample["phi"][7:28:4])


def test_a_path_shorter_than_the_strip(run: Path, tmp_path: Path, figures: list[Figure]) -> None:
    write_sample(run, [[2]], images=True)
    draw_embedding(load_run(run), tmp_path / "embedding")
    assert images(figures[0].axes) == [0, 1]


# Rows 7 to 27 are the episode that is drawn; ‖S‖ is this there, and 99 in the ones around it.
HEIGHTS = {3: 99, 8: 3, 12: 9, 13: 8, 17: 5, 20: 4, 22: 2, 25: 6, 29: 99}
ERROR = {row: (0.6 * height, 0.8 * height) for row, height in HEIGHTS.items()}


@pytest.mark.parametrize("of_images", [False, True])
def test_the_error_model_over_an_episode(
    run: Path, tmp_path: Path, figures: list[Figure], of_images: bool
) -> None:
    sample = write_sample(run, [[7, 21, 3]], images=of_images, error=ERROR)
    draw_error_model(load_run(run), tmp_path / "error_model")
    assert figures[0].get_suptitle() == (
        "SparseHalfCheetah, EMI, seed 3, 15,000 steps\nthe error model in a whole episode, 21 steps"
    )
    (panel,) = (p for p in figures[0].axes if p.lines)
    line, *marks = panel.lines
    assert line.get_xdata().tolist() == list(range(21))
    assert line.get_ydata() == pytest.approx([HEIGHTS.get(row, 0) for row in range(7, 28)])
    steps = [1, 5, 10, 13, 18]  # 13, next to 12, and 22 are not among them
    assert [mark.get_xdata().item() for mark in marks] == steps
    assert [mark.get_ydata().item() for mark in marks] == pytest.approx([3, 9, 5, 4, 6])
    assert [text.get_text() for text in panel.texts] == list("abcde")
    assert [mark.get_label() for mark in marks] == [
        f"{letter}: step {step}, bonus {sample['bonus'][7 + step]:.3g}"
        for letter, step in zip("abcde", steps, strict=True)
    ]
    shown = [p for p in figures[0].axes if p.images]
    assert len(shown) == (10 if of_images else 0)
    if of_images:
        assert images(shown[:5]) == [8, 12, 17, 20, 25]
        assert images(shown[5:]) == [247, 243, 238, 235, 230]
        borders = [to_hex(p.spines["left"].get_edgecolor()) for p in shown]
        assert borders == [colour.lower() for colour in PEAK_COLOURS.values()] * 2
        assert [to_hex(mark.get_color()) for mark in marks] == borders[:5]


def test_without_an_error_model_nothing_is_marked(
    run: Path, tmp_path: Path, figures: list[Figure]
) -> None:
    write_sample(run, [[20]], images=True, error={})
    draw_error_model(load_run(run), tmp_path / "error_model")
    (panel,) = (p for p in figures[0].axes if p.lines)
    assert len(panel.lines) == 1
    assert images(figures[0].axes) == []


@pytest.mark.parametrize("of_images", [False, True])
def test_drawing_twice_gives_the_same_bytes(run: Path, tmp_path: Path, of_images: bool) -> None:
    write_sample(run, [[500]] * (1 if of_images else 4), images=of_images)
    loaded = load_run(run)
    for draw in (draw_embedding, draw_error_model):
        first, second = (draw(loaded, tmp_path / name / "figure") for name in ("one", "two"))
        assert first == tmp_path / "one" / "figure.png"
        assert first.read_bytes() == second.read_bytes()


def test_errors_name_the_run(tmp_path: Path) -> None:
    directory = write_run(tmp_path / "run", [0, 1], method="trpo")
    with pytest.raises(UserError, match="run has no embedding: complete runs of emi and emi-d"):
        read_sample(load_run(directory))
    (directory / "embedding.safetensors").write_bytes(b"not tensors")
    with pytest.raises(UserError, match=r"run/embedding\.safetensors is damaged \("):
        read_sample(load_run(directory))
