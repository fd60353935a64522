"""Docstrings are prose with some RST: ``|x|`` is an absolute value, and a colon is a colon."""

from __future__ import annotations

import re

from sphinx.application import Sphinx

LITERAL = re.compile(r"(``.*?``)")


def prose(
    app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    """Keep bars from being substitutions, and `The ε of a report: …` from being a type."""
    for i, line in enumerate(lines):
        parts = LITERAL.split(line)
        parts[::2] = [part.replace("|", r"\|") for part in parts[::2]]
        lines[i] = "".join(parts)
    if what in {"attribute", "data", "property"}:
        lines[:0] = ["..", ""]  # napoleon looks for a type in the first line only: an empty comment


def signature(
    app: Sphinx,
    what: str,
    name: str,
    obj: object,
    options: object,
    words: str | None,
    back: str | None,
):
    """A Protocol is made of nothing: it has no arguments worth showing."""
    return ("", back) if words == "(*args, **kwargs)" else None


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("autodoc-process-docstring", prose, priority=100)  # before napoleon
    app.connect("autodoc-process-signature", signature)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
