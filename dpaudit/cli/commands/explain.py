"""``dpaudit explain``: the page of a test, or the list of all pages."""

from __future__ import annotations

import dataclasses
import itertools
import operator
from typing import TYPE_CHECKING, Annotated

from dpaudit.cli.options import FormatOption, with_shared_options
from dpaudit.cli.output import emit, write_json_line
from dpaudit.options import Argument
from dpaudit.results.text import one_line

if TYPE_CHECKING:
    from rich.console import RenderableType

    from dpaudit.harms import Explanation

__all__ = ["explain"]

_WIDTH = 100


@with_shared_options
def explain(
    test: Annotated[
        str | None,
        Argument(
            "A test's name as a finding prints it; without one, all pages are listed.",
            "TEST",
            completion="explained",
        ),
    ] = None,
    output: FormatOption = "text",
) -> None:
    """Explain a test: what it looks at, what a finding means, and what to do.

    Also says what typically causes a finding, what the test cannot see, and
    where it comes from.

    [bold]Examples[/bold]

    $ dpaudit explain moments
    $ dpaudit explain low-bits --format json
    """
    from dpaudit import harms

    if test is None:
        listed = [
            dataclasses.asdict(topic) | {"summary": _first_words(harms.explain(topic.name))}
            for topic in harms.topics().values()
        ]
        if output == "json":
            write_json_line(listed)
        else:
            emit(_list(listed))
        return
    page = harms.explain(test)
    if output == "json":
        sections = [{"heading": heading, "text": text} for heading, text in page.sections]
        write_json_line({"name": page.name, "summary": page.summary, "sections": sections})
    else:
        emit(_page(page))


def _first_words(page: Explanation) -> str:
    """The first sentences of a page, on one line."""
    return one_line(page.summary.partition("\n\n")[0], limit=200)


def _list(listed: list[dict[str, str]]) -> RenderableType:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

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
    from rich.console import Group
    from rich.constrain import Constrain
    from rich.markdown import Markdown
    from rich.text import Text

    if not page.sections:  # a docstring
        return Group(Text(page.name, style="bold"), Text(page.summary))
    parts: list[RenderableType] = [
        Text(page.name, style="bold"),
        Markdown(page.summary, hyperlinks=False),
    ]
    for heading, text in page.sections:
        parts += [Text(), Text(heading, style="bold"), Markdown(text, hyperlinks=False)]
    return Constrain(Group(*parts), width=_WIDTH)
