"""Files of runs that are damaged or made by a stranger: what is refused, and in which words."""

import gzip
import json
import os
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from run_files import write_run, write_sample
from safetensors.numpy import save_file

from emi.cli import main
from emi.errors import UserError
from emi.report.embedding import SampledEpisode, path_rows
from emi.report.groups import group_runs
from emi.report.load import find_runs, load_run
from emi.report.metrics_table import read_metrics
from emi.report.packed import RUNS, read_records
from emi.report.privacy import clean, private_words
from emi.report.sample_file import read_sample_file

HEADER = "iteration,steps,seconds,return_mean"


def change(file: Path, **values: Any) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("env", 3, "a name"),
        ("env", "$\\frac{", "a name"),
        ("env", "a\nb", "a name"),
        ("env", "x" * 201, "a name"),
        ("method", None, "a name"),
        ("seed", -1, "a whole number from 0"),
        ("seed", True, "a whole number from 0"),
        ("steps", 10**400, "a whole number from 1"),
        ("steps", 5e6, "a whole number from 1"),
        ("steps_per_iteration", 0, "a whole number from 1"),
    ],
)
def test_a_field_of_the_config_is_named(
    tmp_path: Path, field: str, value: Any, expected: str
) -> None:
    run = write_run(tmp_path / "run", [1.0])
    change(run / "config.json", **{field: value})
    with pytest.raises(
        UserError, match=rf"\({field} in .*/config\.json must be {expected}"
    ) as caught:
        load_run(run)
    assert len(str(caught.value)) < 500 + 3 * len(str(run))


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"starts": None}, "starts in .*/provenance.json must be a list of objects, got None"),
        ({"starts": [1]}, "starts in .* must be a list of objects"),
        ({"changed": "eta"}, "changed in .* must be a list of settings, got 'eta'"),
        ({"starts": [{"machine": 3}]}, "machine of a start in .* must be an object, got 3"),
        ({"starts": [{"commit": 3}]}, "commit of a start in .* must be text, got 3"),
        ({"user": "\ud800"}, "'user' in .*/provenance.json is not valid Unicode"),
        ({"user": " ".join(map(str, range(10, 1_200)))}, "more than 1,000 people and hosts"),
    ],
)
def test_a_field_of_the_provenance_is_named(
    tmp_path: Path, values: dict[str, Any], sentence: str
) -> None:
    run = write_run(tmp_path / "run", [1.0])
    change(run / "provenance.json", **values)
    with pytest.raises(UserError, match=sentence):
        load_run(run)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('{"eta": 1e999}', "'eta' in .*/config.json must be finite"),
        ('{"eta": ' + "[" * 40 + "]" * 40 + "}", r"config\.json is nested too deeply"),
        ('{"eta": ' + "[" * 9_999 + "]" * 9_999 + "}", r"config\.json is nested too deeply"),
        ("[]", r"config\.json must be a JSON object"),
        ("{", r"config\.json is not JSON"),
        ('{"x": "' + "x" * 1_000_000 + '"}', r"config\.json is too large"),
    ],
)
def test_a_config_that_cannot_be_shown(tmp_path: Path, text: str, sentence: str) -> None:
    run = write_run(tmp_path / "run", [1.0])
    (run / "config.json").write_text(text)
    with pytest.raises(UserError, match=sentence):
        load_run(run)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "has no column iteration"),
        (HEADER, "has no column iteration"),  # the line is not complete
        ("iteration,steps,seconds\n1,2,3\n", "has no column return_mean"),
        (f"{HEADER},steps\n1,2,3,4,5\n", "has two columns of the same name"),
        (HEADER + ",x" * 1_000 + "\n", "has 1,004 columns: 1,000 are allowed"),
        (f"{HEADER}\n1,2,3,4\n2,3,4\n", "a row of .* does not hold 4 numbers"),
        (f"{HEADER}\n1,2,3\n", "a row of .* does not hold 4 numbers"),
        (f"{HEADER}\n1,2,3,secret\n", r"a row of .*/metrics\.csv does not hold 4 numbers$"),
        (f"{HEADER}\n1,nan,3,4\n", "steps in .* must increase from row to row"),
        (f"{HEADER}\n1,20,3,4\n2,10,3,4\n", "steps in .* must increase from row to row"),
        (f"{HEADER}\n1,0,3,4\n", "steps in .* must increase from row to row"),
        (f"{HEADER}\n1,2,3,inf\n", r"return_mean in .* must be below 1e\+100"),
        (f"{HEADER}\n1,2,3,-1e200\n", r"return_mean in .* must be below 1e\+100"),
        (b"\xff\xfe" + HEADER.encode() + b"\n", "does not begin with the names of its columns"),
        (f"{HEADER}\n1,2,3,\x00\n", "a row of .* does not hold 4 numbers"),
    ],
)
def test_a_metrics_file_that_cannot_be_drawn(
    tmp_path: Path, content: str | bytes, sentence: str
) -> None:
    file = tmp_path / "metrics.csv"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError, match=sentence):
        read_metrics(file)


