"""`emi paper` from the command line: list, run, collect, draw, and its errors."""

import dataclasses
import errno
import gzip
import json
import os
from pathlib import Path

import pytest
from results_tree import change_record, unpack_arm, write_arm, write_sample

from emi.cli import main
from emi.errors import UserError
from emi.report.load import load_run
from emi.report.packed import embedding_file, metrics_file, read_records
from emi.reproduction import (
    ablation,
    coefficient_search,
    commands,
    embedding_paths,
)
from emi.reproduction.catalogue import EXPERIMENTS
from emi.reproduction.collect import commits_of
from emi.reproduction.commands import planned, scaled_steps
from emi.reproduction.drawing import draw_returns
from emi.reproduction.experiment import Arm, Budget, Experiment, find, finished_run
from emi.reproduction.tasks import task
from emi.sweeps.sweep import Cell

NAMES = [
    "table_1",
    "embedding_paths",
    "locomotion_curves",
    "ablation",
    "atari_curves",
    "box_image",
    "emi_d_comparison",
    "emi_d_coefficient",
    "loss_convergence",
    "error_model",
    "statistical_tests",
    "performance_profile",
    "coefficient_search",
    "open_choices",
    "paper_settings",
    "paths_per_batch",
    "baseline_settings",
    "robust",
    "robust_parts",
    "dense_task",
    "development",
    "rounding",
    "sb3_success",
    "sb3_sac",
    "sb3_sac_decay",
    "sb3_dqn",
    "recipe",
    "recipe_coefficients",
    "door_key",
    "benchmark",
    "benchmark_search",
    "crossing",
    "noisy_tv",
    "planning_box",
    "planning_wall",
    "planning_maze",
    "planning_choices",
    "report_page",
]


METHODS = ("emi", "emi-d", "ex2")  # of which there are runs; few, for every panel takes its time


def fill(results: Path) -> None:
    """Two seeds of every arm of these methods on SparseHalfCheetah, and one embedding."""
    shared = (arm for e in EXPERIMENTS for arm in e.arms)
    arms = {arm.place: arm for arm in sorted(shared, key=lambda arm: len(arm.seeds))}
    for arm in arms.values():
        if arm.env == "SparseHalfCheetah" and arm.method in METHODS:
            write_arm(results, arm, (220.0, 10.0) if arm.method == "emi" else (150.0, 90.0))
    (emi,) = task("SparseHalfCheetah", ("emi",), (0,))
    write_sample(emi.path(results, 0))


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("paper") / "results"
    fill(root)
    return root


def paper(*parts: object) -> list[str]:
    return ["paper", *map(str, parts)]


