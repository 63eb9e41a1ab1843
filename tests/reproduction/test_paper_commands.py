"""`emi paper` from the command line: list, run, collect, draw, and what it says when it cannot."""

import dataclasses
import errno
import gzip
import json
import os
from pathlib import Path

import pytest
from results_tree import write_group, write_sample

from emi.cli import main
from emi.sweeps.sweep import Cell
from emi.reproduction import ablation, coefficient_search, commands, embedding_paths, emi_d_coefficient
from emi.reproduction.catalogue import EXPERIMENTS
from emi.reproduction.commands import planned, scaled_steps
from emi.reproduction.experiment import Budget, Experiment, Group, find, finished_run
from emi.reproduction.tasks import task

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
    "rounding",
    "sb3_success",
    "report_page",
]


METHODS = ("emi", "emi-d", "ex2")  # of which there are runs; few, for every panel takes its time


def fill(results: Path) -> None:
    """Two seeds of every group of these methods on SparseHalfCheetah, and one embedding."""
    shared = (group for e in EXPERIMENTS for group in e.groups)
    groups = {group.place: group for group in sorted(shared, key=lambda group: len(group.seeds))}
    for group in groups.values():
        if group.env == "SparseHalfCheetah" and group.method in METHODS:
            write_group(results, group, (220.0, 10.0) if group.method == "emi" else (150.0, 90.0))
    (emi,) = task("SparseHalfCheetah", ("emi",), (0,))
    write_sample(emi.directory(results, 0) / "embedding.safetensors")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("paper") / "results"
    fill(root)
    return root


def words(*parts: object) -> list[str]:
    return ["paper", *map(str, parts)]


def test_list_has_every_experiment_with_its_question_and_what_is_there(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words("list", "--results", results)) == 0
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
    assert main(words("draw", "--results", results, "--out", whole)) == 0
    said = capsys.readouterr()
    assert said.err == ""
    stems = {path.stem for path in whole.iterdir()}
    worlds = {"embedding_paths_SparseHalfCheetah", "error_model_SparseHalfCheetah"}
    assert stems == {*NAMES, *worlds} - {
        "embedding_paths",
        "atari_curves",
        "box_image",
        "sb3_success",
    }
    assert all(str(path) in said.out.splitlines() for path in whole.iterdir())
    # Nothing is scaled, and nothing says so.
    assert not any(b"SCALED" in path.read_bytes() for path in whole.iterdir())
    # One line for each missing group, with all that lack it.
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
    assert main(words("draw", *names, "--results", results, "--out", again)) == 0
    drawn = sorted(again.iterdir())
    assert {path.stem for path in drawn} == {*names, "error_model_SparseHalfCheetah"}
    assert all(path.read_bytes() == (whole / path.name).read_bytes() for path in drawn)


def test_scaled_runs_are_marked_in_figure_and_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_group(tmp_path, ablation.GROUPS[0], [1.0, 2.0], scale=0.02)
    write_group(tmp_path, ablation.GROUPS[2], [3.0, 4.0])
    assert main(words("draw", "ablation", "--results", tmp_path)) == 0
    mark = "SCALED: SparseHalfCheetah at 0.1M of 5M steps"
    figures = tmp_path / "figures"
    assert f"**{mark}**" in (figures / "ablation.md").read_text().splitlines()
    assert mark in (figures / "ablation.svg").read_text()
    assert f"ablation: {mark}" in capsys.readouterr().out.splitlines()


def test_unfinished_runs_are_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_group(tmp_path, ablation.GROUPS[0], [1.0, 2.0], iterations=999)
    # Another has just begun: in its first iteration a run has a config and no metrics.
    (group,) = task("SparseHalfCheetah", ("trpo",), (0,))
    write_group(tmp_path, group, [1.0])
    (group.directory(tmp_path, 0) / "metrics.csv.gz").unlink()
    assert finished_run(group, tmp_path, 0) is None
    assert main(words("draw", "ablation", "--results", tmp_path)) == 0
    line, *_ = capsys.readouterr().out.splitlines()
    place = "ablation_no_information/SparseHalfCheetah/emi"
    assert line == f"missing: {place} seeds 0-4, 5M steps (ablation)"
    assert not (tmp_path / "figures").exists()
    assert main(words("collect", "ablation", "--runs", tmp_path, "--results", "nowhere")) == 0
    said = [f"not finished: {tmp_path / place / f'seed{seed}'}" for seed in (0, 1)]
    assert capsys.readouterr().out.splitlines() == [*said, f"nothing new below {tmp_path}"]


