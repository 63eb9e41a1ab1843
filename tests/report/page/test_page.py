"""The report page as a file: its data, what it must not contain, and errors."""

import base64
import hashlib
import json
import re
import shutil
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from run_files import write_run, write_sample

from emi.cli import main
from emi.report.groups import Group, group_runs
from emi.report.load import dotted, find_runs
from emi.report.page import html
from emi.report.page.curves import widths
from emi.report.page.data import describe
from emi.report.page.encoding import coded, distinct_frames, evenly, frame_pieces, quantised
from emi.report.page.limits import Limits
from emi.report.privacy import clean, private_words, public_config, public_starts
from emi.report.reference import Reference
from emi.report.statistics import thin
from emi.reproduction.paper_values import PAPER

NAME, HOST = "alice", "lab-pc-7"
HOME = f"/home/{NAME}"


def data_of(page: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(text_of(page))
    return content


def text_of(page: str) -> str:
    """The data as the page's script reads them."""
    found = re.search(r'<script type="text/plain" id="data">(.*?)</script>', page, re.S)
    assert found is not None
    return zlib.decompress(base64.b64decode(found[1])).decode()


def described(*roots: Path) -> dict[str, Any]:
    return describe(*group_runs(find_runs(roots)), PAPER)


def build_page(roots: list[Path]) -> str:
    return html.build_page(roots, PAPER)


def groups_of(root: Path) -> list[Group]:
    """The groups of the only environment below `root`."""
    (row,) = group_runs(find_runs([root]))[0].values()
    return row


def dequantised(packed: dict[str, Any]) -> np.ndarray:
    codes = packed["codes"]
    if isinstance(codes, str):
        codes = np.frombuffer(base64.b64decode(codes), "<u2")
    codes = np.where(codes == 65535, np.nan, codes.astype(float))
    ends = np.array([packed["low"], packed["high"]])
    low, high = np.log(ends) if packed.get("log") else ends
    values = low + codes * (high - low) / 65534
    return np.exp(values) if packed.get("log") else values


def curves_of(page: str, env: int, name: str) -> dict[str, Any]:
    """The curves of a column as the page's script reads them: of runs by number, and of groups."""
    place = data_of(page)["envs"][env]["measures"].index(name)
    found = re.search(
        rf'<script type="text/plain" id="curves-{env}-{place}">(.*?)</script>', page, re.S
    )
    assert found is not None
    described, raw = (zlib.decompress(base64.b64decode(line)) for line in found[1].split("\n"))
    high, low = np.frombuffer(raw, np.uint8).reshape(2, -1).astype(np.uint16)

    def values(curve: dict[str, Any]) -> np.ndarray:
        part = slice(curve["start"], curve["start"] + curve["count"])
        return dequantised({**curve, "codes": (256 * high + low)[part]})

    content = json.loads(described)
    return {
        "runs": {int(number): values(curve) for number, curve in content["runs"].items()},
        "groups": [
            {part: each if part == "steps" else values(each) for part, each in group.items()}
            for group in content["groups"]
        ],
    }


def unpacked(text: str, kind: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), kind)


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """EMI ends at 200, 220 and 240, TRPO at 0, 0 and 10; seed 0 of EMI has images."""
    for seed, final in enumerate((200.0, 220.0, 240.0)):
        write_run(tmp_path / "runs" / f"emi{seed}", [0.0, 60.0, final], seed=seed)
    for seed, final in enumerate((0.0, 0.0, 10.0)):
        write_run(tmp_path / "runs" / f"trpo{seed}", [0.0, 0.0, final], method="trpo", seed=seed)
    write_sample(tmp_path / "runs" / "emi0", [[5, 7]], images=True)
    return tmp_path / "runs"


