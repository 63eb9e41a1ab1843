"""The recipe in PPO: the rows of a run, its file, its tables and its figure."""

from __future__ import annotations

from pathlib import Path

import pytest

from emi.adapters import Decay
from emi.errors import UserError
from emi.intrinsic.table import METHODS as TABLE
from emi.reproduction import ppo_runs, recipe, recipe_coefficients
from emi.reproduction.experiment import Budget, FileMaker, find
from emi.reproduction.ppo_runs import Finished, PPORow, Trained

FLAT = " ".join(["100"] * 20)


def row(
    arm: str, seed: int, reached: float = 1.0, steps: int = 81_920, **changes: object
) -> PPORow:
    own = PPORow(arm, seed, steps, 500, reached, -140.0, 16_000, 0.0, 0, 12.5, FLAT)
    return own._replace(**changes)  # type: ignore[arg-type]


def runs_of(*rows: PPORow) -> ppo_runs.Runs:
    return {(r.arm, r.seed): r for r in rows}


TWO = runs_of(
    row("ppo", 0),
    row("ppo", 1, 0.96, final_return=-150.0),
    row("emi", 0, late_share=0.01, first_reached=None, curve=FLAT.replace("100", "-", 1)),
    row("emi-constant", 0, 0.05, late_share=0.345, warned=1),
)


def maker_of(folder: str) -> FileMaker:
    module = {"recipe": recipe, "recipe_coefficients": recipe_coefficients}[folder]
    maker = module.EXPERIMENT.maker  # type: ignore[attr-defined]
    assert isinstance(maker, FileMaker)
    return maker


def test_a_row_by_hand() -> None:
    ends = [Finished(100 * k, -200.0 if k <= 100 else -150.0) for k in range(1, 191)]
    trained = Trained(ends, [0.9, 0.8, 0.2, 0.4], True)
    found = ppo_runs.summarise_run("emi", -200.0, 3, 20_000, trained, 1.26)
    # 90 of the last 100 reached the flag; the first after 10,100 steps, in the 11th of 20 parts.
    assert found[:6] == ("emi", 3, 20_000, 190, 0.9, -155.0)
    assert (found.first_reached, found.late_share, found.warned) == (10_100, 0.3, 1)
    assert found.seconds == 1.3
    # Parts of 1,000 steps; the episode that ends after 10,000 steps is still in the tenth.
    assert found.curve == " ".join(["0"] * 10 + ["100"] * 9 + ["-"])
    assert ppo_runs.curve_of(found)[9:11] == [0.0, 1.0]
    with pytest.raises(UserError, match="no episode ended in 10 steps"):
        ppo_runs.summarise_run("ppo", 0.0, 0, 10, Trained([], [], False), 1.0)


def test_the_arms_are_the_recipe() -> None:
    # Every method of the table but the variants of another one, and PPO alone.
    assert set(TABLE) - set(recipe.METHODS) == {"emi-d", "ae-simhash", "trpo"}
    assert [arm.method for arm in recipe.ARMS.values()] == [None, *recipe.METHODS, "emi"]
    etas = {name: arm.eta for name, arm in recipe.ARMS.items()}
    assert etas.pop("ppo") == 0.0
    assert etas.pop("emi-constant") == 1.0
    assert set(etas.values()) == {Decay()}
    # Seed by seed, and in the grid method by method of the first three.
    assert recipe.CELLS[15:17] == (("emi-constant", 0), ("ppo", 1))
    assert recipe_coefficients.CELLS[4] == ("MountainCar-v0/emi/1-to-0", 100)
    # The first six methods with five coefficients, the others with two, noise with none.
    assert len(recipe_coefficients.CELLS) == 2 * 4 * (1 + 3 * 5 + 10 * 2)
    studied = {arm.method for arm in recipe_coefficients.ARMS.values()}
    assert studied == {None, *recipe.METHODS} - {"noise"}


def test_the_file_comes_back_and_has_the_same_bytes_for_the_same_runs(tmp_path: Path) -> None:
    assert ppo_runs.load(tmp_path, recipe.ARMS) == {}
    ppo_runs.save(tmp_path / "a", TWO, recipe.ARMS)
    assert ppo_runs.load(tmp_path / "a", recipe.ARMS) == TWO
    ppo_runs.save(tmp_path / "b", dict(reversed(TWO.items())), recipe.ARMS)
    a, b = ((tmp_path / name / "runs.csv").read_bytes() for name in "ab")
    assert a == b
    lines = a.decode().splitlines()
    assert lines[0] == "arm,seed,steps,episodes,reached,final_return,first_reached,late_share," + (
        "warned,seconds,curve"
    )
    assert lines[3].startswith("emi,0,81920,500,1.0,-140.0,,0.01,0,12.5,- 100 ")


@pytest.mark.parametrize(
    ("old", "new"), [("emi-constant", "other"), (",12.5,", ",,"), (FLAT, "100"), ("0.345", "nan.0")]
)
def test_a_damaged_file_is_named(tmp_path: Path, old: str, new: str) -> None:
    ppo_runs.save(tmp_path / "recipe", TWO, recipe.ARMS)
    file = tmp_path / "recipe" / "runs.csv"
    file.write_text(file.read_text().replace(old, new))
    with pytest.raises(UserError, match=r"runs\.csv is damaged \(.*\): restore it"):
        maker_of("recipe").sizes(tmp_path)


