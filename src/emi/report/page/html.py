"""Put the page together: one HTML file that compares runs and shows their embeddings.

It needs no network and no other file. Its Content-Security-Policy forbids the browser to load
anything and allows only the script and style whose hashes it names. The same runs give the same
bytes, whenever and wherever the page is made.
"""

import base64
import hashlib
import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from emi.durable_file import write_durably
from emi.report.groups import group_runs
from emi.report.load import find_runs
from emi.report.page.data import describe
from emi.report.page.encoding import deflated
from emi.report.page.samples import EncodedSample, encode_samples
from emi.report.reference import References

# A script uses what earlier ones declare.
SCRIPTS = ("data", "draw", "curves", "table", "explorer", "timeline", "runs", "main")


def write_page(roots: Sequence[Path], out: Path, references: References) -> Path:
    """Write the page of all runs in and below `roots`; UserError if none can be read."""
    page = build_page(roots, references)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_durably(out.resolve(), page.encode())
    return out


def build_page(roots: Sequence[Path], references: References) -> str:
    """The HTML of the page."""
    groups, remarks = group_runs(find_runs(roots))
    runs = [run for row in groups.values() for group in row for run in group.runs]
    samples, left_out = encode_samples(runs)
    data = describe(groups, remarks + left_out, references)
    data["samples"] = [sample.values for sample in samples]
    return _fill(data, samples)


def _fill(data: dict[str, Any], samples: Sequence[EncodedSample]) -> str:
    # All scripts share one scope and declare nothing outside of it.
    parts = "\n".join(_asset(f"{name}.js") for name in SCRIPTS)
    script = f'(async () => {{\n"use strict";\n{parts}}})();\n'
    style = _asset("page.css")
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    blocks = [_block("data", deflated(text.encode()))]
    blocks += [
        _block(f"frames-{number}", "\n".join(sample.frames))
        for number, sample in enumerate(samples)
        if sample.frames
    ]
    # Nothing may be loaded; only our script and style, identified by their hashes, may run.
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    page = _asset("page.html")
    for mark, content in (
        ("POLICY", policy),
        ("STYLE", style),
        ("DATA", "\n".join(blocks)),
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
