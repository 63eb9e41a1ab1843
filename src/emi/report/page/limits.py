"""What a page holds at most, so that it opens quickly and can be sent."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Upper bounds for the parts of a page that grow with the number of runs."""

    points: int = 500  # per curve: a screen cannot show many more
    values: int = 4_000_000  # of all curves together: at most 11 MB, in practice about 7 MB
    states: int = 40_000  # of all embedding samples together: about 20 MB with frames
    times: int = 32  # of the maps of visited states: steps of their slider
    cells: int = 4_000_000  # of all maps of an environment together, at all times: some MB
    plans: int = 60  # up to 20 kB each
    video_bytes: int = 4_000_000  # of one video
    all_video_bytes: int = 20_000_000


USUAL = Limits()