def test_a_run_must_have_the_whole_preset_of_its_group(tmp_path: Path) -> None:
    (group,) = task("SparseHalfCheetah", ("trpo",), (0,))
    write_group(tmp_path, group, [1.0])
    path = group.directory(tmp_path, 0) / "config.json"
    config = json.loads(path.read_text())
    config["threads"], config["trpo"]["slices"] = 7, 3  # as fast or as slow as one likes
    del config["trpo"]["damping"]  # before there was such an option
    path.write_text(json.dumps(config))
    assert finished_run(group, tmp_path, 0) is not None
    config["trpo"]["max_kl"] = 0.5
    path.write_text(json.dumps(config))
    with pytest.raises(ValueError, match=r"was run with trpo\.max_kl=0\.5 and not 0\.01: move"):
        finished_run(group, tmp_path, 0)
    assert finished_run(dataclasses.replace(group, past=True), tmp_path, 0) is not None


def test_a_run_with_other_settings_is_not_drawn_as_what_it_is_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, wrong = ablation.GROUPS[2], ablation.GROUPS[1]
    write_group(tmp_path, whole, [1.0])
    wrong.directory(tmp_path, 0).parent.mkdir(parents=True)
    whole.directory(tmp_path, 0).rename(wrong.directory(tmp_path, 0))
    write_group(tmp_path, coefficient_search.EXPERIMENT.groups[0], [0.0, 0.0])
    assert main(words("draw", "ablation", "coefficient_search", "--results", tmp_path)) == 1
    said = capsys.readouterr()
    sentence = "was run with intrinsic.error_model=True and not False"
    assert said.err.startswith("emi: ablation is not drawn: ")
    assert sentence in said.err
    assert said.err.count("\n") == 1
    assert str(tmp_path / "figures" / "coefficient_search.md") in said.out  # the others are


@pytest.mark.parametrize(
    ("typed", "sentence"),
    [
        (["draw", "abblation"], "unknown table or figure 'abblation': did you mean 'ablation'?"),
        (["run", "nonsense"], "unknown table or figure 'nonsense': see 'emi paper list'"),
        (["run", "ablation", "--scale", "2"], "--scale lies above 0 and not above 1, got 2"),
        (["run", "rounding", "--seeds", "3"], "there is nothing to run"),
        (["run", "ablation", "--seeds", "x"], "--seeds takes numbers like 0-4,7, got 'x'"),
        (["run"], "the following arguments are required: NAME"),
        (["draw", "--results", "typo"], "typo is no folder: give that of the results"),
        (["list", "--results", "/dev/null"], "/dev/null is no folder: give that of the results"),
        (["collect", "--runs", "x", "--results", "./x"], "--runs and --results are both x"),
    ],
)
def test_bad_input_is_one_sentence(
    typed: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words(*typed)) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"emi: {sentence}")
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("metrics.csv.gz", gzip.compress(b"iteration\n" * 99)[:-9]),
        ("metrics.csv.gz", gzip.compress(b"")),
        ("config.json", b"{"),
        ("config.json", b"{}"),
        ("provenance.json", None),
    ],
)
def test_a_damaged_run_is_named_and_the_rest_is_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, content: bytes | None
) -> None:
    write_group(tmp_path, ablation.GROUPS[0], [1.0, 2.0])
    write_group(tmp_path, coefficient_search.EXPERIMENT.groups[0], [0.0, 0.0])
    damaged = ablation.GROUPS[0].directory(tmp_path, 1)
    if content is None:
        (damaged / name).unlink()
    else:
        (damaged / name).write_bytes(content)
    assert main(words("draw", "ablation", "coefficient_search", "--results", tmp_path)) == 1
    said = capsys.readouterr()
    assert said.err.startswith(f"emi: ablation is not drawn: {damaged} cannot be read as a run (")
    assert said.err.count("\n") == 1
    assert str(tmp_path / "figures" / "coefficient_search.md") in said.out


