"""What runs visited: numbers, maps on a common plane, the command, files of strangers."""

import math
from pathlib import Path

import numpy as np
import pytest
from run_files import write_run
from visit_files import FREE, WALK, visits, write_visits

from emi import cli
from emi.errors import UserError
from emi.report.coverage import Coverage, coverage_of, coverage_rows
from emi.report.groups import group_runs
from emi.report.load import find_runs
from emi.report.neighbours import kozachenko_leonenko
from emi.report.visits_file import read_visits_file


def covered(root: Path, axes: tuple[int, int] | None = None, times: int = 64) -> Coverage:
    (item,) = group_runs(find_runs([root]))[0].items()
    found = coverage_of(*item, axes, times)
    assert found is not None
    return found


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    for seed in (0, 1):
        write_visits(write_run(tmp_path / f"rnd{seed}", [0.0], method="rnd", seed=seed))
    write_visits(write_run(tmp_path / "trpo", [0.0], method="trpo"), bonus=np.zeros(WALK.shape))
    return tmp_path


class TestEntropy:
    @pytest.mark.parametrize("d", [1, 2, 5])
    def test_a_gaussian(self, d: int) -> None:
        """H = d/2 log(2πe) + log |det A| for x = A z."""
        scale = np.linspace(0.5, 2.0, d)
        x = scale * np.random.default_rng(0).normal(size=(4_000, d))
        expected = d / 2 * math.log(2 * math.pi * math.e) + np.log(scale).sum()
        assert kozachenko_leonenko(x) == pytest.approx(expected, abs=0.08)

    def test_a_uniform_square(self) -> None:
        x = np.random.default_rng(1).uniform(0, 3, (4_000, 2))
        assert kozachenko_leonenko(x) == pytest.approx(math.log(9), abs=0.05)

    def test_a_shift_changes_nothing_and_a_factor_adds_its_logarithm(self) -> None:
        x = np.random.default_rng(2).normal(size=(300, 3))
        assert kozachenko_leonenko(x + 1e5) == pytest.approx(kozachenko_leonenko(x), abs=1e-4)
        assert kozachenko_leonenko(7 * x) == pytest.approx(kozachenko_leonenko(x) + 3 * np.log(7))

    def test_four_points_by_hand(self) -> None:
        """k = 1 on the line: ψ(4) − ψ(1) = 11/6, V = 2, distances 1, 1, 2, 3."""
        x = np.array([[0.0], [1.0], [3.0], [6.0]])
        expected = 11 / 6 + math.log(2) + (math.log(2) + math.log(3)) / 4
        assert kozachenko_leonenko(x, k=1) == pytest.approx(expected)

    def test_repeated_states_have_no_density(self) -> None:
        assert kozachenko_leonenko(np.zeros((10, 2))) == -math.inf


def test_the_numbers_of_a_known_walk(runs: Path) -> None:
    found = covered(runs)
    rnd, trpo = found.groups
    assert (rnd.label, trpo.label) == ("RND", "TRPO")
    assert [run.cells.tolist() for run in rnd.runs] == [[3, 4], [3, 4]]
    np.testing.assert_array_equal(rnd.visits, 2 * WALK)
    np.testing.assert_array_equal(rnd.bonus, WALK)
    np.testing.assert_array_equal(found.steps, [6, 7])
    assert rnd.plane is not None
    assert rnd.plane.known == 5
    np.testing.assert_array_equal(rnd.plane.free, FREE)
    p = np.array([2, 3, 1, 1]) / 7
    row = coverage_rows(found)[0]
    assert row["cells visited"] == "4 of 5"
    assert row["entropy over cells (nats)"] == f"{-(p * np.log(p)).sum():.2f}"
    assert (row["seeds"], row["steps"], row["distinct frames"]) == ("2", "7", "–")
    expected = kozachenko_leonenko(visits()["states"])
    assert row["k-NN entropy (nats)"] == f"{expected:.2f}"


def test_times_are_merged(runs: Path) -> None:
    found = covered(runs, times=1)
    assert found.steps.tolist() == [7]
    np.testing.assert_array_equal(found.groups[1].visits, WALK.sum(0, keepdims=True))


def test_runs_with_other_cells_are_compared_on_the_wider_ones(tmp_path: Path) -> None:
    """One run has cells of width 1 from (0, 0), the other of width 2 from (2, −2)."""
    no_map = {"free": None}
    write_visits(write_run(tmp_path / "a", [0.0], method="rnd"), **no_map)
    wide = {"exponent": np.array([1, 1]), "first": np.array([1, -1])}
    write_visits(write_run(tmp_path / "b", [0.0], method="trpo"), **wide, **no_map)
    fine, coarse = covered(tmp_path).groups
    assert fine.plane is not None
    np.testing.assert_array_equal(fine.plane.x, [0, 2, 4, 6, 8])
    np.testing.assert_array_equal(fine.plane.y, [-2, 0, 2])
    # Cells 0 and 1 of the first run are one, and so are cells 2 and 3.
    assert fine.visits.sum(0).tolist() == [[0, 3], [0, 4], [0, 0], [0, 0]]
    assert coarse.visits.sum(0).tolist() == [[0, 0], [0, 1], [2, 0], [3, 1]]
    assert [run.cells[-1] for group in (fine, coarse) for run in group.runs] == [2, 4]