def test_a_metrics_file_without_rows_or_with_other_line_breaks(tmp_path: Path) -> None:
    file = tmp_path / "metrics.csv"
    file.write_text(f"{HEADER}\n")
    assert read_metrics(file)["steps"].shape == (0,)
    file.write_bytes(f"{HEADER}\r\n1,5,2.5,nan\r\n2,10,5,7\r\n3,1".encode())
    metrics = read_metrics(file)
    assert metrics["seconds"].tolist() == [2.5, 5.0]
    with pytest.raises(UserError, match=r"metrics\.csv has no column emi/loss_info"):
        metrics["emi/loss_info"]
    assert metrics.get("emi/loss_info") is None


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        ("../../x", r"'\.\./\.\./x'"),
        ("/etc/x/y", r"'/etc/x/y'"),
        ("a/b", "'a/b'"),
        ("a/./b", r"'a/\./b'"),
        ("a/b/c\x00", r"'a/b/c\\x00'"),
    ],
)
def test_a_packed_run_lies_below_its_experiment(tmp_path: Path, key: str, shown: str) -> None:
    method, _, seed = key.rpartition("/")
    group = {"config": {}, "start": {}, "runs": {seed: {"config": {}, "starts": []}}}
    (tmp_path / RUNS).write_text(json.dumps({method: group}))
    with pytest.raises(UserError, match=rf"runs\.json is damaged \({shown} is not <env>/<method>"):
        read_records(tmp_path)


def _without(name: str) -> Callable[[dict[str, Any]], None]:
    return lambda sample: sample.pop(name)


def _with(name: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda sample: sample.update({name: value})


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (_without("phi"), "phi is missing"),
        (_without("env"), "env is missing"),
        (_without("frame_next"), "frame_next is missing"),
        (_with("phi", np.zeros((4, 2), np.int64)), "phi is int64 with 2 axes"),
        (_with("phi", np.zeros(4)), "phi is float64 with 1 axes"),
        (_with("clock", np.zeros((4, 1), int)), "clock is int64 with 2 axes"),
        (_with("phi", np.zeros((0, 2))), "phi has 0 rows"),
        (_with("phi", np.zeros((4, 0))), "phi has 0 columns"),
        (_with("phi", np.zeros((4, 257))), "phi has 257 columns"),
        (_with("phi", np.full((4, 2), np.nan)), "phi is not finite"),
        (_with("bonus", np.array([0, 0, 0, np.inf])), "bonus is not finite"),
        (_with("reward", np.zeros(3)), "reward has 3 rows"),
        (_with("clock", np.array([0, 1, 2, -1])), "clock is negative or too large"),
        (_with("env", np.array([0, 0, 0, 2**40])), "env is negative or too large"),
        (_with("ended", np.zeros(4)), "ended is float64 with 1 axes"),
        (_with("frame", np.zeros((4, 2, 8, 8), np.uint8)), "frame and frame_next must be bytes"),
        (_with("frame", np.zeros((4, 1, 8, 8), np.uint16)), "frame and frame_next must be bytes"),
    ],
)
def test_a_sample_that_cannot_be_drawn(
    tmp_path: Path, edit: Callable[[dict[str, Any]], None], reason: str
) -> None:
    sample = write_sample(tmp_path, [[4]], images=True)
    edit(sample)
    file = tmp_path / "embedding.safetensors"
    save_file({name: np.ascontiguousarray(value) for name, value in sample.items()}, file)
    with pytest.raises(UserError, match=rf"embedding\.safetensors is damaged \({reason}"):
        read_sample_file(file)