def test_list_has_every_experiment_with_its_question_and_available_runs(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(paper("list", "--results", results)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == NAMES
    assert all(
        e.question.endswith("?") and e.question in line
        for e, line in zip(EXPERIMENTS, lines, strict=True)
    )
    assert lines[3].endswith("(6 of 15 runs)")
    assert lines[1].endswith("(1 of 3 runs, 1 of 3 files)")


def test_everything_is_drawn_and_the_same_runs_give_the_same_bytes(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, again = tmp_path / "whole", tmp_path / "again"
    assert main(paper("draw", "--results", results, "--out", whole)) == 0
    said = capsys.readouterr()
    assert said.err == ""
    stems = {path.stem for path in whole.iterdir()}
    of_environments = {"embedding_paths_SparseHalfCheetah", "error_model_SparseHalfCheetah"}
    assert stems == {*NAMES, *of_environments} - {
        "embedding_paths",
        "atari_curves",
        "box_image",
        "dense_task",
        "sb3_success",
        "sb3_sac",
        "sb3_sac_decay",
        "sb3_dqn",
        "recipe",
        "recipe_coefficients",
        "door_key",
        "benchmark_search",
        "noisy_tv",
        "planning_box",
        "planning_wall",
        "planning_maze",
        "planning_choices",
    }
    assert all(str(path) in said.out.splitlines() for path in whole.iterdir())
    # Nothing is scaled, and nothing says so.
    assert not any(b"SCALED" in path.read_bytes() for path in whole.iterdir())
    # One line for each missing arm, with all that lack it.
    missing = [line for line in said.out.splitlines() if line.startswith("missing: ")]
    assert len(missing) == len(set(missing))
    error_model = "ablation_no_error_model/SparseHalfCheetah/emi seeds 2-4, 5M steps"
    assert f"missing: {error_model} (ablation, report_page)" in missing
    venture = "atari/Venture/rnd seeds 0-4, 50M steps"
    wanted = "table_1, atari_curves, emi_d_comparison, report_page"
    assert f"missing: {venture} ({wanted})" in missing
    assert "missing: box_image/state-seed4.safetensors (box_image)" in missing

    # A table with a bootstrap, points in a raster, curves: by name, and only what was named.
    names = ("statistical_tests", "error_model", "rounding")
    assert main(paper("draw", *names, "--results", results, "--out", again)) == 0
    drawn = sorted(again.iterdir())
    assert {path.stem for path in drawn} == {*names, "error_model_SparseHalfCheetah"}
    assert all(path.read_bytes() == (whole / path.name).read_bytes() for path in drawn)


def test_scaled_runs_are_marked_in_figure_and_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_arm(tmp_path, ablation.ARMS[0], [1.0, 2.0], scale=0.02)
    write_arm(tmp_path, ablation.ARMS[2], [3.0, 4.0])
    assert main(paper("draw", "ablation", "--results", tmp_path)) == 0
    mark = "SCALED: SparseHalfCheetah at 0.1M of 5M steps"
    figures = tmp_path / "figures"
    assert f"**{mark}**" in (figures / "ablation.md").read_text().splitlines()
    assert (figures / "ablation.png").exists()
    assert f"ablation: {mark}" in capsys.readouterr().out.splitlines()


def test_unfinished_runs_are_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_arm(tmp_path, ablation.ARMS[0], [1.0, 2.0], iterations=999)
    # Another has just begun: in its first iteration a run has a config and no metrics.
    (arm,) = task("SparseHalfCheetah", ("trpo",), (0,))
    write_arm(tmp_path, arm, [1.0])
    metrics_file(arm.path(tmp_path, 0)).unlink()
    assert finished_run(arm, tmp_path, 0) is None
    assert main(paper("draw", "ablation", "--results", tmp_path)) == 0
    line, *_ = capsys.readouterr().out.splitlines()
    place = "ablation_no_information/SparseHalfCheetah/emi"
    assert line == f"missing: {place} seeds 0-4, 5M steps (ablation)"
    assert not (tmp_path / "figures").exists()
    assert main(paper("collect", "ablation", "--runs", tmp_path, "--results", "nowhere")) == 0
    said = [f"not finished: {tmp_path / place / f'seed{seed}'}" for seed in (0, 1)]
    assert capsys.readouterr().out.splitlines() == [*said, f"nothing new below {tmp_path}"]


def test_a_run_must_have_the_whole_preset_of_its_group(tmp_path: Path) -> None:
    (arm,) = task("SparseHalfCheetah", ("trpo",), (0,))
    write_arm(tmp_path, arm, [1.0])
    trpo = load_run(arm.path(tmp_path, 0)).config["trpo"]
    del trpo["damping"]  # as before this setting existed
    change_record(tmp_path, arm, 0, threads=7, trpo=trpo | {"slices": 3})
    assert finished_run(arm, tmp_path, 0) is not None
    change_record(tmp_path, arm, 0, trpo=trpo | {"max_kl": 0.5})
    with pytest.raises(UserError, match=r"was run with trpo\.max_kl=0\.5 and not 0\.01: move"):
        finished_run(arm, tmp_path, 0)
    assert finished_run(dataclasses.replace(arm, past=True), tmp_path, 0) is not None


def test_a_run_with_other_settings_is_not_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, wrong = ablation.ARMS[2], ablation.ARMS[1]
    write_arm(tmp_path, whole, [1.0])
    (tmp_path / whole.folder).rename(tmp_path / wrong.folder)
    write_arm(tmp_path, coefficient_search.EXPERIMENT.arms[0], [0.0, 0.0])
    assert main(paper("draw", "ablation", "coefficient_search", "--results", tmp_path)) == 1
    said = capsys.readouterr()
    sentence = "was run with intrinsic.error_model=True and not False"
    assert said.err.startswith(f"emi: {wrong.path(tmp_path, 0)} {sentence}")
    assert said.err.count("\n") == 1
    assert not (tmp_path / "figures" / "ablation.md").exists()
    assert str(tmp_path / "figures" / "coefficient_search.md") in said.out  # the others are


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["draw", "abblation"], "unknown table or figure 'abblation': did you mean 'ablation'?"),
        (["run", "nonsense"], "unknown table or figure 'nonsense': see 'emi paper list'"),
        (["run", "ablation", "--scale", "2"], "--scale must be above 0 and at most 1, got 2"),
        (["run", "rounding", "--seeds", "3"], "there is nothing to run"),
        (["run", "ablation", "--seeds", "x"], "--seeds takes numbers like 0-4,7, got 'x'"),
        (["run"], "the following arguments are required: NAME"),
        (["draw", "--results", "typo"], "typo is not a folder: give the folder of the results"),
        (["list", "--results", "/dev/null"], "/dev/null is not a folder: give the folder"),
        (["collect", "--runs", "x", "--results", "./x"], "--runs and --results are both x"),
    ],
)
def test_bad_input_is_one_sentence(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(paper(*arguments)) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"emi: {sentence}")
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("file", "content", "sentence"),
    [
        (
            "seed1.csv.gz",
            gzip.compress(b"i\n" * 99, mtime=0)[:-9],
            "emi/seed1 cannot be read as a run",
        ),
        ("seed1.csv.gz", gzip.compress(b"", mtime=0), "emi/seed1 cannot be read as a run"),
        ("../../runs.json", b"{", "runs.json is damaged"),
    ],
    ids=["cut", "empty", "metadata"],
)
def test_a_damaged_run_is_named_and_the_rest_is_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], file: str, content: bytes, sentence: str
) -> None:
    write_arm(tmp_path, ablation.ARMS[0], [1.0, 2.0])
    write_arm(tmp_path, coefficient_search.EXPERIMENT.arms[0], [0.0, 0.0])
    (ablation.ARMS[0].path(tmp_path, 1).parent / file).resolve().write_bytes(content)
    assert main(paper("draw", "ablation", "coefficient_search", "--results", tmp_path)) == 1
    said = capsys.readouterr()
    assert said.err.startswith(f"emi: {tmp_path}/ablation_no_information/")
    assert f"{sentence} (" in said.err
    assert said.err.count("\n") == 1
    assert str(tmp_path / "figures" / "coefficient_search.md") in said.out
    # The rest of the damaged experiment as well, if there is any.
    place = f"missing: {ablation.ARMS[0].place} seeds "
    assert (f"{place}1-4" in said.out) == (str(tmp_path / "figures" / "ablation.md") in said.out)
    assert (f"{place}0-4" in said.out) == (file == "../../runs.json")
    assert main(paper("list", "--results", tmp_path)) == 0
    listed = capsys.readouterr()
    assert listed.err == said.err
    whole = len(listed.out.splitlines())
    assert main(paper("list")) == 0
    assert whole == len(capsys.readouterr().out.splitlines())


