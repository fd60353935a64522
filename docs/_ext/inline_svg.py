"""Drawings under `_static/` go into the page itself, where its colours, light or dark, reach them.

In Markdown they are images like any other, so that they are seen wherever the file is read.
"""

from __future__ import annotations

from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx


def inline(app: Sphinx, doctree: nodes.document) -> None:
    for image in list(doctree.findall(nodes.image)):
        file = Path(app.srcdir, image["uri"])
        if file.suffix == ".svg" and file.parent.name == "_static":
            drawing = f'<div class="drawing">{file.read_text(encoding="utf-8")}</div>'
            image.parent.replace(image, nodes.raw("", drawing, format="html"))
            app.env.note_dependency(str(file))


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("doctree-read", inline)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
