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
    text = re.sub(r"^\* `", "- `", text, flags=re.M)
    text = re.sub(r"\*\*Commands\*\*:\n\n(- .*\n)+\n", "", text)  # cut short; they follow in full
    return "## " + "\n\n".join(_laid_out(block) for block in text.split("\n\n"))


def _laid_out(block: str) -> str:
    """A paragraph of help as Markdown: examples and columns keep their lines, options are code."""
    if block.startswith("$ "):
        return f"```console\n{block}\n```"
    if re.search(r"^[^-].*\S {2,}\S", block, re.M):
        return f"```text\n{block}\n```"
    if block.startswith(("```", "#")):
        return block
    parts = re.split(r"(`[^`]*`)", block)
    parts[::2] = [re.sub(r"(?<!\w)--[a-z][a-z-]*", r"`\g<0>`", part) for part in parts[::2]]
    return "".join(parts)


def insert(app: Sphinx, page: str, source: list[str]) -> None:
    if page == PAGE:
        source[0] = source[0].replace(MARK, described())
        app.env.note_reread()


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", insert)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
