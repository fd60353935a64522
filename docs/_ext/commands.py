"""The page of commands: typer's own description of the command line, at `<!-- commands -->`."""

from __future__ import annotations

import re

import typer
from sphinx.application import Sphinx
from typer.cli import get_docs_for_click

from dpaudit.cli.app import app as commands

PAGE = "docs/commands"
MARK = "<!-- commands -->"


def described() -> str:
    """Every command, its arguments and options, as Markdown."""
    command = typer.main.get_command(commands)
    context = command.make_context("dpaudit", [], resilient_parsing=True)
    text = get_docs_for_click(obj=command, ctx=context, name="dpaudit")
    text = re.sub(r"\[/?bold\]", "**", text).partition("\n## ")[2]  # the head is on the page itself
    return "## " + re.sub(r"^\* `", "- `", text, flags=re.M)


def insert(app: Sphinx, page: str, source: list[str]) -> None:
    if page == PAGE:
        source[0] = source[0].replace(MARK, described())
        app.env.note_reread()


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", insert)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