def test_another_run_replaces_one_with_a_word(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    group = ablation.GROUPS[0]
    for root, final in (("old", 1.0), ("new", 2.0)):
        write_group(tmp_path / root, group, [final])
    path = group.directory(tmp_path / "new", 0) / "provenance.json"
    path.write_text(path.read_text().replace("c0ffee", "decaf"))
    old = group.directory(tmp_path / "old", 0)
    for said in ([f"replaced: {old} was of commit c0ffee and now decaf", str(old)], [str(old)]):
        typed = ["collect", "ablation", "--runs", tmp_path / "new", "--results", tmp_path / "old"]
        assert main(words(*typed)) == 0
        assert capsys.readouterr().out.splitlines() == said


def test_a_full_disk_leaves_the_manifest_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_group(tmp_path / "runs", ablation.GROUPS[0], [1.0])
    results = tmp_path / "results"
    results.mkdir()
    before = "run,commit,command,seed,machine,minutes\nold,c,emi,0,m,1.0\n"
    (results / "MANIFEST.csv").write_text(before)
    sync = os.fsync

    def full(descriptor: int) -> None:
        if "MANIFEST" in os.readlink(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    typed = ["collect", "ablation", "--runs", tmp_path / "runs", "--results", results]
    assert main(words(*typed)) == 1
    sentence = "emi: cannot write: no space left on device: mend that and run this again\n"
    assert capsys.readouterr().err == sentence
    assert (results / "MANIFEST.csv").read_text() == before
    assert [path.name for path in results.iterdir() if path.is_file()] == ["MANIFEST.csv"]


def test_what_comes_next_is_said_with_the_folders_that_were_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names: list[str] = []

    def done(cells: list[Cell], **options: object) -> int:
        names.extend(cell.name for cell in cells)
        return 0

    monkeypatch.setattr(commands, "sweep", done)
    monkeypatch.chdir(tmp_path)
    assert main(words("run", "ablation", "--seeds", "0", "--results", "my results")) == 0
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


def test_only_what_results_lack_is_planned_when_asked(tmp_path: Path) -> None:
    write_group(tmp_path, ablation.GROUPS[2], [1.0] * 4)
    (experiment,) = (e for e in EXPERIMENTS if e.name == "loss_convergence")
    assert len(planned([experiment], tmp_path / "runs", Budget())) == 5
    (cell,) = planned([experiment], tmp_path / "runs", Budget(), tmp_path)
    assert cell.config.seed == 4


def test_a_scaled_run_is_not_the_whole_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_group(tmp_path, ablation.GROUPS[2], [1.0] * 5, scale=0.1)
    (experiment,) = (e for e in EXPERIMENTS if e.name == "loss_convergence")
    assert len(planned([experiment], tmp_path / "runs", Budget(), tmp_path)) == 5
    assert planned([experiment], tmp_path / "runs", Budget(scale=0.1), tmp_path) == []
    main(words("list", "--results", tmp_path))
    (line,) = (x for x in capsys.readouterr().out.splitlines() if x.startswith("loss_convergence"))
    assert line.endswith("(5 of 5 runs, 5 of them scaled)")


def test_what_cannot_be_run_again_is_not_planned(tmp_path: Path) -> None:
    (experiment,) = (e for e in EXPERIMENTS if e.name == "rounding")
    (cell,) = planned([experiment], tmp_path, Budget())
    assert cell.path.parts[-4] == "sparse_half_cheetah"


def test_run_collect_and_draw_from_end_to_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two groups of a world that is there in a second; the real sweep, three iterations each."""
    world = "gym:MountainCarContinuous-v0"
    small = ("steps_per_iteration=1000", "num_envs=1")  # an episode has 999 steps
    groups = (
        Group("small_plain", world, "trpo", (0,), 5_000, small, "α = 0"),
        Group("small_bonus", world, "emi", (0,), 5_000, (*small, "intrinsic.epochs=1"), "α"),
    )
    tiny = Experiment("tiny", "Does it run?", "does.", groups, emi_d_coefficient.EXPERIMENT.draw)
    monkeypatch.setattr(commands, "named", lambda names: (tiny,))
    runs, results = tmp_path / "runs", tmp_path / "results"
    typed = words("run", "tiny", "--scale", "0.1", "--out", runs, "--jobs", 1)
    assert main(typed) == 0
    said = capsys.readouterr().out
    assert "2 runs: 2 done" in said
    assert f"next: emi paper collect tiny --runs {runs}" in said
    directory = groups[0].directory(runs, 0)
    assert directory == runs / "small_plain/gym-MountainCarContinuous-v0/trpo/seed0"
    assert json.loads((directory / "config.json").read_text())["steps"] == 3_000
    # Started again, it does nothing twice.
    assert main(typed) == 0
    assert "2 runs: 2 skipped" in capsys.readouterr().out

    assert main(words("collect", "tiny", "--runs", runs, "--results", results)) == 0
    collected = capsys.readouterr().out.splitlines()
    assert collected == [str(group.directory(results, 0)) for group in groups]
    _, *manifest = (results / "MANIFEST.csv").read_text().splitlines()
    assert [row.partition(",")[0] for row in manifest] == [
        "small_bonus/gym-MountainCarContinuous-v0/emi/seed0",
        "small_plain/gym-MountainCarContinuous-v0/trpo/seed0",
    ]
    assert main(words("draw", "tiny", "--results", results)) == 0
    drawn = capsys.readouterr().out.splitlines()
    assert drawn[-1] == f"tiny: SCALED: {world} at 0.003M of 0.005M steps"
    assert drawn[:-1] == [
        str(results / f"figures/tiny.{kind}") for kind in ("png", "svg", "md", "csv")
    ]


def test_collect_keeps_the_longer_run_and_takes_the_embedding_along(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs, results = tmp_path / "runs", tmp_path / "results"
    (group,) = task("SparseHalfCheetah", ("emi",), (0, 1))
    write_group(results, group, [7.0])
    write_group(runs, group, [1.0, 2.0], scale=0.1)
    for seed in (0, 1):
        write_sample(group.directory(runs, seed) / "embedding.safetensors")
    assert main(words("collect", "loss_convergence", "--runs", runs, "--results", results)) == 0
    kept, copied = capsys.readouterr().out.splitlines()
    assert kept == f"kept: {group.directory(results, 0)} has 5M steps, the new run 0.5M"
    assert copied == str(group.directory(results, 1))
    assert not list(group.directory(results, 1).glob("embedding*"))  # nothing draws it

    # The sample of a run that was not taken must not stand beside another run.
    asked = words("collect", "embedding_paths", "--runs", runs, "--results", results)
    sample = group.directory(results, 0) / "embedding.safetensors.gz"
    assert main(asked) == 0
    assert not sample.exists()
    for path in group.directory(results, 0).iterdir():
        path.unlink()
    capsys.readouterr()
    assert main(asked) == 0
    assert capsys.readouterr().out.splitlines() == [str(sample.parent), str(sample)]
    assert main(asked) == 0  # the same run again: the same bytes again
    made = group.directory(runs, 0) / "embedding.safetensors"
    assert gzip.decompress(sample.read_bytes()) == made.read_bytes()
    # Another run in its place takes the old sample with it, whatever was named.
    longer = tmp_path / "longer"
    write_group(longer, group, [9.0])
    collect_longer = words("collect", "table_1", "--runs", longer, "--results", results)
    assert main(collect_longer) == 0
    assert not sample.exists()
    write_sample(group.directory(longer, 0) / "embedding.safetensors", steps=60)
    assert main(collect_longer) == 0
    made = group.directory(longer, 0) / "embedding.safetensors"
    assert gzip.decompress(sample.read_bytes()) == made.read_bytes()
    # Either form can be drawn.
    for root in (runs, results):
        assert find(embedding_paths.EXPERIMENT, root).missing_files == tuple(
            name for name in embedding_paths.EXPERIMENT.files if "SparseHalf" not in name
        )