def test_the_page_loads_nothing(runs: Path) -> None:
    page = build_page([runs])
    # Base64 may contain anything; its decoded content is checked instead.
    shell = re.sub(r'(<script type="text/plain"[^>]*>)[^<]*', r"\1", page)
    assert len(shell) < len(page)
    outside = r"https?:|//\w|url\(|@import|<link|<img|<iframe|\bfetch\(|\bsrc="
    assert re.findall(outside, shell + text_of(page)) == []
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    assert policy[1].startswith("default-src 'none'; ")
    for tag, directive in (("script", "script-src"), ("style", "style-src")):
        content = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.S)
        assert len(content) == 1
        digest = base64.b64encode(hashlib.sha256(content[0].encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}'" in policy[1]


def test_the_same_runs_give_the_same_bytes(runs: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere" / "runs"
    shutil.copytree(runs, elsewhere)
    assert build_page([runs]) == build_page([runs]) == build_page([elsewhere])


def test_the_table_holds_the_statistics(runs: Path) -> None:
    (env,) = described(runs)["envs"]
    emi, trpo = (group["row"] for group in env["groups"])
    assert [group["label"] for group in env["groups"]] == ["EMI", "TRPO"]
    assert emi["mean"][0] == emi["iqm"][0] == 220.0
    assert emi["mean"][1] == 200.0
    assert emi["mean"][2] == 240.0
    assert emi["late"] == pytest.approx((260 / 3 + 280 / 3 + 300 / 3) / 3)
    assert emi["solved"][:2] == (3, 3)
    assert trpo["solved"][:2] == (0, 3)
    assert emi["first"] == {"seen": 3, "runs": 3, "median": 10_000.0}
    assert trpo["first"] == {"seen": 1, "runs": 3, "median": None}
    assert emi["reference"] == 218.1
    pair, mirrored = env["pairs"][0][1], env["pairs"][1][0]
    assert pair["difference"] == pytest.approx(220 - 10 / 3)
    assert pair["better"] == 1.0
    assert pair["p"] == pair["holm"] == mirrored["p"]
    assert pair["p"] < 0.01
    assert mirrored["difference"] == -pair["difference"]
    assert (mirrored["low"], mirrored["high"]) == (-pair["high"], -pair["low"])
    assert mirrored["better"] == 0.0
    assert env["pairs"][0][0] is None


def test_only_the_preset_has_the_published_return(tmp_path: Path) -> None:
    for seed in range(2):
        write_run(tmp_path / f"a{seed}", [1.0, 2.0], seed=seed, eta=0.5, changed=["eta"])
        write_run(tmp_path / f"b{seed}", [1.0, 2.0], seed=seed)
    (env,) = described(tmp_path)["envs"]
    assert [(group["label"], group["row"]["reference"]) for group in env["groups"]] == [
        ("EMI", 218.1),
        ("EMI (eta=0.5)", None),
    ]


def test_holm_covers_all_comparisons_with_one_method(runs: Path) -> None:
    for seed, final in enumerate((100.0, 150.0, 120.0)):
        write_run(runs / f"rnd{seed}", [0.0, final], method="rnd", seed=seed)
    (env,) = described(runs)["envs"]
    p = sorted((env["pairs"][k][0]["p"], env["pairs"][k][0]["holm"]) for k in (1, 2))
    assert p[0][1] == pytest.approx(2 * p[0][0])


def test_curves_carry_mean_and_interval(runs: Path) -> None:
    curves = curves_of(build_page([runs]), 0, "return_mean")
    emi, trpo = curves["groups"]
    assert emi["steps"] == {"first": 5000.0, "by": 5000.0, "count": 3}
    np.testing.assert_allclose(emi["mean"], [0, 60, 220], atol=0.01)
    np.testing.assert_allclose(emi["low"], [0, 60, 200], atol=0.01)
    np.testing.assert_allclose(emi["high"], [0, 60, 240], atol=0.01)
    np.testing.assert_allclose(trpo["mean"], [0, 0, 10 / 3], atol=0.01)
    np.testing.assert_allclose(curves["runs"][5], [0, 0, 10], atol=0.01)


def add_column(run: Path, name: str, values: list[float]) -> None:
    file = run / "metrics.csv"
    header, *rows = file.read_text().splitlines()
    lines = [f"{header},{name}", *(f"{row},{v!r}" for row, v in zip(rows, values, strict=True))]
    file.write_text("\n".join(lines) + "\n")


def test_every_column_can_be_drawn_also_one_of_a_single_method(runs: Path) -> None:
    add_column(runs / "trpo1", "mine/loss", [3.0, 2.0, 1.0])
    add_column(runs / "trpo2", "mine/nothing", [np.nan] * 3)
    page = build_page([runs])
    data = data_of(page)
    columns = ["return_mean", "return_max", "emi/loss_info", "mine/loss"]
    assert data["envs"][0]["measures"] == columns  # not the axes, nor a column without a number
    assert data["titles"]["return_mean"] == "mean return"
    curves = curves_of(page, 0, "mine/loss")
    assert list(curves["runs"]) == [4]
    np.testing.assert_allclose(curves["runs"][4], [3, 2, 1], atol=1e-4)
    assert curves["groups"][0] == {}
    np.testing.assert_allclose(curves["groups"][1]["mean"], [3, 2, 1], atol=1e-4)


def test_an_infinite_value_is_no_value(runs: Path) -> None:
    add_column(runs / "trpo1", "mine/loss", [1.0, np.inf, 3.0])
    add_column(runs / "trpo2", "mine/loss", [1.0, 2.0, 3.0])
    curves = curves_of(build_page([runs]), 0, "mine/loss")
    np.testing.assert_array_equal(np.isnan(curves["runs"][4]), [False, True, False])
    # The group is drawn over it, as over an iteration without a finished episode.
    np.testing.assert_allclose(curves["groups"][1]["mean"], [1.0, 2.0, 3.0], atol=1e-4)


def test_axes_of_a_run(runs: Path) -> None:
    run = described(runs)["runs"][0]
    assert run["iterations"] == 3
    assert run["axes"]["steps"] == {"first": 5000.0, "by": 5000.0, "count": 3}
    assert run["axes"]["iterations"] == {"first": 1.0, "by": 1.0, "count": 3}
    np.testing.assert_allclose(dequantised(run["axes"]["hours"]), [1 / 120, 2 / 120, 3 / 120])


def test_long_runs_are_thinned_and_the_page_says_so(tmp_path: Path) -> None:
    write_run(tmp_path / "run", np.arange(1200.0))
    page = build_page([tmp_path])
    data = data_of(page)
    assert data["envs"][0]["together"] == 3
    values = curves_of(page, 0, "return_mean")["runs"][0]
    assert len(values) == 400
    np.testing.assert_allclose(values[:2], [1, 4], atol=0.02)
    # The middle one of 5, 10 and 15 thousand.
    assert data["runs"][0]["axes"]["steps"]["first"] == 10_000


def test_many_runs_share_a_limited_number_of_values(tmp_path: Path) -> None:
    for seed in range(3):
        write_run(tmp_path / str(seed), np.arange(1000.0), seed=seed)
    groups, _ = group_runs(find_runs([tmp_path]))
    # 3 runs of 6 columns, and a mean with two ends of its interval: 36 curves.
    assert widths(groups, Limits(values=36 * 500)) == {"SparseHalfCheetah": 2}
    assert widths(groups, Limits(values=36 * 100)) == {"SparseHalfCheetah": 10}
    assert widths(groups, Limits(values=1)) == {"SparseHalfCheetah": 50}  # 20 points at least


class TestBaseline:
    def test_plain_trpo(self, runs: Path) -> None:
        (env,) = described(runs)["envs"]
        assert env["groups"][env["baseline"]]["label"] == "TRPO"

    def test_otherwise_the_group_with_the_most_returns(self, tmp_path: Path) -> None:
        for method, count in (("emi", 2), ("icm", 3), ("rnd", 3)):
            for seed in range(count):
                write_run(tmp_path / f"{method}{seed}", [1.0], method=method, seed=seed)
        # One return of TRPO allows no test.
        write_run(tmp_path / "trpo0", [1.0], method="trpo")
        write_run(tmp_path / "trpo1", [np.nan], method="trpo", seed=1)
        (env,) = described(tmp_path)["envs"]
        assert env["groups"][env["baseline"]]["label"] == "ICM"


class TestVideos:
    def test_small_videos_are_part_of_the_page(self, runs: Path) -> None:
        (runs / "emi1" / "watch.mp4").write_bytes(b"film")
        (runs / "emi1" / "plan.mp4").write_bytes(b"plan")
        (runs / "trpo2" / "watch.gif").write_bytes(b"GIF89a")
        page = build_page([runs])
        assert data_of(page)["videos"] == [
            {"run": 1, "type": "video/mp4", "shows": "the trained agent"},
            {"run": 1, "type": "video/mp4", "shows": "a plan"},
            {"run": 5, "type": "image/gif", "shows": "the trained agent"},
        ]
        assert (
            f'<script type="text/plain" id="video-0">{base64.b64encode(b"film").decode()}<' in page
        )
        assert "; img-src data:; media-src data:; " in page
        assert data_of(page)["remarks"] == []

    def test_large_videos_are_named(self, runs: Path) -> None:
        (runs / "emi1" / "watch.mp4").write_bytes(b"1" * 4_000_001)
        page = build_page([runs])
        assert data_of(page)["videos"] == []
        assert data_of(page)["remarks"] == [
            "runs/emi1/watch.mp4 (4.0 MB) is left out: a page holds videos of up to 4 MB, "
            "20 MB together."
        ]

    def test_all_videos_together_have_a_limit(self, runs: Path) -> None:
        for seed in range(3):
            (runs / f"emi{seed}" / "watch.mp4").write_bytes(b"1" * 8)
        data = data_of(html.build_page([runs], PAPER, Limits(all_video_bytes=16)))
        assert [video["run"] for video in data["videos"]] == [0, 1]
        assert len(data["remarks"]) == 1


def test_thinning_ignores_nan() -> None:
    values = np.array([1.0, np.nan, np.nan, np.nan, 5.0])
    np.testing.assert_array_equal(thin(values, 2), [1.0, np.nan, 5.0])


def test_quantised_numbers_come_back() -> None:
    values = np.array([-3.0, np.nan, 0.123, 7.0, np.inf])
    back = dequantised(quantised(values))
    np.testing.assert_allclose(back, [-3, np.nan, 0.123, 7, np.nan], atol=10 / 65534 / 2)
    np.testing.assert_array_equal(dequantised(quantised(np.full(3, 2.5))), 2.5)
    assert np.isnan(dequantised(quantised(np.full(2, np.nan)))).all()


def test_small_values_of_a_wide_range_stay_exact() -> None:
    """As a logarithmic axis shows them: with even spacing, 1e-5 would be off by 50 %."""
    values = np.geomspace(1e-5, 10.0, 500)
    np.testing.assert_allclose(dequantised(quantised(values)), values, rtol=np.log(1e6) / 131_000)
    assert "log" not in coded(np.array([1.0, 1000.0]))[0]
    assert "log" not in coded(np.array([0.0, 1e6]))[0]


def test_uneven_steps_are_kept_as_they_are() -> None:
    steps = np.array([1.0, 2.0, 4.0])
    np.testing.assert_array_equal(unpacked(evenly(steps)["values"], "<f8"), steps)


def test_frames_come_back_and_are_stored_once() -> None:
    path = np.random.default_rng(0).integers(0, 256, (101, 3, 4, 5)).astype(np.uint8)
    path[50] = path[3]  # seen before
    frame, frame_next = path[:-1], path[1:]
    pool, here, after = distinct_frames(frame, frame_next)
    assert len(pool) == 100
    pieces = frame_pieces(pool)
    assert len(pieces) == 2  # of 64 and 36
    raw = b"".join(zlib.decompress(base64.b64decode(piece)) for piece in pieces)
    stored = np.frombuffer(raw, np.uint8).reshape(-1, 4, 5, 3).transpose(0, 3, 1, 2)
    np.testing.assert_array_equal(stored[here], frame)
    np.testing.assert_array_equal(stored[after], frame_next)


def test_a_sample_is_split_into_episodes(tmp_path: Path) -> None:
    directory = write_run(tmp_path / "run", [1.0])
    # Two environments side by side: the rows of the file alternate between them.
    written = write_sample(directory, [[3, 4], [7]], error={4: (3.0, 4.0)})
    sample = data_of(build_page([tmp_path]))["samples"][0]
    assert sample["count"] == 14
    assert [(e["start"], e["size"], e["whole"], e["env"]) for e in sample["episodes"]] == [
        (0, 3, True, 0),
        (3, 4, False, 0),
        (7, 7, False, 1),
    ]
    assert unpacked(sample["step"], "<u4").tolist() == [0, 1, 2, 0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 6]
    order = [0, 2, 4, 6, 8, 10, 12, 1, 3, 5, 7, 9, 11, 13]
    np.testing.assert_allclose(unpacked(sample["bonus"], "<f4"), written["bonus"][order], rtol=1e-6)
    np.testing.assert_allclose(dequantised(sample["x"]), written["phi"][order, 0], atol=1e-4)
    np.testing.assert_allclose(dequantised(sample["y"]), written["phi"][order, 1], atol=1e-4)
    paid = written["reward"][order]
    to_come = [
        paid[k:end].sum() for start, end in ((0, 3), (3, 7), (7, 14)) for k in range(start, end)
    ]
    assert unpacked(sample["return"], "<f4").tolist() == to_come
    assert len(set(to_come)) > 4
    assert [e["return"] for e in sample["episodes"]] == [to_come[0], to_come[3], to_come[7]]
    assert unpacked(sample["error"], "<f4")[2] == 5.0
    assert [e["peaks"] for e in sample["episodes"]] == [[2], [], []]
    assert sample["first"] == 0  # the only one that is whole


def test_samples_beyond_the_limit_are_left_out_and_named(runs: Path) -> None:
    write_sample(runs / "emi1", [[12]])
    data = data_of(html.build_page([runs], PAPER, Limits(states=20)))
    assert [sample["run"] for sample in data["samples"]] == [0]
    assert data["remarks"][0].startswith("1 of 2 embeddings are left out")


class TestGroups:
    def test_other_settings_are_another_group(self, tmp_path: Path) -> None:
        for number, eta in enumerate((0.1, 0.01, 0.01)):
            write_run(tmp_path / str(number), [1.0], seed=number, eta=eta, changed=None)
        groups, remarks = group_runs(find_runs([tmp_path]))
        (row,) = groups.values()
        assert {g.label: len(g.runs) for g in row} == {"EMI (eta=0.1)": 1, "EMI (eta=0.01)": 2}
        assert remarks == []

    @pytest.mark.parametrize(
        ("changes", "labels"),
        [
            (
                [{}, {"intrinsic.bandwidth": 3}, {"intrinsic.error_model": False}],
                ["EMI", "EMI (bandwidth=3)", "EMI (error_model=false)"],
            ),
            ([{"intrinsic.error_model": False}], ["EMI (error_model=false)"]),
            (
                [{"intrinsic.epochs": 1}, {"intrinsic.epochs": 1, "value.epochs": 2}],
                [
                    "EMI (intrinsic.epochs=1, value.epochs=3)",
                    "EMI (intrinsic.epochs=1, value.epochs=2)",
                ],
            ),
            (
                [
                    {},
                    {"intrinsic.bandwidth": 3},
                    {"eta": 1, "value.epochs": 2, "intrinsic.epochs": 1, "intrinsic.bandwidth": 3},
                ],
                ["EMI", "EMI (bandwidth=3)", "EMI (settings 3)"],
            ),
            (
                [{}, {"steps": 10_000}, {"intrinsic.bandwidth": 3}],
                ["EMI (0.005M steps)", "EMI (0.01M steps)", "EMI (0.005M steps, bandwidth=3)"],
            ),
        ],
    )
    def test_a_variant_is_named_by_what_was_changed(
        self, tmp_path: Path, changes: list[dict[str, Any]], labels: list[str]
    ) -> None:
        for number, change in enumerate(changes):
            run = write_run(tmp_path / str(number), [1.0], changed=list(change))
            config = json.loads((run / "config.json").read_text())
            config["intrinsic"] = {"bandwidth": 5, "error_model": True, "epochs": 3}
            config["value"] = {"epochs": 3}
            for key, value in change.items():
                *parts, name = key.split(".")
                (config[parts[0]] if parts else config)[name] = value
            (run / "config.json").write_text(json.dumps(config))
        assert [group.label for group in groups_of(tmp_path)] == labels

    def test_a_changed_setting_names_a_single_group(self, tmp_path: Path) -> None:
        write_run(tmp_path / "run", [1.0], eta=0.5, changed=["eta", "seed", "threads"])
        (env,) = described(tmp_path)["envs"]
        assert [(g["label"], g["row"]["reference"]) for g in env["groups"]] == [
            ("EMI (eta=0.5)", None)
        ]

    def test_options_that_change_time_and_memory_make_no_variant(self, tmp_path: Path) -> None:
        changed = ["trpo.slices", "threads", "device", "seed", "steps"]
        write_run(tmp_path / "run", [1.0], changed=changed)
        (env,) = described(tmp_path)["envs"]
        assert [(g["label"], g["row"]["reference"]) for g in env["groups"]] == [("EMI", 218.1)]

    def test_one_run_of_the_preset_shows_that_its_group_is_the_preset(self, tmp_path: Path) -> None:
        write_run(tmp_path / "a", [1.0], changed=None)
        write_run(tmp_path / "b", [1.0], seed=1)
        (env,) = described(tmp_path)["envs"]
        assert [(g["label"], g["row"]["reference"]) for g in env["groups"]] == [("EMI", 218.1)]

    def test_an_older_run_may_not_be_the_preset(self, tmp_path: Path) -> None:
        write_run(tmp_path / "a", [1.0], changed=None)
        (env,) = described(tmp_path)["envs"]
        assert [(g["label"], g["row"]["reference"]) for g in env["groups"]] == [("EMI", None)]

    def test_folders_of_the_same_name(self, tmp_path: Path) -> None:
        for folder in ("a", "b"):
            for seed in range(2):
                value = 10.0 * seed + ord(folder)
                write_run(tmp_path / folder / "sweep" / f"seed{seed}", [value], seed=seed)
        found = find_runs([tmp_path / folder / "sweep" for folder in ("a", "b")])
        (row,) = group_runs(found)[0].values()
        assert {g.label: len(g.runs) for g in row} == {"EMI, sweep 1": 2, "EMI, sweep 2": 2}

    def test_a_bracket_before_a_slash_starts_no_absolute_path(self, tmp_path: Path) -> None:
        write_run(tmp_path / "runs (old)" / "emi" / "seed0", [1.0])
        (one,) = find_runs([tmp_path / "runs (old)"]).runs
        assert one.place == "runs (old)/emi/seed0"

    def test_time_and_memory_tell_no_groups_apart(self, tmp_path: Path) -> None:
        for number in range(2):
            path = write_run(tmp_path / str(number), [1.0], seed=number) / "config.json"
            config = json.loads(path.read_text()) | {"threads": number, "trpo": {"slices": number}}
            path.write_text(json.dumps(config))
        groups, _ = group_runs(find_runs([tmp_path]))
        ((group,),) = groups.values()
        assert (group.label, len(group.runs)) == ("EMI", 2)

    def test_a_copy_counts_once(self, tmp_path: Path) -> None:
        write_run(tmp_path / "a" / "seed0", [1.0, 2.0])
        shutil.copytree(tmp_path / "a", tmp_path / "b")
        data = described(tmp_path / "a", tmp_path / "b", tmp_path)
        assert len(data["runs"]) == 1
        assert data["remarks"] == ["b/seed0 is a copy of a run that is shown."]

    def test_a_seed_that_was_run_twice_is_kept_apart(self, tmp_path: Path) -> None:
        for folder, value in (("main", 1.0), ("again", 2.0)):
            write_run(tmp_path / folder / "SparseHalfCheetah" / "emi" / "seed0", [value])
        write_run(tmp_path / "main" / "SparseHalfCheetah" / "emi" / "seed1", [3.0], seed=1)
        groups, remarks = group_runs(find_runs([tmp_path]))
        (row,) = groups.values()
        assert {g.label: len(g.runs) for g in row} == {"EMI, again": 1, "EMI, main": 2}
        assert len(remarks) == 1

    def test_colours_are_the_methods_own(self, runs: Path) -> None:
        assert described(runs)["colours"] == {"EMI": 0, "TRPO": 8}


class TestIncompleteRuns:
    def test_one_seed_has_no_interval_and_no_test(self, tmp_path: Path) -> None:
        write_run(tmp_path / "a", [1.0, 3.0])
        write_run(tmp_path / "b", [1.0, 2.0], method="trpo")
        page = build_page([tmp_path])
        assert "low" not in curves_of(page, 0, "return_mean")["groups"][0]
        (env,) = described(tmp_path)["envs"]
        assert env["groups"][0]["row"]["mean"] == (3.0, 3.0, 3.0)
        assert env["pairs"] == [[None, None], [None, None]]

    def test_an_unfinished_run_is_marked(self, tmp_path: Path) -> None:
        write_run(tmp_path / "a", [1.0, 3.0], iterations=4)
        data = described(tmp_path)
        assert data["runs"][0]["finished"] is False
        assert (data["runs"][0]["reached"], data["runs"][0]["asked"]) == (10_000, 20_000)
        assert data["envs"][0]["groups"][0]["row"]["unfinished"] == 1

    def test_no_finished_episode(self, tmp_path: Path) -> None:
        nan = float("nan")
        write_run(tmp_path / "a", [nan, nan], iterations=3)
        write_run(tmp_path / "b", [nan, 4.0, nan], seed=1)
        data = data_of(build_page([tmp_path]))
        row = data["envs"][0]["groups"][0]["row"]
        assert row["silent"] == 1
        assert row["mean"] == [4.0, 4.0, 4.0]
        assert [run["final"] for run in data["runs"]] == [None, 4.0]

    def test_no_iteration_yet(self, tmp_path: Path) -> None:
        write_run(tmp_path / "a", [], iterations=3)
        data = data_of(build_page([tmp_path]))
        assert data["runs"][0]["reached"] == 0
        assert data["envs"][0]["measures"] == []
        assert data["samples"] == []


PROVENANCE = {
    "user": NAME,
    "starts": [
        {
            "time": "2026-11-15T22:59:35+00:00",
            "iteration": 0,
            "command": f"emi train Ant --out={HOME}/runs/ant --set trpo.max_kl=0.02 "
            f"--address ray://{HOST}.lab.example:10001 {NAME}@{HOST}:/data/x ~{NAME}/y "
            f"C:\\Users\\{NAME}\\z 10.1.2.3:6379 ../{NAME}/up runs/{NAME}/kept",
            "commit": "c0ffee",
            "modified": True,
            "cwd": HOME,
            "hostname": HOST,
            "versions": {"torch": "2.13.0+cpu", "mujoco": None},
            "machine": {
                "cpu": "Some CPU",
                "cores": 2,
                "platform": "Linux-6.18-x86_64-with-glibc2.36",
                "node": HOST,
            },
        }
    ],
}
CONFIG = {
    "env": "Ant",
    "method": "emi",
    "seed": 0,
    "steps": 1,
    "steps_per_iteration": 1,
    "data": {"folder": f"{HOME}/data/set", "user": NAME, "files": [f"{HOME}/a", "b"]},
    "note": f"for {NAME} on {HOST}",
}


class TestPrivacy:
    def test_a_page_names_no_person_host_or_place(self, tmp_path: Path) -> None:
        directory = write_run(tmp_path / NAME / "run", [1.0])
        (directory / "provenance.json").write_text(json.dumps(PROVENANCE))
        (directory / "config.json").write_text(json.dumps(CONFIG))
        page = build_page([tmp_path])
        for secret in (NAME, HOST, "/home", "Users", "lab.example", "10.1.2.3", str(tmp_path)):
            assert secret not in page + text_of(page), secret
        assert "c0ffee" in text_of(page)

    def test_what_is_harmless_stays(self) -> None:
        private = private_words(PROVENANCE, CONFIG)
        (start,) = public_starts(PROVENANCE, private)
        assert start["command"] == (
            "emi train Ant --out=ant --set trpo.max_kl=0.02 --address … … y z … up runs/…/kept"
        )
        assert start["time"] == "2026-11-15T22:59:35+00:00"
        assert start["modified"] == "yes"
        assert start["version of torch"] == "2.13.0+cpu"
        assert start["platform"] == "Linux-6.18-x86_64-with-glibc2.36"
        assert set(start) == {
            *("time", "iteration", "command", "commit", "modified"),
            *("version of torch", "cpu", "cores", "platform"),
        }
        assert public_config(dict(dotted(CONFIG)), private) == {
            "env": "Ant",
            "method": "emi",
            "seed": 0,
            "steps": 1,
            "steps_per_iteration": 1,
            "data.folder": "set",
            "data.files": ["a", "b"],
            "note": "for … on …",
        }

    @pytest.mark.parametrize(
        "text",
        [
            "emi train atari:Pong --set intrinsic.lambda_error=1 --out runs/a/seed0",
            "emi sweep gym:MountainCarContinuous-v0 --methods emi,trpo --seeds 0-4,7",
            "emi train SparseHalfCheetah --steps 5e6 --threads 2",
        ],
    )
    def test_ordinary_commands_stay_as_they_are(self, text: str) -> None:
        assert clean(text) == text

    def test_markup_in_a_name_stays_text(self, tmp_path: Path) -> None:
        write_run(tmp_path / "a", [1.0], env="gym:</script><b>x")
        page = build_page([tmp_path])
        assert "<b>x" not in page
        assert data_of(page)["envs"][0]["name"] == "gym:</script><b>x"


class TestCommand:
    @pytest.fixture(autouse=True)
    def _here(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)

    def test_it_writes_report_html_in_the_current_directory(
        self, runs: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["report", "runs"]) == 0
        assert capsys.readouterr().out.startswith("report.html: 0.")
        assert Path("report.html").read_text(encoding="utf-8") == build_page([Path("runs")])

    def test_the_paper_is_one_reference_among_others(self, runs: Path) -> None:
        book = {"SparseHalfCheetah": Reference("book", {"trpo": 7.0}, steps=9, decimals=2)}
        (env,) = data_of(html.build_page([runs], book))["envs"]
        assert env["reference"] == {"source": "book", "steps": 9}
        assert (env["decimals"], env["solvedAbove"]) == (2, None)
        assert [group["row"]["reference"] for group in env["groups"]] == [None, 7.0]
        (env,) = data_of(html.build_page([runs], {}))["envs"]
        assert [group["row"]["reference"] for group in env["groups"]] == [None, None]

    def test_several_folders_and_another_file(self, runs: Path) -> None:
        assert main(["report", "runs/emi0", "runs/trpo0", "--out", "deep/page.html"]) == 0
        data = data_of(Path("deep/page.html").read_text(encoding="utf-8"))
        assert [run["place"] for run in data["runs"]] == ["runs/emi0", "runs/trpo0"]

    @pytest.mark.parametrize(
        ("folder", "sentence"),
        [
            ("nowhere", "there is no nowhere: give the folder of a run, a sweep or results"),
            ("empty", "no runs in empty: give a folder that holds metrics.csv files"),
            ("broken", "broken cannot be read (broken/metrics.csv has no column steps)"),
            ("alone", "alone cannot be read (env in alone/config.json must be a name "),
        ],
    )
    def test_a_bad_folder_is_one_sentence(
        self, folder: str, sentence: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        Path("empty").mkdir()
        (write_run(Path("broken"), [1.0]) / "metrics.csv").write_text("iteration\n1,2\n")
        (write_run(Path("alone"), [1.0]) / "config.json").write_text("{}")
        assert main(["report", folder]) == (1 if "cannot be read" in sentence else 2)
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith(f"emi: {sentence}")
        assert err.count("\n") == 1
        assert not Path("report.html").exists()
