"""Matplotlib figures as inline SVG: the page's colours, unique ids, the same bytes each time.

The page's script can read out the marks of a figure: place, name and exact value. Places come from
matplotlib's transforms when the figure is drawn, so that the script needs no library and knows no
axes. Without script the figure, its alternative text and the tables give the same information.
"""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, NamedTuple

from dpaudit.results.text import one_line

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from dpaudit.report import Column

__all__ = [
    "ALARM",
    "CALM",
    "INK",
    "PAPER",
    "QUIET",
    "SERIES",
    "Picture",
    "Spot",
    "belongs",
    "inline_svg",
    "read_out",
    "series_of",
    "short",
    "style",
    "superscript",
]

MOST_MARKS = 1000
"""A figure with more marks is not read out; its numbers are in the tables."""


class Spot(NamedTuple):
    """A mark at (x, y) of ``axes``: its name and value in words, its series, and its link."""

    axes: Axes
    x: float
    y: float
    name: str
    value: str
    series: int | None = None
    to: str = ""


def read_out(marks: Sequence[Spot]) -> str:
    """One line per mark for the script: ``left top name value series to``, separated by tabs.

    ``left`` and ``top`` are in percent of the figure. Call it when the figure has been drawn; marks
    outside their axes are left out.
    """
    if len(marks) > MOST_MARKS:
        return ""
    return "\n".join(line for mark in marks if (line := _placed(mark)))


def series_of(names: Iterable[str]) -> str:
    """One line per series for the script, which can show and hide them."""
    return "\n".join(_line(name, limit=60) or "–" for name in names)


def belongs(artists: Artist | Iterable[Artist], series: int) -> None:
    """Mark artists as parts of a series (a class in the SVG), so that the script can hide them."""
    for artist in [artists] if not isinstance(artists, Iterable) else artists:
        artist.set_gid(f"class-s{series}")


def _line(text: str, *, limit: int = 200) -> str:
    """Third-party text on one line, without tabs."""
    return one_line(text, limit=limit)


def _placed(mark: Spot) -> str:
    figure = mark.axes.get_figure(root=True)
    if figure is None or not (math.isfinite(mark.x) and math.isfinite(mark.y)):
        return ""
    left, bottom = figure.transFigure.inverted().transform(
        mark.axes.transData.transform((mark.x, mark.y))
    )
    if not (0 <= left <= 1 and 0 <= bottom <= 1):
        return ""
    places = f"{100 * float(left):.2f}\t{100 * (1 - float(bottom)):.2f}"
    series = "" if mark.series is None else str(mark.series)
    return f"{places}\t{_line(mark.name)}\t{_line(mark.value)}\t{series}\t{mark.to}"


INK, CALM, ALARM, QUIET, PAPER = "#010203", "#040506", "#070809", "#0a0b0c", "#0d0e0f"
"""Sentinels for text and axes, the expected, a warning, reference lines and the page.

The page's CSS has the colours.
"""

SERIES = ("#111213", "#141516", "#171819", "#1a1b1c", "#1d1e1f", "#202122")
"""Sentinels for the series of a figure, whose marks and line styles differ too."""

_CSS = {
    INK: "currentColor",
    CALM: "var(--calm)",
    ALARM: "var(--alarm)",
    QUIET: "var(--quiet)",
    PAPER: "var(--paper)",
}
_CSS |= {sentinel: f"var(--series-{k})" for k, sentinel in enumerate(SERIES, 1)}
_TAG = re.compile(r"<[^>]*>")


class Picture(NamedTuple):
    """A figure for the page: its SVG, alternative text and caption; a wide one scrolls on a phone.

    ``name`` is its id on the page. ``points`` and ``series`` are for the script
    (:func:`read_out`, :func:`series_of`). ``numbers`` is a table of the drawn values, if no other
    table of the page has them.
    """

    svg: str
    alt: str
    caption: str
    title: str = ""
    wide: bool = False
    name: str = ""
    points: str = ""
    series: str = ""
    numbers: Sequence[Column] = ()


def style() -> AbstractContextManager[None]:
    """A context manager with the drawing style."""
    from matplotlib import rc_context

    return rc_context(
        {
            "svg.fonttype": "none",
            "svg.hashsalt": "dpaudit",
            "text.parse_math": False,
            "font.family": "DejaVu Sans",
            "font.size": 9.5,
            "axes.labelsize": 9.5,
            "axes.titlesize": 9.5,
            "axes.linewidth": 0.6,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "xtick.labelsize": 9,
            "ytick.labelsize": 9,
            "legend.frameon": False,
            "legend.fontsize": 9,
            **dict.fromkeys(
                ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"),
                INK,
            ),
        }
    )


def inline_svg(draw: Callable[[], Figure], *, prefix: str) -> str:
    """Draw a figure in our style as SVG for an HTML page; its ids start with ``prefix``."""
    out = io.StringIO()
    with style(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        warnings.filterwarnings("ignore", message="constrained_layout not applied")
        figure = draw()
        nothing = {"Date": None, "Creator": None, "Format": None, "Type": None}
        figure.savefig(out, format="svg", transparent=True, metadata=nothing)
    text = out.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(
        r"<!--.*?-->|<metadata>.*?</metadata>|<style.*?</style>", "", text, flags=re.DOTALL
    )
    return _TAG.sub(lambda tag: _adapted(tag.group(), prefix), re.sub(r">\s+<", "><", text)).strip()


def _adapted(tag: str, prefix: str) -> str:
    """Adapt one tag: prefix ids and references, replace the sentinel colours, size by CSS."""
    tag = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", tag)
    # an id of belongs() is a class, as a series has several parts
    tag = re.sub(r'\bid="class-(\w+)"', r'class="\1"', tag)
    tag = re.sub(r'\bid="', f'id="{prefix}-', tag)
    # a link into this page, for the mouse; tables and read-out serve the keyboard
    if tag.startswith("<a "):
        tag = re.sub(r'\starget="[^"]*"', "", tag).replace(" xlink:href=", " href=")
        return tag.replace("<a ", '<a tabindex="-1" ')
    tag = tag.replace("url(#", f"url(#{prefix}-").replace('xlink:href="#', f'href="#{prefix}-')
    for sentinel, css in _CSS.items():
        tag = tag.replace(sentinel, css)
    tag = re.sub(r"font-family:[^;\"]*;? ?|(?<=font: )([\d.]+px) [^;\"]*", r"\1", tag)
    if tag.startswith("<svg"):
        tag = re.sub(r'\s(width|height|version)="[^"]*"', "", tag)
    return tag


def short(text: str, *, limit: int = 32) -> str:
    """A label on one line, cut to fit an axis."""
    return one_line(text, limit=limit)


def superscript(exponent: int) -> str:
    """A power of ten.

    >>> superscript(-12), superscript(0)
    ('10⁻¹²', '1')
    """
    if exponent == 0:
        return "1"
    return "10" + str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
