"""What a person reads, whole: every kind of result in every format, help, and common errors.

Each file beside this one holds one format. A change of wording is one reviewed difference:
``pytest tests/dpaudit/rendered --rewrite`` writes the files anew. No other test holds a sentence.
"""

from __future__ import annotations

import html
import io
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from command_line import here
from rich.console import Console, Group
from support import formats

from dpaudit.cli.app import app
from dpaudit.documents import (
    AuditDocument,
    DeterminismDocument,
    MechanismDocument,
    ProofDocument,
)
from dpaudit.report import render_report
from dpaudit.report.formats.junit import junit_xml
from dpaudit.report.formats.markdown import markdown_summary
from dpaudit.report.formats.sarif import sarif_json
from dpaudit.report.notebook import printed, repr_html
from dpaudit.report.terminal.attribution import attribution_text
from dpaudit.report.terminal.audits import audit_table, mechanism_table
from dpaudit.report.terminal.census import census_text
from dpaudit.report.terminal.deployment import deployment_text
from dpaudit.report.terminal.documents import experiment_table, measurements_table
from dpaudit.report.terminal.proofs import proof_table

HERE = Path(__file__).parent
WRAPPED = (AuditDocument, MechanismDocument, ProofDocument, DeterminismDocument)
FEW = ("failed", "deployment", "audit finding", "mechanism no-finding")
TERMINAL: dict[str, Callable[[Any], Any]] = {
    "experiment": experiment_table,
    "failed": experiment_table,
    "measurements": measurements_table,
    "deployment": deployment_text,
    "attribution": attribution_text,
    "census": census_text,
    "audit": lambda d: Group(audit_table(d.result), audit_table(d.result, verbose=True)),
    "mechanism": lambda d: mechanism_table(d.result),
    "proof": lambda d: Group(*proof_table(d.result)),
}


def terminal() -> Iterator[tuple[str, str]]:
    for name in formats.EVERY_KIND:
        if draw := TERMINAL.get(name.split()[0]):
            out = io.StringIO()
            Console(file=out, width=100, color_system=None).print(draw(formats.typed(name)))
            yield name, out.getvalue()


def of_documents(
    render: Callable[[Any], str], kinds: tuple[str, ...] = formats.EVERY_KIND
) -> Iterator[tuple[str, str]]:
    for name in kinds:
        yield name, render(formats.typed(name))


def notebook() -> Iterator[tuple[str, str]]:
    for name in formats.EVERY_KIND:
        document = formats.typed(name)
        if isinstance(document, WRAPPED):
            yield name, f"{printed(document.result)}\n--\n{text_of(repr_html(document.result))}"


def text_of(page: str) -> str:
    """The text of a page, a line per block and a bar between cells."""
    page = re.sub(r"(?s)<(script|style|svg|template)\b.*?</\1>", "", page)
    page = re.sub(r"</t[dh]>", " | ", re.sub(r"\s+", " ", page))
    page = re.sub(
        r"</?(p|h\d|li|tr|div|d[tld]|table|caption|pre|section|summary)\b[^>]*>", "\n", page
    )
    lines = html.unescape(re.sub(r"<[^>]*>", "", page)).split("\n")
    return "\n".join(line for one in lines if (line := one.strip()))


def help_of(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    yield " ".join(("dpaudit", *words)), here(*words, "--help").stdout
    context = typer.Context(command)
    for name in command.list_commands(context) if hasattr(command, "list_commands") else ():
        yield from help_of(command.get_command(context, name), (*words, name))


ERRORS = (
    "audit numpy:normal:sigma=1",
    "audit nump:normal",
    "audit numpy:normal --claim categorical",
    "audit numpy:normal --samples x",
    "audit numpy:normal --alpha 3",
    "audit numpy:normal --tests momnts",
    "audit missing.npy --claim gaussian:sigma=1",
    "audit file:missing.npy --claim gaussian:sigma=1",
    "mechanism numpy:laplace --neighbours 0,1",
    "mechanism numpy:laplace --neighbours 0 --claim-epsilon 1",
    "prove python:missing.py:f --claim bernoulli",
    "run no-such-experiment",
    "attack likelihood-ratio --releases a.npy --candidates b.npy",
    "key new --dim 64 --beta -2 --gamma 2sqrtd --out key.json",
    "key show missing.json",
    "report missing",
    "explain momnts",
    "verify certificate missing.json.gz",
    "deployment apple --config missing",
    "adit numpy:normal",
)


def errors() -> Iterator[tuple[str, str]]:
    for line in ERRORS:
        done = here(*line.split())
        yield f"dpaudit {line}", f"exit code {done.returncode}\n{done.stdout}{done.stderr}"


FILES: dict[str, Callable[[], Iterator[tuple[str, str]]]] = {
    "terminal.txt": terminal,
    "page.txt": lambda: of_documents(lambda d: text_of(render_report(d))),
    "junit.txt": lambda: of_documents(junit_xml, FEW),
    "sarif.txt": lambda: of_documents(sarif_json, FEW),
    "markdown.txt": lambda: of_documents(markdown_summary),
    "notebook.txt": notebook,
    "help.txt": lambda: help_of(typer.main.get_command(app)),
    "errors.txt": errors,
}


@pytest.mark.parametrize("name", FILES)
def test_what_a_person_reads_is_what_was_reviewed(name, request, monkeypatch, tmp_path):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERMINAL_WIDTH", "80")
    path = HERE / name
    if name == "errors.txt":
        monkeypatch.chdir(tmp_path)
    made = "".join(f"=== {title}\n{text.rstrip()}\n\n" for title, text in FILES[name]())
    made = "\n".join(line.rstrip() for line in made.replace(str(tmp_path), "DIR").split("\n"))
    if request.config.getoption("--rewrite"):
        path.write_text(made, encoding="utf-8")
    kept = path.read_text(encoding="utf-8")
    assert made.split("\n") == kept.split("\n"), f"reviewed? pytest {path.parent} --rewrite"