def test_a_sample_with_a_large_header_or_of_another_type(tmp_path: Path) -> None:
    write_sample(tmp_path, [[4]])
    file = tmp_path / "embedding.safetensors"
    content = file.read_bytes()
    file.write_bytes(content.replace(b'"F32"', b'"F16"', 1))
    with pytest.raises(UserError, match=r"embedding\.safetensors is damaged \("):
        read_sample_file(file)
    file.write_bytes((200_000).to_bytes(8, "little") + bytes(200_000))
    with pytest.raises(UserError, match="its header has more than 100,000 bytes"):
        read_sample_file(file)


def test_episodes_of_a_sample_with_many_environments() -> None:
    n = 20_000
    sample = {"env": np.arange(n)[::-1].copy(), "ended": np.zeros(n, bool)}
    assert len(path_rows(sample)) == n
    sample = {"env": np.array([1, 0, 1, 0, 1]), "ended": np.array([0, 1, 1, 0, 0], bool)}
    found = [(episode.rows.tolist(), episode.whole) for episode in path_rows(sample)]
    assert found == [([1], True), ([3], False), ([0, 2], True), ([4], False)]
    assert isinstance(path_rows(sample)[0], SampledEpisode)


@pytest.mark.parametrize("make", ["fifo", "socket", "folder", "device", "loop", "bomb"])
@pytest.mark.parametrize(
    "name", ["config.json", "provenance.json", "metrics.csv", "embedding.safetensors"]
)
def test_a_special_file_spoils_no_report(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    make: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    write_run(Path("runs/sound"), [1.0])
    write_sample(write_run(Path("runs/bad"), [2.0], seed=1), [[4]])
    file = Path("runs/bad") / name
    file.unlink()
    if make == "fifo":
        os.mkfifo(file)
    elif make == "socket":
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(file))
    elif make == "folder":
        file.mkdir()
    elif make == "device":
        file.symlink_to("/dev/zero")
    elif make == "loop":
        file.symlink_to(name)
    else:
        file.touch()
        os.truncate(file, 10**12)
    found = find_runs([Path("runs")])
    said = capsys.readouterr().err
    embedding = name == "embedding.safetensors"
    assert [run.seed for run in found.runs] == ([0, 1] if embedding else [0])
    assert all(run.embedding is None for run in found.runs)
    if make == "loop" and name in ("metrics.csv", "embedding.safetensors"):
        return  # a link that leads nowhere is no file: a run that has not begun, or has no sample
    (problem,) = found.problems
    effect = "is shown without its embedding" if embedding else "cannot be read"
    assert said == f"emi: {problem.sentence}\n"
    assert problem.sentence.startswith(f"runs/bad {effect} (")
    assert problem.remark == f"{problem.sentence}."