@pytest.mark.parametrize(
    ("name", "content"),
    [("config.json", b"{"), ("config.json", b"{}"), ("provenance.json", None)],
)
def test_a_damaged_run_directory_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, content: bytes | None
) -> None:
    write_arm(tmp_path, ablation.ARMS[0], [1.0])
    damaged = unpack_arm(tmp_path, ablation.ARMS[0], 0)
    if content is None:
        (damaged / name).unlink()
    else:
        (damaged / name).write_bytes(content)
    assert main(paper("draw", "ablation", "--results", tmp_path)) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"emi: {damaged} cannot be read as a run (")
    assert error.count("\n") == 1


def test_replacing_a_run_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arm = ablation.ARMS[0]
    for root, final in (("old", 1.0), ("new", 2.0)):
        write_arm(tmp_path / root, arm, [final])
    path = tmp_path / "new" / arm.folder / "runs.json"
    path.write_text(path.read_text().replace("c0ffee", "decaf"))
    old = arm.path(tmp_path / "old", 0)
    for said in ([f"replaced: {old} was of commit c0ffee and now decaf", str(old)], [str(old)]):
        arguments = [
            "collect",
            "ablation",
            "--runs",
            tmp_path / "new",
            "--results",
            tmp_path / "old",
        ]
        assert main(paper(*arguments)) == 0
        assert capsys.readouterr().out.splitlines() == said


