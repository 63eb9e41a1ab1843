"""Videos of runs, as `emi watch` and `emi plan` write them into the run directory."""

import base64
from collections.abc import Sequence
from typing import NamedTuple

from emi.report.load import Run
from emi.report.page.limits import Limits

TYPES = {".mp4": "video/mp4", ".gif": "image/gif"}
# What a video shows, by the name of its file.
SHOWN = {"watch": "the trained agent", "plan": "a plan"}
FILES = [(name, ending) for name in SHOWN for ending in TYPES]


class EncodedVideo(NamedTuple):
    """The video of run `run`."""

    run: int
    shows: str
    type: str
    base64: str


def encode_videos(runs: Sequence[Run], limits: Limits) -> tuple[list[EncodedVideo], list[str]]:
    """The videos that the page holds, and remarks on those left out; low seeds come first."""
    chosen: list[EncodedVideo] = []
    remarks: list[str] = []
    left = limits.all_video_bytes
    for k in sorted(range(len(runs)), key=lambda k: (runs[k].seed, k)):
        for name, ending in FILES:
            file = runs[k].path / f"{name}{ending}"
            if not file.is_file():
                continue
            size = file.stat().st_size
            if size > min(left, limits.video_bytes):
                remarks.append(
                    f"{runs[k].place}/{file.name} ({size / 1e6:.1f} MB) is left out: a page holds "
                    f"videos of up to {limits.video_bytes / 1e6:g} MB, "
                    f"{limits.all_video_bytes / 1e6:g} MB together."
                )
                continue
            left -= size
            text = base64.b64encode(file.read_bytes()).decode()
            chosen.append(EncodedVideo(k, SHOWN[name], TYPES[ending], text))
    return sorted(chosen, key=lambda video: video.run), remarks
