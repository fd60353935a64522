"""``dpaudit explain``."""

from __future__ import annotations

import dataclasses
import itertools
import operator

from rich.console import Group, RenderableType
from rich.constrain import Constrain
from rich.markdown import Markdown
from rich.table import Table
from rich.text import Text

from dpaudit.cli.output import emit, write_json_line
from dpaudit.harms import Explanation, explain, topics
from dpaudit.results.text import one_line

__all__ = ["show"]

_WIDTH = 100


def show(test: str | None, output: str) -> None:
    """Print the page of ``test``, or the list of all pages."""
    if test is None:
        listed = [dataclasses.asdict(topic) | _said(topic.name) for topic in topics().values()]
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


def _said(topic: str) -> dict[str, str]:
    """The first sentences of a topic's page, on one line."""
    return {"summary": one_line(explain(topic).summary.partition("\n\n")[0], limit=200)}


def _list(listed: list[dict[str, str]]) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    for command, about in itertools.groupby(listed, key=operator.itemgetter("command")):
        table.add_row(Text(f"dpaudit {command}", style="bold"), "")
        for topic in about:
            table.add_row(Text(f"  {topic['name']}", no_wrap=True), Text(topic["summary"]))
    return Group(
        table,
        Text("\ndpaudit explain NAME shows one of these pages."),
        Text(
            "An audit of more than a million values stops where a finding is certain; "
            "with --all it draws on and lists every finding."
        ),
    )


def _page(page: Explanation) -> RenderableType:
    if not page.sections:  # a docstring
        return Group(Text(page.name, style="bold"), Text(page.summary))
    parts: list[RenderableType] = [Text(page.name, style="bold"), _prose(page.summary)]
    for heading, text in page.sections:
        parts += [Text(), Text(heading, style="bold"), _prose(text)]
    return Constrain(Group(*parts), width=_WIDTH)


def _prose(text: str) -> RenderableType:
    return Markdown(text, hyperlinks=False)
