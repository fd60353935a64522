"""Notebooks as pages: their cells as Markdown, their stored outputs as they are; nothing is run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from sphinx.application import Sphinx

NOTE = "This page is the notebook `{}`, with the outputs of its last run."


def markdown(notebook: dict) -> str:
    """The whole notebook as one page."""
    return "\n\n".join(part for cell in notebook["cells"] for part in parts(cell)) + "\n"


def parts(cell: dict) -> Iterator[str]:
    """A cell's text or code, and what the code showed."""
    text = "".join(cell["source"])
    if cell["cell_type"] != "code":
        yield text
        return
    yield fenced("python", text)
    for output in cell["outputs"]:
        data = output.get("data", {})
        if "text/html" in data:
            yield fenced("{raw} html", "".join(data["text/html"]))
        else:
            yield fenced("text", "".join(output.get("text") or data.get("text/plain", "")))


def fenced(kind: str, text: str) -> str:
    return f"````{kind}\n{text.rstrip()}\n````"


def convert(app: Sphinx, page: str, source: list[str]) -> None:
    file = Path(app.env.doc2path(page, base=False)).as_posix()
    if file.endswith(".ipynb"):
        title, _, rest = markdown(json.loads(source[0])).partition("\n")
        source[0] = f"{title}\n\n{fenced('{note}', NOTE.format(file))}\n{rest}"


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", convert)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
