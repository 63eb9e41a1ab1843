"""The look of every figure: colours of methods, fonts, frames, legends, the file that is written.

Sizes are those of a printed page: a figure of WIDTH inches fills its text column, and no letter is
smaller than SMALL points.
"""

import io
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from PIL import Image

from emi.durable_file import write_durably
from emi.intrinsic.table import METHODS, order_of, title_of
from emi.report.tables import with_ending

# Okabe and Ito's colour-blind safe palette in the order of the table of methods, yellow darkened
# for white paper; the report page has the same colours.
COLOURS = (
    *("#0072b2", "#56b4e9", "#d55e00", "#009e73", "#cc79a7"),
    *("#e69f00", "#8a6d00", "#7b838c", "#000000"),
)
BLUE, VERMILION, GREEN, PINK, BROWN = (COLOURS[k] for k in (0, 2, 3, 4, 6))
INK, GREY, PALE = "#24292f", "#6b7280", "#c9ced6"
# Variants of a method take the colours of absent methods, those most unlike its own first.
_SPARE = (2, 3, 4, 5, 7, 1, 6, 8, 0)
_DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1, 1)), (0, (5, 1.5, 1, 1.5)))

WIDTH = 7.2  # inches
SMALL, NORMAL = 7.0, 8.0  # points
DPI = 200
GIF_COLOURS = 192
LEVELS = [round(round(value * 63 / 255) * 255 / 63) for value in range(256)]  # 64 of 256
LETTER = 0.53  # mean width of a letter, as a share of its size
HALO = [withStroke(linewidth=2.0, foreground="white")]

in_our_style = matplotlib.rc_context(
    {
        "font.size": NORMAL,
        "axes.titlesize": NORMAL,
        "axes.titleweight": "bold",
        "axes.titlelocation": "left",
        "axes.labelsize": NORMAL,
        "axes.edgecolor": GREY,
        "axes.labelcolor": INK,
        "axes.titlecolor": INK,
        "axes.linewidth": 0.6,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.color": "#e6e9ed",
        "grid.linewidth": 0.6,
        "lines.linewidth": 1.4,
        "lines.solid_capstyle": "round",
        "xtick.labelsize": SMALL,
        "ytick.labelsize": SMALL,
        "xtick.color": GREY,
        "ytick.color": GREY,
        "xtick.labelcolor": INK,
        "ytick.labelcolor": INK,
        "xtick.major.width": 0.6,
        "ytick.major.width": 0.6,
        "xtick.major.size": 2.5,
        "ytick.major.size": 2.5,
        "legend.fontsize": SMALL,
        "legend.frameon": False,
        "legend.handlelength": 2.2,
        "legend.columnspacing": 1.4,
        "text.color": INK,
    }
)
"""Decorates every function that draws: ticks and texts take the style when they are made."""


class Look(NamedTuple):
    """Colour and line style of one label."""

    colour: str
    dashes: Any


def look_of(method: str) -> Look:
    """The look of a method of the table."""
    return _look(order_of(method)[0])


def looks(methods: Mapping[str, str]) -> dict[str, Look]:
    """A look for each label of a figure, given the method of each.

    The method under its own title, or else its first label, has the colour of the method. Others
    take colours that no method of the figure has; when none is left, dashes distinguish lines of
    the same colour.
    """
    numbers: dict[str, int] = {}
    for label, method in sorted(methods.items(), key=lambda item: item[0] != title_of(item[1])):
        number = order_of(method)[0]
        if number < len(METHODS) and number not in numbers.values():
            numbers[label] = number
    spare = [number for number in _SPARE if number not in numbers.values()]
    for label in methods:
        if label not in numbers:
            numbers[label] = spare.pop(0) if spare else len(numbers)
    return {label: _look(numbers[label]) for label in methods}


def _look(number: int) -> Look:
    if number == order_of("noise")[0]:  # the control, which no method should look like
        return Look(GREY, _DASHES[1])
    rounds, colour = divmod(number, len(COLOURS))
    return Look(COLOURS[colour], _DASHES[rounds % len(_DASHES)])


