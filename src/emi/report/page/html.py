"""Put the page together: one HTML file that compares runs and shows their embeddings.

It needs no network and no other file. Its Content-Security-Policy forbids the browser to load
anything and allows only the script and style whose hashes it names. The same runs give the same
bytes, whenever and wherever the page is made.
"""

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from emi.durable_file import write_durably
from emi.report.groups import group_runs
from emi.report.load import find_runs
from emi.report.page.coverage import encode_coverage
from emi.report.page.curves import encode_measure
from emi.report.page.data import describe
from emi.report.page.encoding import deflated
from emi.report.page.limits import USUAL, Limits
from emi.report.page.plans import encode_plans
from emi.report.page.samples import encode_samples
from emi.report.page.videos import encode_videos
from emi.report.reference import References

# A script uses what earlier ones declare.
SCRIPTS = (
    *("data", "draw", "view", "curves", "zoom", "download", "table"),
    *("explorer", "timeline", "coverage", "plans", "videos", "runs", "main"),
)


def write_page(
    roots: Sequence[Path], out: Path, references: References, limits: Limits = USUAL
) -> Path:
    """Write the page of all runs in and below `roots`; UserError if none can be read."""
    page = build_page(roots, references, limits)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_durably(out.resolve(), page.encode())
    return out


def build_page(roots: Sequence[Path], references: References, limits: Limits = USUAL) -> str:
    """The HTML of the page."""
    groups, remarks = group_runs(find_runs(roots))
    runs = [run for row in groups.values() for group in row for run in group.runs]
    samples, samples_left_out = encode_samples(runs, limits)
    videos, videos_left_out = encode_videos(runs, limits)
    maps, maps_left_out = encode_coverage(groups, limits)
    plans, plans_left_out = encode_plans(runs, limits)
    remarks = remarks + samples_left_out + maps_left_out + plans_left_out + videos_left_out
    data = describe(groups, remarks, references, limits)
    data["samples"] = [sample.values for sample in samples]
    data["coverage"] = [one.env for one in maps]
    data["plans"] = plans
    data["videos"] = [
        {"run": video.run, "type": video.type, "shows": video.shows} for video in videos
    ]
    blocks = {"data": deflated(_json(data).encode())}
    for number, (env, row) in enumerate(zip(data["envs"], groups.values(), strict=True)):
        first = env["groups"][0]["runs"][0]
        for k, name in enumerate(env["measures"]):
            blocks[f"curves-{number}-{k}"] = encode_measure(row, first, name, env["together"])
    for number, sample in enumerate(samples):
        if sample.frames:
            blocks[f"frames-{number}"] = "\n".join(sample.frames)
    for one in maps:
        blocks[f"coverage-{one.env}"] = one.block
    for number, video in enumerate(videos):
        blocks[f"video-{number}"] = video.base64
    return _fill(blocks)


def _json(data: Any) -> str:
    return json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _fill(blocks: Mapping[str, str]) -> str:
    # All scripts share one scope and declare nothing outside of it.
    parts = "\n".join(_asset(f"{name}.js") for name in SCRIPTS)
    script = f'(async () => {{\n"use strict";\n{parts}}})();\n'
    style = _asset("page.css")
    # Nothing may be loaded. Only our script and style, identified by their hashes, may run; videos
    # and the picture that is saved as PNG are part of the page.
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; "
        "img-src data:; media-src data:; base-uri 'none'; form-action 'none'"
    )
    page = _asset("page.html")
    for mark, content in (
        ("POLICY", policy),
        ("STYLE", style),
        ("DATA", "\n".join(_block(name, text) for name, text in blocks.items())),
        ("SCRIPT", script),
    ):
        before, after = page.split(f"<!--{mark}-->")
        page = before + content + after
    return page


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _block(name: str, content: str) -> str:
    """A block of base64, which contains no character that could end the block."""
    return f'<script type="text/plain" id="{name}">{content}</script>'


def _asset(name: str) -> str:
    return files("emi.report.page").joinpath("assets", name).read_text(encoding="utf-8")