def test_a_full_disk_leaves_the_manifest_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_arm(tmp_path / "runs", ablation.ARMS[0], [1.0])
    results = tmp_path / "results"
    results.mkdir()
    before = "run,commit,command,seed,machine,minutes\nold,c,emi,0,m,1.0\n"
    (results / "MANIFEST.csv").write_text(before)
    sync = os.fsync

    def full(descriptor: int) -> None:
        # MANIFEST.csv is the only file in this folder itself; it is written under another name.
        if Path(os.readlink(f"/proc/self/fd/{descriptor}")).parent == results:
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    arguments = ["collect", "ablation", "--runs", tmp_path / "runs", "--results", results]
    assert main(paper(*arguments)) == 1
    sentence = "emi: cannot write: no space left on device: fix that and run this again\n"
    assert capsys.readouterr().err == sentence
    assert (results / "MANIFEST.csv").read_text() == before
    assert [path.name for path in results.iterdir() if path.is_file()] == ["MANIFEST.csv"]


def test_the_next_commands_name_the_given_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names: list[str] = []

    def done(cells: list[Cell], **options: object) -> int:
        names.extend(cell.name for cell in cells)
        return 0

    monkeypatch.setattr(commands, "sweep", done)
    monkeypatch.chdir(tmp_path)
    assert main(paper("run", "ablation", "--seeds", "0", "--results", "my results")) == 0
    assert capsys.readouterr().out.splitlines() == [
        "next: emi paper collect ablation --runs runs/paper --results 'my results'",
        "then: emi paper draw ablation --results 'my results'",
    ]
    run = "SparseHalfCheetah emi seed 0"
    variants = ["ablation_no_information", "ablation_no_error_model"]
    assert names == [*(f"{variant}: {run}" for variant in variants), run]


def test_a_scaled_budget_keeps_a_few_iterations() -> None:
    (cheetah,) = task("SparseHalfCheetah", ("emi",))
    assert scaled_steps(cheetah, 1) == 5_000_000
    assert scaled_steps(cheetah, 0.02) == 100_000
    assert scaled_steps(cheetah, 1e-6) == 3 * 5_000
    (game,) = task("Freeway", ("trpo",))
    assert scaled_steps(game, 0.02) == 1_000_000


def test_all_groups_are_planned_once_and_seed_by_seed(tmp_path: Path) -> None:
    experiments = tuple(e for e in EXPERIMENTS if e.name in ("ablation", "loss_convergence"))
    cells = planned(experiments, tmp_path, Budget(seeds=(0, 3), scale=0.02))
    assert [(cell.path.relative_to(tmp_path).as_posix(), cell.config.seed) for cell in cells] == [
        (f"{folder}/SparseHalfCheetah/emi/seed{seed}", seed)
        for seed in (0, 3)
        for folder in ("ablation_no_information", "ablation_no_error_model", "sparse_half_cheetah")
    ]
    assert [cell.config.steps for cell in cells] == [100_000] * 6
    without = {cell.path.parts[-4]: cell.config.intrinsic for cell in cells}
    assert without["ablation_no_information"].information_term is False  # type: ignore[union-attr]
    assert without["ablation_no_error_model"].error_model is False  # type: ignore[union-attr]
    assert without["sparse_half_cheetah"].error_model is True  # type: ignore[union-attr]


def test_only_missing_runs_are_planned_if_asked(tmp_path: Path) -> None:
    write_arm(tmp_path, ablation.ARMS[2], [1.0] * 4)
    (experiment,) = (e for e in EXPERIMENTS if e.name == "loss_convergence")
    assert len(planned([experiment], tmp_path / "runs", Budget())) == 5
    (cell,) = planned([experiment], tmp_path / "runs", Budget(), tmp_path)
    assert cell.config.seed == 4


def test_methods_can_be_chosen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (experiment,) = (e for e in EXPERIMENTS if e.name == "robust")
    cells = planned([experiment], tmp_path, Budget(seeds=(30, 31), methods=("icm", "rnd")))
    assert [(cell.config.method, cell.config.seed) for cell in cells] == [
        ("icm", 30),
        ("rnd", 30),
        ("icm", 31),
        ("rnd", 31),
    ]
    assert main(paper("run", "robust", "--methods", "icm,vime")) == 2
    assert "robust has no runs of vime: --methods can be emi, ex2, icm" in capsys.readouterr().err
    assert main(paper("run", "box_image", "--methods", "emi")) == 2
    assert "box_image has no runs of methods" in capsys.readouterr().err


