"""``dpaudit explain``."""

from __future__ import annotations

import dataclasses

from rich.console import Group, RenderableType
from rich.constrain import Constrain
from rich.markdown import Markdown
from rich.table import Table
from rich.text import Text

from dpaudit.cli.output import emit, write_json_line
from dpaudit.explanations import Explanation, explain, topics

__all__ = ["show"]

_WIDTH = 100


def show(test: str | None, output: str) -> None:
    """Print the page of ``test``, or the list of all pages."""
    if test is None:
        listed = [dataclasses.asdict(topic) for topic in topics().values()]
        if output == "json":
            write_json_line(listed)
        else:
            emit(_list(listed))
        return
    page = explain(test)
    if output == "json":
        sections = [{"heading": heading, "text": text} for heading, text in page.sections]
        write_json_line({"name": page.name, "summary": page.summary, "sections": sections})
    else:
        emit(_page(page))


def _list(listed: list[dict[str, str]]) -> RenderableType:
    table = Table(box=None, pad_edge=False)
    for header in ("name", "appears in", "distribution"):
        table.add_column(header)
    for topic in listed:
        table.add_row(topic["name"], f"dpaudit {topic['command']}", topic["distribution"])
    return Group(table, Text("\ndpaudit explain NAME shows one of these pages."))


def _page(page: Explanation) -> RenderableType:
    if not page.sections:  # a docstring
        return Group(Text(page.name, style="bold"), Text(page.summary))
    parts: list[RenderableType] = [Text(page.name, style="bold"), _prose(page.summary)]
    for heading, text in page.sections:
        parts += [Text(), Text(heading, style="bold"), _prose(text)]
    return Constrain(Group(*parts), width=_WIDTH)


def _prose(text: str) -> RenderableType:
    return Markdown(text, hyperlinks=False)