def test_the_rest_is_shown_and_what_is_unreadable_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for seed in range(3):
        write_sample(write_run(Path(f"runs/seed{seed}"), [1.0], seed=seed), [[4]])
    Path("runs/seed1/metrics.csv").write_text(f"{HEADER}\n1,2,3,x\n")
    Path("runs/seed2/embedding.safetensors").write_bytes(b"")
    lines = [
        "runs/seed1 cannot be read (a row of runs/seed1/metrics.csv does not hold 4 numbers)",
        "runs/seed2 is shown without its embedding (runs/seed2/embedding.safetensors is damaged ",
    ]
    assert main(["report", "runs"]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("report.html: ")
    first, second = said.err.splitlines()
    assert first == f"emi: {lines[0]}"
    assert second.startswith(f"emi: {lines[1]}")
    assert main(["report", "runs", "--figures", "figures"]) == 0
    assert capsys.readouterr().err == said.err
    table = Path("figures/table.md").read_text()
    assert f"{lines[0]}." in table
    assert lines[1] in table
    assert "| EMI | 2 |" in table
    assert [path.name for path in sorted(Path("figures/runs").iterdir())] == ["seed0"]
    Path("runs/seed0/config.json").unlink()
    Path("runs/seed2/config.json").write_text("{")
    assert main(["report", "runs"]) == 1
    *each, last = capsys.readouterr().err.splitlines()
    assert [line.partition(" cannot")[0] for line in each] == [
        f"emi: runs/seed{k}" for k in range(3)
    ]
    assert last == "emi: none of these 3 runs can be read: repair one"


def test_remarks_name_no_place_of_the_machine(tmp_path: Path) -> None:
    root = tmp_path / "home" / "alice" / "sweep"
    write_run(root / "sound", [1.0])
    (write_run(root / "alice-1", [1.0]) / "config.json").write_text("{")
    _, (remark,) = group_runs(find_runs([root]))
    assert remark.startswith("sweep/…-1 cannot be read (config.json is not JSON: ")
    assert str(tmp_path) not in remark


def test_names_from_a_stranger_act_on_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path / "runs" / "sound", [1.0])
    write_sample(write_run(tmp_path / "runs" / "C:\\..", [2.0], seed=1), [[4]])
    (write_run(tmp_path / "runs" / "a\x1b[2J\udcff", [1.0]) / "config.json").unlink()
    out = tmp_path / "out" / "figures"
    assert main(["report", str(tmp_path / "runs"), "--figures", str(out)]) == 0
    assert "/runs/a?[2J? cannot be read (it has no config.json)" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["figures"]
    assert (out / "runs" / "…" / "embedding.png").exists()
    assert main(["report", str(tmp_path / "runs"), "--out", str(tmp_path / "page.html")]) == 0


def test_a_setting_with_a_formula_names_no_group(tmp_path: Path) -> None:
    for number, name in enumerate(("$\\frac{", "x" * 100)):
        run = write_run(tmp_path / str(number), [1.0])
        change(run / "config.json", extra=name)
    (groups,) = group_runs(find_runs([tmp_path]))[0].values()
    assert [group.label for group in groups] == ["EMI (settings 1)", "EMI (settings 2)"]


def test_a_search_ends_in_any_tree(tmp_path: Path) -> None:
    write_run(tmp_path / "a" / "run", [1.0])
    (tmp_path / "a" / "up").symlink_to("..")
    (tmp_path / "a" / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "a" / "pipe")
    descriptor = os.open(tmp_path, os.O_RDONLY)
    for _ in range(1_200):  # deeper than Python's stack
        os.mkdir("d", dir_fd=descriptor)
        inner = os.open("d", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = inner
    os.close(descriptor)
    found = find_runs([tmp_path])
    assert [run.path for run in found.runs] == [tmp_path / "a" / "run"]
    assert found.problems == []
    subprocess.run(["rm", "-r", str(tmp_path / "d")], check=True)  # too deep for shutil.rmtree


def test_a_folder_that_cannot_be_opened_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(tmp_path / "run", [1.0])
    (tmp_path / "closed").mkdir()
    scandir = os.scandir

    def refuse(folder: Any) -> Any:
        if Path(folder).name == "closed":
            raise PermissionError(13, "Permission denied")
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", refuse)
    (problem,) = find_runs([tmp_path]).problems
    assert problem.sentence == f"{tmp_path}/closed cannot be read (permission denied)"


def test_a_gzip_bomb_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "seed0.csv.gz"
    file.write_bytes(gzip.compress(bytes(10_000_000), mtime=0) * 50)
    with pytest.raises(UserError, match=r"seed0\.csv\.gz is too large: it may have 32,000,000"):
        read_metrics(file)


@pytest.mark.parametrize("part", ["a", "a.", "--user", "a-", "a+", "1.", "a:"])
def test_the_time_to_clean_a_text_grows_with_its_length(part: str) -> None:
    def seconds(length: int) -> float:
        text = part * (length // len(part))
        start = time.process_time()
        clean(text)
        private_words({"x": text})
        return time.process_time() - start

    # A quadratic pattern takes 400 times as long.
    assert seconds(200_000) < 100 * max(seconds(10_000), 0.002)
