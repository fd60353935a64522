"""Writing the page and the JSON document.

The page needs no script: figures are static SVG, and everything that the script of ours adds (reading marks out, sorting,
copying) is said without it. The script is small and plain; libraries of plots take megabytes for what is needed here. The
page's Content-Security-Policy allows that one script, by its hash, and nothing else that runs or loads.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpaudit.errors import UsageError
from dpaudit.report.badge import badge
from dpaudit.report.files import write_text
from dpaudit.report.pages import audit_page, deployment_page, experiment_page, measurements_page, mechanism_page
from dpaudit.results.text import harmless, json_escaped, printable

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

__all__ = ["render_report", "write_json", "write_report"]


def write_report(document: Mapping[str, Any], path: Path) -> Path:
    """Write a document as one self-contained HTML file (it loads nothing), atomically; returns ``path``.

    Raises:
        UsageError: the document is of none of the kinds known here, or measurements with an unknown format or key.
    """
    return write_text(render_report(document), path)


def write_json(document: Mapping[str, Any], path: Path) -> Path:
    """Write a document as indented UTF-8 JSON, atomically; returns ``path``.

    Raises:
        UsageError: it holds something that JSON has no word for (infinities, NaN, objects); ``to_dict`` mends that.
    """
    try:
        text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"document is not JSON-ready ({error}): pass it through dpaudit.types.to_dict first"
        ) from error
    return write_text(json_escaped(text) + "\n", path)


def render_report(document: Mapping[str, Any]) -> str:
    """The HTML of a document, the same bytes for the same document.

    Raises:
        UsageError: the document is of none of the kinds known here, or measurements with an unknown format or key.
    """
    match document.get("kind"):
        case "audit" if isinstance(document.get("result"), Mapping):
            context = audit_page(document["result"])
        case "mechanism" if isinstance(document.get("result"), Mapping):
            context = mechanism_page(document["result"])
        case "experiment":
            context = experiment_page(document)
        case "measurements":
            context = measurements_page(document)
        case "deployment":
            context = deployment_page(document)
        case kind:
            raise UsageError(
                f"kind={printable(kind, limit=60)!r}: a report is made from a document of kind "
                "'audit' or 'mechanism' (with 'result'), 'experiment', 'measurements' or 'deployment'"
            )
    context["badge"] = badge(
        context["verdict"], context["sentence"], word=context.get("word", ""), sign=context.get("sign", "")
    )
    script, digest = _script()
    context |= {"contents": [], "script": script, "script_hash": digest}
    page = _environment().get_template(f"{document['kind']}.html.j2").render(context)
    return harmless(page, tabs=True)  # between the fields of a mark that can be read out


@cache
def _script() -> tuple[Markup, str]:
    """The page's script, and the SHA-256 by which its policy lets that script, and no other, run."""
    from importlib.resources import files

    from markupsafe import Markup

    text = files("dpaudit.report").joinpath("templates/page.js").read_text(encoding="utf-8")
    return Markup(text), base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()  # noqa: S704


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("dpaudit.report", "templates")
    return Environment(autoescape=True, loader=loader, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
