"""The BoxImage experiment: true positions match transitions, R² is R², nothing is done twice."""

import csv
import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from emi.errors import UserError
from emi.reproduction import box_image
from emi.reproduction.box_image import (
    CONFIG,
    EXPERIMENT,
    FILES,
    TARGETS,
    affine_r2,
    draw,
    make,
    sample,
    sizes,
)
from emi.reproduction.experiment import Budget, find


def test_positions_and_actions_are_those_of_their_transitions() -> None:
    batch, position = sample(seed=3, samples=1_000)
    action = np.asarray(batch.action)
    n = len(batch)
    assert n == 1_000
    assert position.shape == action.shape == (n, 2)
    # Two environments in turn: the row after next is the same disc, one action later, if no
    # wall was in its way.
    moved = position[2:] - position[:-2]
    free = ((position[2:] > 0) & (position[2:] < 100)).all(1)
    assert free.sum() > 500
    np.testing.assert_allclose(moved[free], action[:-2][free], atol=1e-5)
    # The picture of s shows the disc where it is said to be.
    frames = np.asarray(batch.obs[:], np.float64).reshape(n, 52, 52)
    ink = np.abs(frames - np.median(frames, axis=0))
    centre = (ink * np.arange(52)).sum((1, 2)) / ink.sum((1, 2))
    assert np.corrcoef(centre, position[:, 0])[0, 1] > 0.95


def test_r2_is_one_for_an_affine_image_and_zero_for_noise() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2_000, 2))
    assert affine_r2(x, x @ [[1.0, 2.0], [-3.0, 0.5]] + [7.0, -1.0]) == pytest.approx(1)
    assert affine_r2(x, rng.normal(size=(2_000, 2))) == pytest.approx(0, abs=0.01)
    # Signal and noise of equal strength: one half.
    assert affine_r2(x, x + rng.normal(size=x.shape)) == pytest.approx(0.5, abs=0.03)


SMALL: dict[str, Any] = {
    "samples": 500,
    "budget": Budget(),
    "config": dataclasses.replace(CONFIG, epochs=1, minibatch=100),
}


def test_run_and_draw(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(box_image, "SHOWN", 40)
    results = tmp_path / "results"
    box = results / "box_image"
    box.mkdir(parents=True)
    make(results, [("action", 1), ("state", 1)], **SMALL)
    files = sorted(path.name for path in box.iterdir())
    assert files == ["action-seed1.safetensors", "state-seed1.safetensors"]
    arrays = load_file(box / "action-seed1.safetensors")
    assert {name: a.shape for name, a in arrays.items()} == {
        **dict.fromkeys(("phi", "psi", "position", "action"), (40, 2)),
        "r2": (2,),
        "samples": (1,),
    }
    assert capsys.readouterr().out.count("R² position") == 2

    # One cell alone gives the same result.
    other = load_file(box / "state-seed1.safetensors")
    (box / "state-seed1.safetensors").unlink()
    make(results, [("state", 1)], **SMALL)
    assert capsys.readouterr().out.startswith("seed 1, KL on the state: ")
    again = load_file(box / "state-seed1.safetensors")
    assert all(np.array_equal(again[name], other[name]) for name in other)
    assert not np.array_equal(arrays["phi"], other["phi"])

    found = find(EXPERIMENT, results)
    assert len(found.missing_files) == 8  # of five seeds and two targets
    written = draw(found, tmp_path / "out" / "box_image")
    names = [f"box_image.{kind}" for kind in ("png", "md", "csv")]
    assert [path.name for path in written] == names
    page = written[1].read_text()
    assert "**SCALED: 500 of 30,000 samples**" in page
    assert f"| actions | 1 | {arrays['r2'][0]:.3f} | " in page
    with written[2].open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["kl_on"], row["seed"]) for row in rows] == [("action", "1"), ("state", "1")]
    assert float(rows[0]["r2_action"]) == pytest.approx(arrays["r2"][1], abs=1e-4)


MAKER = EXPERIMENT.maker
assert MAKER is not None


def test_scaled_seeds_and_samples(tmp_path: Path) -> None:
    assert MAKER is not None
    scales = (1.0, 0.1, 0.0001)
    assert [MAKER.asked(Budget(scale=scale)) for scale in scales] == [30_000, 3_000, 1_000]
    assert MAKER.lacking(tmp_path, Budget(seeds=(4, 7))) == [("action", 4), ("state", 4)]
    assert len(MAKER.lacking(tmp_path, Budget())) == 10


def write_file(root: Path, target: str, seed: int, samples: int) -> None:
    path = root / FILES[target, seed]
    path.parent.mkdir(parents=True, exist_ok=True)
    points = dict.fromkeys(("phi", "psi", "position", "action"), np.zeros((3, 2), np.float32))
    save_file(points | {"r2": np.ones(2), "samples": np.array([samples])}, path)


def test_a_file_with_fewer_samples_counts_as_missing(tmp_path: Path) -> None:
    assert MAKER is not None

    def lacking(budget: Budget) -> list[int]:
        return sorted({seed for _, seed in MAKER.lacking(source, budget)})

    source, target = tmp_path / "runs", tmp_path / "results"
    for seed, (new, old) in enumerate([(30_000, 600), (600, 30_000), (30_000, 0), (0, 600)]):
        for root, samples in ((source, new), (target, old)):
            for kind in TARGETS if samples else ():
                write_file(root, kind, seed, samples)
    assert lacking(Budget()) == [1, 3, 4]
    assert lacking(Budget(seeds=(0, 1))) == [1]
    assert lacking(Budget(scale=0.02)) == [1, 3, 4]  # a thousand at least
    write_file(source, "state", 2, 600)
    assert lacking(Budget()) == [1, 2, 3, 4]

    written = MAKER.merge(source, target)
    assert [path.name for path in written] == [
        f"{kind}-seed{seed}.safetensors" for kind in TARGETS for seed in (0, 2)
    ]
    there = sizes(target)
    found = [[there.get((kind, seed), 0) for seed in range(5)] for kind in TARGETS]
    assert found == [[30_000, 30_000, 30_000, 600, 0], [30_000, 30_000, 600, 600, 0]]
    assert MAKER.merge(source, target) == []


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / FILES["action", 0]
    path.parent.mkdir(parents=True)
    path.write_bytes(b"torn")
    with pytest.raises(UserError, match=r"action-seed0\.safetensors is damaged \("):
        sizes(tmp_path)
