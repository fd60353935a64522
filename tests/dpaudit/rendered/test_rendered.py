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
from rich.console import Console
from support import results

from dpaudit.cli.app import app
from dpaudit.render import notebook_card, plain_text
from dpaudit.render.junit import junit_xml
from dpaudit.render.page import render_page
from dpaudit.render.sarif import sarif_json
from dpaudit.render.terminal import render_terminal
from dpaudit.report import Report

HERE = Path(__file__).parent
FEW = ("failed", "deployment", "audit finding", "mechanism no-finding")
WIDTH = 100


def terminal(report: Report) -> str:
    parts = [render_terminal(report, width=WIDTH)]
    if report.kind == "audit":
        parts.append(render_terminal(report, verbose=True, width=WIDTH))
    out = io.StringIO()
    Console(file=out, width=WIDTH, color_system=None).print(*parts)
    return out.getvalue()


def of_results(
    render: Callable[[Report], str], kinds: tuple[str, ...] = results.EVERY_KIND
) -> Iterator[tuple[str, str]]:
    for name in kinds:
        yield name, render(results.reported(name))


def notebook(report: Report) -> str:
    return f"{plain_text(report)}\n--\n{text_of(notebook_card(report))}"


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
    "terminal.txt": lambda: of_results(terminal),
    "page.txt": lambda: of_results(lambda report: text_of(render_page(report))),
    "junit.txt": lambda: of_results(junit_xml, FEW),
    "sarif.txt": lambda: of_results(sarif_json, FEW),
    "notebook.txt": lambda: of_results(notebook),
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