def new_figure(width: float, height: float, title: str = "") -> Figure:
    """A figure of this size in inches; lines of the title that are too long are wrapped."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    if title:
        figure.suptitle(wrapped(title, width, NORMAL), fontsize=NORMAL, color=GREY)
    return figure


def wrapped(text: str, width: float, size: float) -> str:
    """Lines of text in letters of `size` points, broken at `width` inches."""
    most = max(10, int(width * 72 / (LETTER * size)))
    lines = (textwrap.wrap(line, most) for line in text.split("\n"))
    return "\n".join(part for parts in lines for part in parts)


def set_heading(panel: Axes, title: str, below: str = "") -> None:
    """A bold title, and under it small grey lines that explain the panel."""
    height = 1.25 * SMALL * (below.count("\n") + 1 if below else 0)
    panel.set_title(title, pad=5 + height)
    if below:
        panel.annotate(
            below,
            (0, 1),
            xytext=(0, 4),
            xycoords="axes fraction",
            textcoords="offset points",
            va="bottom",
            fontsize=SMALL,
            color=GREY,
        )


def legend_below(figure: Figure, meanings: Mapping[str, Artist]) -> None:
    """What each line or patch means, under all panels, in as few rows as its width allows."""
    widths = [SMALL * (LETTER * len(meaning) + 4.6) for meaning in meanings]  # points

    def fits(rows: int) -> bool:
        columns = (max(widths[k : k + rows]) for k in range(0, len(widths), rows))
        return sum(columns) < figure.get_figwidth() * 72

    rows = next((rows for rows in range(1, len(widths)) if fits(rows)), len(widths))
    columns = -(-len(widths) // rows)
    # Every further row makes the figure higher, and leaves the panels as they are.
    figure.set_figheight(figure.get_figheight() + (rows - 1) * 1.6 * SMALL / 72)
    figure.legend(meanings.values(), meanings.keys(), loc="outside lower center", ncols=columns)


def spread(values: Iterable[float], gap: float, low: float, high: float) -> list[float]:
    """Places for labels at these ascending values, at least `gap` apart and within the limits.

    >>> spread([0.0, 0.1, 5.0], 1.0, 0.0, 5.0)
    [0.0, 1.0, 5.0]
    >>> spread([4.8, 5.0], 1.0, 0.0, 5.0)
    [4.0, 5.0]
    """
    places: list[float] = []
    for value in values:
        places.append(max(value, places[-1] + gap if places else low))
    limit = high
    for number in reversed(range(len(places))):
        places[number] = min(places[number], limit)
        limit = places[number] - gap
    return places


def save_animation(frames: Sequence[Image.Image], seconds: Sequence[float], stem: Path) -> Path:
    """Write `stem`.gif, which repeats for ever; all frames share one palette.

    The same frames give the same bytes.
    """
    path, written = with_ending(stem, "gif"), io.BytesIO()
    some = frames[:: max(1, len(frames) // 6)]
    sheet = Image.new("RGB", (frames[0].width, frames[0].height * len(some)))
    for number, frame in enumerate(some):
        sheet.paste(frame, (0, number * frame.height))
    palette = sheet.quantize(GIF_COLOURS, Image.Quantize.MAXCOVERAGE)
    first, *others = (frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames)
    milliseconds = [round(1000 * duration) for duration in seconds]
    options = {"save_all": True, "append_images": others, "duration": milliseconds, "loop": 0}
    first.save(written, "GIF", **options)
    write_durably(path, written.getvalue())
    return path


def save_figure(figure: Figure, stem: Path) -> Path:
    """Write `stem`.png; the same figure gives the same bytes.

    Six bits per colour look the same as eight, and make a picture of many dots a fifth smaller.
    """
    path, drawn, written = with_ending(stem, "png"), io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, format="png", dpi=DPI)
    with Image.open(drawn) as image:
        reduced = image.convert("RGB").point(LEVELS * 3)
    reduced.save(written, "PNG", optimize=True, dpi=(DPI, DPI))
    write_durably(path, written.getvalue())
    return path