def test_other_axes_are_those_of_the_sample(runs: Path) -> None:
    found = covered(runs, (2, 0))
    plane = found.groups[0].plane
    assert plane is not None
    assert plane.names == ("observation 2", "observation 0")
    assert found.sampled
    assert found.groups[0].visits.sum() == 40
    states = visits()["states"]
    assert plane.x[0] <= states[:, 2].min() <= states[:, 2].max() < plane.x[-1]
    with pytest.raises(UserError, match="--axes must be columns of the observation, which has 0 t"):
        covered(runs, (0, 3))


def test_other_recorded_axes_cannot_be_compared(runs: Path) -> None:
    write_visits(runs / "trpo", names=np.frombuffer(b"x\nz", np.uint8))
    with pytest.raises(UserError, match=r"recorded different axes \(x, y and x, z\): show them"):
        covered(runs)


def test_images_are_counted_by_frames_and_shown_in_phi(tmp_path: Path) -> None:
    plane = dict.fromkeys(("visits", "bonus", "unit", "exponent", "first", "names", "free"))
    images = {
        "states": np.zeros((20, 1, 40, 40), np.uint8),
        "frames": np.array([30.0, 41.0]),
        "phi": np.random.default_rng(0).normal(size=(20, 2)).astype(np.float32),
    }
    write_visits(write_run(tmp_path / "run", [0.0]), **plane, **images)
    found = covered(tmp_path)
    (group,) = found.groups
    assert group.visits.sum((1, 2)).tolist() == [10, 10]
    assert not found.shared
    (row,) = coverage_rows(found)
    assert (row["cells visited"], row["distinct frames"]) == ("–", "41")


class TestCommand:
    def test_a_table_and_a_figure(
        self, runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        out = tmp_path / "figures" / "map.png"
        assert cli.main(["coverage", str(runs), "--out", str(out)]) == 0
        text = capsys.readouterr().out
        assert "| RND | 2 | 7 | 4 of 5 | 1.28 |" in text
        assert "distinct frames" not in text
        first = out.read_bytes()
        assert cli.main(["coverage", str(runs), "--axes", "0,2", "--out", str(out)]) == 0
        assert out.read_bytes() != first
        assert cli.main(["coverage", str(runs), "--out", str(out)]) == 0
        assert out.read_bytes() == first

    def test_many_methods_and_a_line(self, tmp_path: Path) -> None:
        line = {"visits": WALK[:, :, :1], "bonus": 0.5 * WALK[:, :, :1], "free": None}
        for k in range(7):
            directory = write_run(tmp_path / str(k), [0.0], method="rnd", eta=0.1 * k)
            write_visits(directory, **line, names=np.frombuffer(b"x", np.uint8))
        out = tmp_path / "map.png"
        assert cli.main(["coverage", str(tmp_path), "--out", str(out)]) == 0
        assert out.exists()

    @pytest.mark.parametrize(
        ("words", "sentence"),
        [
            (["--axes", "0"], "--axes takes two columns of the observation, as in 0,3, got '0'"),
            (["--axes", "a,b"], "--axes takes two columns of the observation"),
        ],
    )
    def test_bad_input(
        self, runs: Path, words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert cli.main(["coverage", str(runs), *words]) == 2
        assert sentence in capsys.readouterr().err

    def test_no_record(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        write_run(tmp_path / "run", [0.0])
        assert cli.main(["coverage", str(tmp_path)]) == 2
        assert "no run recorded the states it visited: train with" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"steps": None}, "steps is missing"),
        ({"steps": np.array([7, 6])}, "steps do not ascend"),
        ({"steps": np.arange(1, 100)}, "steps has shape (99,)"),
        ({"steps": np.array([1.0, 2.0])}, "steps is float64"),
        ({"states": np.zeros((30_000, 1), np.float32)}, "states has shape (30000, 1)"),
        ({"states": np.zeros((20, 0), np.float32)}, "states has shape (20, 0)"),
        ({"state_slot": np.full(20, 9)}, "state_slot names a slot that is not there"),
        ({"state_bonus": np.full(20, np.nan, np.float32)}, "state_bonus is not finite"),
        ({"visits": -WALK}, "visits are negative or too many"),
        ({"visits": np.zeros((2, 65, 2), np.int64)}, "visits has shape (2, 65, 2)"),
        ({"bonus": np.zeros((2, 3, 3))}, "bonus has shape (2, 3, 3)"),
        ({"exponent": np.array([5_000, 0])}, "the cells are too large or too far away"),
        ({"unit": np.zeros((2, 2))}, "a cell of the map has no size"),
        ({"names": np.frombuffer(b"a\nb\nc", np.uint8)}, "the axes must have one or two names"),
        ({"names": np.frombuffer(b"\x1b[2J", np.uint8)}, "the axes must have one or two names"),
        ({"names": np.frombuffer(b"$x", np.uint8)}, "the axes must have one or two names"),
        ({"free": np.ones((3, 3), bool)}, "free has shape (3, 3)"),
    ],
)
def test_a_file_that_cannot_be_shown(
    tmp_path: Path, changes: dict[str, np.ndarray | None], reason: str
) -> None:
    file = write_visits(tmp_path, **changes)
    with pytest.raises(UserError) as error:
        read_visits_file(file)
    assert str(error.value) == f"{file} is damaged ({reason}): train the run again"


def test_a_damaged_file_spoils_no_report(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (runs / "trpo" / "visits.safetensors").write_bytes(b"\xff" * 100)
    found = covered(runs)
    assert [group.label for group in found.groups] == ["RND"]
    assert "trpo is shown without its visited states" in capsys.readouterr().err


def test_a_large_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "visits.safetensors"
    with file.open("wb") as out:
        out.truncate(64_000_001)
    with pytest.raises(UserError, match="is too large: it may have 64,000,000 bytes at most"):
        read_visits_file(file)
