"""Snippets in the search results of a site that is read from disk.

Sphinx's search fetches each page that it found, and no browser fetches files. The pages' words are
therefore written into `_static/pages.js`, which the search page loads and answers `fetch` from.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from sphinx.application import Sphinx

SCRIPT = "pages.js"
ARTICLE = re.compile(r'<article[^>]* role="main"[^>]*>(.*?)</article>', re.S)
DRAWN = re.compile(r'<(svg|style|script)\b.*?</\1>|<a class="headerlink".*?</a>', re.S)
TAG = re.compile(r'</?section\b[^>]*?( id="[^"]*")?[^>]*>|<[^>]*>', re.S)
ANSWER = """\
if (location.protocol === "file:") {
  const pages = %s;
  window.fetch = async (url) => new Response(pages[new URL(url, location.href).href.slice(
    new URL(document.documentElement.dataset.content_root, location.href).href.length)]);
}
"""


def words(page: str) -> str:
    """The text of a page's article and the anchors of its sections, without any other tag."""
    found = ARTICLE.search(page)

    def kept(tag: re.Match[str]) -> str:
        if tag[0].startswith("</section"):
            return "</section>"
        return f"<section{tag[1] or ''}>" if tag[0].startswith("<section") else " "

    text = TAG.sub(kept, DRAWN.sub(" ", found[1])) if found else ""
    return '<div role="main">' + re.sub(r"\s+", " ", text) + "</div>"


def load(app: Sphinx, page: str, template: str, context: object, doctree: object) -> None:
    if page == "search":
        app.add_js_file(SCRIPT)


def write(app: Sphinx, error: Exception | None) -> None:
    if error or app.builder.format != "html":
        return
    files = {
        f"{name}.html": Path(app.outdir, f"{name}.html") for name in sorted(app.env.found_docs)
    }
    pages = {name: words(file.read_text(encoding="utf-8")) for name, file in files.items()}
    Path(app.outdir, "_static", SCRIPT).write_text(ANSWER % json.dumps(pages), encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("html-page-context", load)
    app.connect("build-finished", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
