"""Matplotlib figures as inline SVG: the page's colours, unique ids, the same bytes each time."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, NamedTuple

from dpaudit.results.text import one_line

if TYPE_CHECKING:
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
    "inline_svg",
    "present",
    "short",
    "style",
    "superscript",
]

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
    (:mod:`dpaudit.render.charts.readout`). ``numbers`` is a table of the drawn values, if no other
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


def present(*pictures: Picture | None) -> list[Picture]:
    """The pictures that are not None."""
    return [picture for picture in pictures if picture is not None]


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
