"""One HTML file that holds a comparison of runs and a look into their embeddings.

It needs no network and no other file. Its Content-Security-Policy forbids the browser to load
anything; only the script and style whose hashes it names may act. The same runs give the same
bytes: nothing in it depends on when or where it was made.
"""

import base64
import hashlib
import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from emi.report.page.data import describe, find_runs, group_runs
from emi.report.page.encoding import deflated
from emi.report.page.samples import EncodedSample, choose_samples, encode_sample

# In the order in which a later one uses what an earlier one declares.
SCRIPTS = ("data", "draw", "curves", "table", "explorer", "timeline", "runs", "main")


def write_page(roots: Sequence[Path], out: Path) -> Path:
    """Writes the page of all runs in and below `roots`; ValueError says what is wrong with them."""
    page = build_page(roots)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(page, encoding="utf-8", newline="\n")
    return out


def build_page(roots: Sequence[Path]) -> str:
    """The page's HTML."""
    groups, remarks = group_runs(find_runs(roots))
    members = [one for row in groups.values() for group in row for one in group.members]
    chosen, left_out = choose_samples(members)
    samples = [encode_sample(members[number], number) for number in chosen]
    data = describe(groups, remarks + left_out)
    data["samples"] = [sample.values for sample in samples]
    return _fill(data, samples)


def _fill(data: dict[str, Any], samples: Sequence[EncodedSample]) -> str:
    # One scope for all scripts, and nothing of theirs outside it.
    parts = "\n".join(_asset(f"{name}.js") for name in SCRIPTS)
    script = f'(async () => {{\n"use strict";\n{parts}}})();\n'
    style = _asset("page.css")
    blocks = [_block("data", deflated(_json(data)))]
    blocks += [
        _block(f"frames-{number}", "\n".join(sample.frames))
        for number, sample in enumerate(samples)
        if sample.frames
    ]
    page = _asset("page.html")
    for mark, content in (
        ("POLICY", _policy(script, style)),
        ("STYLE", style),
        ("DATA", "\n".join(blocks)),
        ("SCRIPT", script),
    ):
        before, after = page.split(f"<!--{mark}-->")
        page = before + content + after
    return page


def _policy(script: str, style: str) -> str:
    """Nothing may be loaded; our script and style may run, known by their hashes."""
    return (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _block(name: str, content: str) -> str:
    """Base64, in which no character could end the block."""
    return f'<script type="text/plain" id="{name}">{content}</script>'


def _json(data: dict[str, Any]) -> bytes:
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode()


def _asset(name: str) -> str:
    return files("emi.report").joinpath("assets", name).read_text(encoding="utf-8")