def test_a_scaled_run_does_not_replace_the_full_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_arm(tmp_path, ablation.ARMS[2], [1.0] * 5, scale=0.1)
    (experiment,) = (e for e in EXPERIMENTS if e.name == "loss_convergence")
    assert len(planned([experiment], tmp_path / "runs", Budget(), tmp_path)) == 5
    assert planned([experiment], tmp_path / "runs", Budget(scale=0.1), tmp_path) == []
    main(paper("list", "--results", tmp_path))
    (line,) = (x for x in capsys.readouterr().out.splitlines() if x.startswith("loss_convergence"))
    assert line.endswith("(5 of 5 runs, 5 of them scaled)")


def test_runs_of_an_earlier_version_are_not_planned(tmp_path: Path) -> None:
    (experiment,) = (e for e in EXPERIMENTS if e.name == "rounding")
    (cell,) = planned([experiment], tmp_path, Budget())
    assert cell.path.parts[-4] == "sparse_half_cheetah"


def test_run_collect_and_draw_from_end_to_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two arms of a fast environment, trained by a real sweep for three iterations each."""
    env = "gym:MountainCarContinuous-v0"
    small = ("steps_per_iteration=1000", "num_envs=1")  # an episode has 999 steps
    arms = (
        Arm("small_plain", env, "trpo", (0,), 5_000, small, "α = 0"),
        Arm("small_bonus", env, "emi", (0,), 5_000, (*small, "intrinsic.epochs=1"), "α"),
    )
    tiny = Experiment("tiny", "Does it run?", "does.", draw_returns, arms)
    monkeypatch.setattr(commands, "named", lambda names: (tiny,))
    runs, results = tmp_path / "runs", tmp_path / "results"
    arguments = paper("run", "tiny", "--scale", "0.1", "--out", runs, "--jobs", 1)
    assert main(arguments) == 0
    said = capsys.readouterr().out
    assert "2 runs: 2 done" in said
    assert f"next: emi paper collect tiny --runs {runs}" in said
    directory = arms[0].path(runs, 0)
    assert directory == runs / "small_plain/gym-MountainCarContinuous-v0/trpo/seed0"
    assert json.loads((directory / "config.json").read_text())["steps"] == 3_000
    # Started again, it does nothing twice.
    assert main(arguments) == 0
    assert "2 runs: 2 skipped" in capsys.readouterr().out

    assert main(paper("collect", "tiny", "--runs", runs, "--results", results)) == 0
    collected = capsys.readouterr().out.splitlines()
    assert collected == [str(arm.path(results, 0)) for arm in arms]
    (record,) = read_records(results / "small_bonus").values()
    assert record.config["steps"] == 3_000
    changed = {"intrinsic.epochs", "num_envs", "steps", "steps_per_iteration"}
    assert changed <= set(record.provenance["changed"])
    _, *manifest = (results / "MANIFEST.csv").read_text().splitlines()
    assert [row.partition(",")[0] for row in manifest] == [
        "small_bonus/gym-MountainCarContinuous-v0/emi/seed0",
        "small_plain/gym-MountainCarContinuous-v0/trpo/seed0",
    ]
    # The sweep handed over a config file; the manifest has the command that is equivalent to it.
    command = manifest[0].split(",")[2]
    assert command.startswith(f"emi train {env} --method emi --seed 0 --steps 3000 ")
    assert command.endswith("--set intrinsic.epochs=1 num_envs=1 steps_per_iteration=1000")
    assert main(paper("draw", "tiny", "--results", results)) == 0
    drawn = capsys.readouterr().out.splitlines()
    assert drawn[-1] == f"tiny: SCALED: {env} at 0.003M of 0.005M steps"
    assert drawn[:-1] == [str(results / "figures/tiny.png")]


def test_collect_keeps_the_longer_run_and_copies_the_embedding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs, results = tmp_path / "runs", tmp_path / "results"
    (arm,) = task("SparseHalfCheetah", ("emi",), (0, 1))
    write_arm(results, arm, [7.0])
    write_arm(runs, arm, [1.0, 2.0], scale=0.1)
    for seed in (0, 1):
        write_sample(arm.path(runs, seed))
    assert main(paper("collect", "loss_convergence", "--runs", runs, "--results", results)) == 0
    kept, copied = capsys.readouterr().out.splitlines()
    assert kept == f"kept: {arm.path(results, 0)} has 5M steps, the new run 0.5M"
    assert copied == str(arm.path(results, 1))
    assert not embedding_file(arm.path(results, 1)).exists()  # no figure needs it

    # The sample of a run that was not collected must not be stored with another run.
    asked = paper("collect", "embedding_paths", "--runs", runs, "--results", results)
    sample = embedding_file(arm.path(results, 0))
    assert main(asked) == 0
    assert not sample.exists()
    (results / arm.folder / "runs.json").unlink()
    metrics_file(arm.path(results, 0)).unlink()
    capsys.readouterr()
    assert main(asked) == 0
    assert capsys.readouterr().out.splitlines() == [str(arm.path(results, 0)), str(sample)]
    content = {path: path.read_bytes() for path in results.rglob("*") if path.is_file()}
    assert main(asked) == 0  # the same run again gives the same bytes
    assert {path: path.read_bytes() for path in results.rglob("*") if path.is_file()} == content
    assert sample.read_bytes() == embedding_file(arm.path(runs, 0)).read_bytes()
    # A run that replaces another removes its sample, whatever experiment was named.
    longer = tmp_path / "longer"
    write_arm(longer, arm, [9.0])
    collect_longer = paper("collect", "table_1", "--runs", longer, "--results", results)
    assert main(collect_longer) == 0
    assert not sample.exists()
    write_sample(arm.path(longer, 0), steps=60)
    assert main(collect_longer) == 0
    assert sample.read_bytes() == embedding_file(arm.path(longer, 0)).read_bytes()
    for root in (runs, results):
        assert find(embedding_paths.EXPERIMENT, root).missing_files == tuple(
            f"the embedding of {name}"
            for name in embedding_paths.EXPERIMENT.embeddings
            if "SparseHalf" not in name
        )


def test_a_collected_run_directory_reads_back_equal(tmp_path: Path) -> None:
    runs, results = tmp_path / "runs", tmp_path / "results"
    arm = ablation.ARMS[0]
    write_arm(runs, arm, [1.0, 2.0])
    before = {seed: load_run(unpack_arm(runs, arm, seed)) for seed in (0, 1)}
    assert main(paper("collect", "ablation", "--runs", runs, "--results", results)) == 0
    for seed, run in before.items():
        packed = load_run(arm.path(results, seed))
        assert (packed.config, packed.provenance) == (run.config, run.provenance)
        assert packed.same_metrics(run)
    names = sorted(p.relative_to(results).as_posix() for p in results.rglob("*") if p.is_file())
    assert names == [
        "MANIFEST.csv",
        "ablation_no_information/SparseHalfCheetah/emi/seed0.csv.gz",
        "ablation_no_information/SparseHalfCheetah/emi/seed1.csv.gz",
        "ablation_no_information/runs.json",
    ]
    content = metrics_file(arm.path(results, 0)).read_bytes()
    assert content[4:8] == b"\0\0\0\0"  # the time stamp of the gzip header
    header, first, _ = (results / "MANIFEST.csv").read_text().splitlines()
    assert header == "run,commit,command,seed,machine,minutes"
    key, commit, command, seed, *_ = first.split(",")
    assert (key, commit) == ("ablation_no_information/SparseHalfCheetah/emi/seed0", "c0ffee")
    assert seed == "0"
    assert command.startswith("emi train SparseHalfCheetah --method emi --seed 0 ")
    assert command.endswith(" --set intrinsic.information_term=false")
    assert first.endswith(',"some CPU, 2 cores",500.0')


def test_the_manifest_lists_all_commits_of_a_run() -> None:
    starts = [
        {"commit": commit, "modified": modified}
        for commit, modified in [("c0ffee", False), ("c0ffee", False), ("d00d", True), (None, None)]
    ]
    assert commits_of(starts) == "c0ffee d00d+modified unknown"