def test_existing_runs_are_not_repeated_and_are_copied(tmp_path: Path) -> None:
    maker = maker_of("recipe")
    ppo_runs.save(tmp_path / "new" / "recipe", TWO, recipe.ARMS)
    lacking = maker.lacking(tmp_path / "new", Budget(seeds=(0,)))
    assert lacking == [(method, 0) for method in recipe.METHODS if method != "emi"]
    shorter = runs_of(row("ppo", 0, steps=16_384), row("vime", 4))
    ppo_runs.save(tmp_path / "old" / "recipe", shorter, recipe.ARMS)
    assert maker.merge(tmp_path / "new", tmp_path / "old") == [tmp_path / "old/recipe/runs.csv"]
    merged = ppo_runs.load(tmp_path / "old" / "recipe", recipe.ARMS)
    assert merged == TWO | runs_of(row("vime", 4))
    assert maker.merge(tmp_path / "new", tmp_path / "old") == []


def test_a_longer_task_counts_in_its_own_steps(tmp_path: Path) -> None:
    maker = maker_of("recipe_coefficients")
    name = "MountainCarContinuous-v0/ppo"
    ppo_runs.save(
        tmp_path / "recipe_coefficients",
        runs_of(row(name, 100, steps=3 * 61_440)),
        recipe_coefficients.ARMS,
    )
    assert maker.sizes(tmp_path) == {(name, 100): 61_440}
    assert (name, 100) not in maker.lacking(tmp_path, Budget())
    page = recipe_coefficients.draw(find(recipe_coefficients.EXPERIMENT, tmp_path), tmp_path / "p")
    assert "SCALED" not in page[0].read_text(encoding="utf-8")


def test_the_table_of_the_recipe_by_hand() -> None:
    lines = recipe.table(TWO).splitlines()
    assert lines[-3] == (
        "| PPO | 2 | 81,920 | 98% | 96% | -145.0 [-150.0, -140.0] | 16,000 | 0.00 | 0/2 | 12 |"
    )
    assert lines[-2].endswith("| 100% | 100% | -140.0 | – | 0.01 | 0/1 | 12 |")
    assert lines[-1].startswith("| PPO + EMI, constant η = 1 | 1 | 81,920 | 5% | 5% |")
    assert lines[-1].endswith("| 0.34 | 1/1 | 12 |")


def test_the_table_of_coefficients_by_hand() -> None:
    runs = runs_of(
        row("MountainCar-v0/ppo", 100, 0.5),
        row("MountainCar-v0/ppo", 101, 1.0),
        row("CartPole-v1/ppo", 100, 0.25, final_return=399.6),
        row("FrozenLake-v1/rnd/5-to-0", 100, 0.0),
        row("MountainCar-v0/emi/1", 100, 0.02),
    )
    lines = recipe_coefficients.table(runs).splitlines()
    assert lines[-3] == "| PPO | 75% (2) | – | – | 25%, 400 (1) |"
    assert lines[-2] == "| EMI, η = 1 | 2% (1) | – | – | – |"
    assert lines[-1] == "| RND, η = 5 → 0 | – | – | 0% (1) | – |"


def test_drawing_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    every = runs_of(*(row(arm, 0) for arm in recipe.ARMS)) | TWO
    ppo_runs.save(tmp_path / "recipe", every, recipe.ARMS)
    found = find(recipe.EXPERIMENT, tmp_path)
    assert found.missing_files == ()
    first, second = (recipe.draw(found, tmp_path / out / "recipe") for out in ("one", "two"))
    assert [path.suffix for path in first] == [".png", ".md"]
    for one, two in zip(first, second, strict=True):
        assert one.read_bytes() == two.read_bytes()
    assert recipe.table(every) in first[1].read_text(encoding="utf-8")
    scaled = runs_of(row("ppo", 0, steps=16_384))
    ppo_runs.save(tmp_path / "recipe", scaled, recipe.ARMS)
    page = recipe.draw(find(recipe.EXPERIMENT, tmp_path), tmp_path / "three")[1]
    assert "**SCALED: 16,384 of 81,920 steps**" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("module", [recipe, recipe_coefficients], ids=["recipe", "coefficients"])
def test_a_table_without_a_row_cannot_be_drawn(tmp_path: Path, module: object) -> None:
    experiment, arms = module.EXPERIMENT, module.ARMS  # type: ignore[attr-defined]
    ppo_runs.save(tmp_path / experiment.name, {}, arms)
    with pytest.raises(UserError, match=r"runs\.csv holds no run"):
        experiment.draw(find(experiment, tmp_path), tmp_path / "out")


def test_a_run_trains_and_sees_its_share() -> None:
    arm = recipe_coefficients.ARMS["FrozenLake-v1/icm/1-to-0"]
    trained = ppo_runs.train(arm, 100, 8_192)
    assert trained.shares[0] > 0
    assert trained.shares[1:] == [0.0, 0.0, 0.0]  # η is 0 from the end of the second of 4 rollouts
    assert len(trained.episodes) > 20
    assert trained.warned is False
    alone = ppo_runs.train(recipe.ARMS["ppo"], 100, 4_096)
    assert alone.shares == [0.0, 0.0]
    assert {episode.total for episode in alone.episodes} == {-200.0}
