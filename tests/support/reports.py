"""Neutral reports for the tests of renderers: every block and outcome, hostile ones, random ones.

With validators: our own JSON Schema, SARIF's, and what JUnit's XSD says.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import re
import types
import typing
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from dpaudit.codec import to_dict
from dpaudit.render.documents import schema_text
from dpaudit.report import (
    Axis,
    BlindSpots,
    Chart,
    Check,
    Column,
    Command,
    Facts,
    Findings,
    Hazard,
    Items,
    Line,
    Mark,
    Meaning,
    Panel,
    Report,
    Section,
    Series,
    Table,
    Text,
    replace,
)
from dpaudit.types import BlindSpot, Interval, Provenance
from support.documents import HOSTILE as PLAIN_HOSTILE
from support.documents import provenance

ROOT = Path(__file__).resolve().parents[2]
SCHEMAS = ROOT / "tests" / "data" / "schemas"
HOSTILE = (
    PLAIN_HOSTILE
    + " | `` ``` @everyone #12 [x](http://evil.test) www.evil.test <!-- \x00\x07 ]]> {0} \ufffe\n"
    "line :smile:"
)
AGAIN = "dpaudit mechanism numpy:laplace:scale=0.5 --neighbours 0,1 --claim-epsilon 1"
SPOTS = (
    BlindSpot(test="moments", flaw="wrong scale", size=0.00091, unit="of σ", says="0.09 % pass"),
    BlindSpot(test="", flaw="a secret direction", size=None, unit="", says="no size helps"),
)


def check(name: str = "moments", outcome: Any = "finding", **changes: Any) -> Check:
    """A check; a finding comes with everything that a check can say."""
    known: dict[str, Any] = {"looks_at": "single values", "p": 0.4, "p_adjusted": 0.8}
    if outcome == "finding":
        interval = Interval(low=6.7, high=float("inf"), confidence=0.99, method="Clopper-Pearson")
        known |= {"p": 1e-9, "p_adjusted": 1e-8, "statistic": 6.7, "interval": interval}
        known |= {"unit": "ε", "topic": "moments", "cause": "a scale", "reproduce": AGAIN}
    return Check(
        **{"name": name, "outcome": outcome, "effect": "5 of 9 against 0", **known} | changes
    )


def table_of(checks: typing.Sequence[Check], **changes: Any) -> Table:
    """The table of checks, as audits have it."""
    return Table(
        **{
            "columns": (
                Column("Test", tuple(c.name for c in checks)),
                Column("Looks at", tuple(c.looks_at for c in checks), terminal=False),
                Column("Adjusted p", tuple(f"{c.p_adjusted}" for c in checks), True),
                Column("Effect", tuple(c.effect for c in checks)),
            ),
            "caption": "Smallest adjusted p first",
            "marked": tuple(c.outcome == "finding" for c in checks),
            "terminal": "Tests",
            "checks": True,
        }
        | changes
    )


def ladder(checks: typing.Sequence[Check]) -> Chart:
    """A chart whose marks lead to the rows of the checks."""
    marks = tuple(
        Mark(x=max(c.p_adjusted or 0.0, 1e-20), y=float(i), name=c.name, says="p", link=str(i + 1))
        for i, c in enumerate(checks)
    )
    line = Line(at=0.01, label="α", vertical=True)
    return Chart(
        kind="rows", title="Adjusted p-values", caption="Left of the line: findings.",
        alt="Adjusted p-values of all tests on a logarithmic axis, the smallest first.",
        panels=(Panel(series=(Series(marks=marks, look="stems"),), lines=(line,)),),
        x=Axis(label="adjusted p-value", log=True, high=1.0),
        y=Axis(categories=tuple(c.name for c in checks)),
    )  # fmt: skip


def report(verdict: Any = "finding", *checks: Check, **changes: Any) -> Report:
    """A report on a sampler with its checks, a chart of them, facts, and what a pass excludes."""
    if not checks and verdict == "finding":
        checks = check(), check("tails"), check("norms", "pass"), check("time", "advice")
    elif not checks and verdict == "no-finding":
        checks = check(outcome="pass"), check("norms", "pass"), check("forks", "pass")
    elif not checks:
        checks = (check("verdict", "error", group="verdict", effect="it ended with signal 9"),)
    said = {
        "finding": "Finding: moments contradicts gaussian:sigma=1.",
        "no-finding": "No finding: nothing contradicts gaussian:sigma=1.",
        "inconclusive": "Inconclusive: it ended with signal 9.",
    }[verdict]
    rows = (("Claim", "gaussian:sigma=1"), ("Values", "10,000,000"))
    found = (Text("Three tests at α = 0.01."), *([ladder(checks)] if checks else []), Findings())
    spots = SPOTS if verdict == "no-finding" else ()
    sections = [
        Section(title="What was tested", blocks=(Facts(rows, file=True), Facts(rows))),
        Section(title="What was found", blocks=found),
    ]
    if spots:
        sections.append(Section(title="What a pass cannot exclude", blocks=(BlindSpots(),)))
    if checks:
        sections.append(Section(title="All tests", blocks=(table_of(checks),)))
    return Report(
        **{
            "kind": "audit",
            "label": "black-box audit",
            "subject": "python:./noise.py:draw",
            "title": "Audit of python:./noise.py:draw",
            "claim": "gaussian:sigma=1",
            "verdict": verdict,
            "headline": said,
            "meaning": (Meaning(heading="Weak noise", says="The noise is weak.", found="moments",
                                topics=("moments",), note="A remark."),),
            "checks": checks,
            "sections": tuple(sections),
            "blind_spots": spots,
            "advice": ("ask for more releases",),
            "hazards": (Hazard(component="Trust models", found=("moments",), open=("a key",)),),
            "facts": {"alpha": 0.01, "samples": 10_000_000, "sandbox": "full"},
            "data": {"verdict": verdict, "σ": 1.0},
            "provenance": provenance(),
            "seconds": 83.2,
            "command": "dpaudit audit python:./noise.py:draw",
        }
        | changes
    )  # fmt: skip


def charts() -> tuple[Chart, ...]:
    """A chart of every kind, with series of every look."""
    xs = (1.0, 10.0, 100.0)

    def marks(height: float, **more: Any) -> tuple[Mark, ...]:
        return tuple(
            Mark(x=x, y=height + x, low=height + x - 0.5, high=height + x + 0.5, width=0.6,
                 name=f"at {x:g}", says=f"{height + x:g}", **more)
            for x in xs
        )  # fmt: skip

    def series(group: int, legend: str, look: Any, **more: Any) -> Series:
        return Series(marks=marks(float(group)), look=look, group=group, legend=legend, **more)

    lines = (Line(at=2.0, label="chance"), Line(sloped=True))
    both = (series(0, "ours", "line", shade="above"), series(1, "theirs", "points"))
    bars = (series(0, "with", "bars"), series(1, "without", "steps", quiet=True))
    points = (Series(marks=(Mark(x=2.0, y=3.0, high=float("inf"), low=1.0, label="here"),)),)
    cells = tuple(Mark(x=i % 4.0, y=i // 4.0, value=i / 8, name=f"cell {i}") for i in range(8))
    alt = "Three numbers against three others, each with its interval, and a line of chance."
    plain: dict[str, Any] = {"title": "A plot", "caption": "Thin: intervals.", "alt": alt}
    return (
        Chart(kind="plot", panels=(Panel(series=both, lines=lines, title="left"),
                                   Panel(series=(series(0, "", "band"), *both), title="right")),
              x=Axis(label="values", log=True), y=Axis(label="ε"), columns=2,
              numbers=(Column("x", ("1", "10", "100")),), **plain),
        Chart(kind="plot", panels=(Panel(series=bars),) * 3, x=Axis(label="bin"),
              y=Axis(zero=True, form="proportion"), columns=3, **plain),
        Chart(kind="plot", panels=(Panel(series=points, y=Axis(label="ε", shared=False)),),
              x=Axis(ticks=((2.0, "two"),), low=0.0, high=5.0), y=Axis(), names=True, **plain),
        Chart(kind="map", panels=(Panel(series=(Series(marks=cells, look="cells"),)),),
              x=Axis(label="across", categories=tuple("abcd")), y=Axis(categories=("low", "high")),
              value=Axis(label="share", form="proportion"), **plain),
    )  # fmt: skip


def long_table(rows: int, **changes: Any) -> Table:
    """A table of measurements: numbers with intervals, and words."""
    cells = [tuple(f"{i}.{k} [{i}, {i + 1}]" for i in range(rows)) for k in range(6)]
    columns = (
        Column("Arm", tuple(f"arm {i}" for i in range(rows))),
        *(Column(f"Column {k} of numbers", numbers, True) for k, numbers in enumerate(cells)),
    )
    known: dict[str, Any] = {"caption": "One row per measurement", "terminal": "Measurements"}
    return Table(columns=columns, **known | changes)


def measurements(rows: int = 60) -> Report:
    """A report with cells that failed, long tables, folded parts, lists, commands and charts."""
    trace = "Traceback …\nValueError: no"
    failed = check("attack b-2", "error", group="cells", effect="ValueError: no", p=None,
                   facts={"traceback": trace})  # fmt: skip
    apart = [check(f"n={i}", "finding", group="published", p=None, interval=None) for i in range(3)]
    misses = long_table(3, caption="The rows that disagree", terminal="Where ours differs")
    whole = long_table(rows, left_out=7, marked=(False,) * 5 + (True,), ordered=False)
    sections = (
        Section(title="Cells that failed", blocks=(Text("These are missing.", "note"), Findings())),
        Section(title="What was tested", blocks=(
            Text("A heading", "heading"), Text("A paragraph.", terminal=True),
            Command("dpaudit run demo", "To repeat this run:"), Items(("a", "b"), terminal=True),
            Facts((("Sources", "7"), ("Reports", "9")), terminal=("Reports",)))),
        Section(title="Figures", blocks=charts()),
        Section(title="All measurements", blocks=(misses, whole)),
        Section(title="Cells", folded=True, note="(60)", blocks=(
            long_table(30, terminal="", quiet=True, summary="All cells", ordered=True),)),
    )  # fmt: skip
    return report("finding", failed, *apart, kind="measurements", label="measurements",
                  subject="demo", title="A covert key", badge="3 differ, incomplete", sign="≠",
                  headline="Incomplete: 1 cell failed and is missing here. 57 of 60 agree.",
                  claim="", sections=sections, meaning=(), hazards=(),
                  facts={"rows": rows})  # fmt: skip


def empty(verdict: Any = "inconclusive") -> Report:
    """A report that says nothing but its verdict."""
    texts = dict.fromkeys(("kind", "label", "subject", "title"), "x")
    return Report(verdict=verdict, headline="Inconclusive: nothing.", **texts)


def huge() -> Report:
    """More checks and blind spots than any format shows."""
    checks = [check(f"test {i}", seconds=float("nan")) for i in range(1200)]
    return report("finding", *checks, blind_spots=SPOTS * 500, sections=())


EVERY: dict[str, Report] = {
    **{verdict: report(verdict) for verdict in ("finding", "no-finding", "inconclusive")},
    "measurements": measurements(),
    "empty": empty(),
}
"""Reports by name; every block, chart and outcome is in one of them."""

_OURS = {"kind", "verdict", "outcome", "schema", "look", "shade", "form", "link", "marker", "group"}


def hostile(value: Any, *, text: str = HOSTILE) -> Any:
    """The same report with the text in place of every other, also among the keys of mappings."""
    if isinstance(value, str):
        return text
    if isinstance(value, msgspec.Struct):
        kept = [n for n in value.__struct_fields__ if n not in _OURS]
        return replace(value, **{n: hostile(getattr(value, n), text=text) for n in kept})
    if dataclasses.is_dataclass(value):
        fields = [f.name for f in dataclasses.fields(value)]
        new = {n: hostile(getattr(value, n), text=text) for n in fields}
        return dataclasses.replace(value, **new)  # type: ignore[type-var]
    if isinstance(value, (tuple, list)):
        return type(value)(hostile(one, text=text) for one in value)
    if isinstance(value, Mapping):
        return {text: text} | {k: hostile(one, text=text) for k, one in value.items()}
    return value


# --- validators


@functools.cache
def validator() -> Draft202012Validator:
    """Of the published schema of reports."""
    return Draft202012Validator(json.loads(schema_text()))


@functools.cache
def sarif() -> Draft202012Validator:
    return Draft202012Validator(
        json.loads((SCHEMAS / "sarif-2.1.0.json").read_text(encoding="utf-8"))
    )


class Xsd:
    """Of an XSD as plain as junit-10.xsd: elements with attributes, children and patterns."""

    def __init__(self, path: Path) -> None:
        self.root = ElementTree.parse(path).getroot()
        self.patterns = {
            t.get("name"): t.find(".//{*}pattern").get("value")
            for t in self.root.findall("{*}simpleType")
        }
        self.types = {t.get("name"): t for t in self.root.findall("{*}complexType")}
        self.elements = {e.get("name"): e for e in self.root.findall("{*}element")}

    def errors(self, element: ElementTree.Element) -> list[str]:
        if element.tag not in self.elements:
            return [f"<{element.tag}> is not known"]
        found = self.elements[element.tag]
        kind = found.find("{*}complexType")
        kind = kind if kind is not None else self.types.get(found.get("type"))
        if kind is None:
            return (
                [f"<{element.tag}> has children or attributes"]
                if len(element) or element.attrib
                else []
            )
        attributes = {
            a.get("name"): a for a in kind.findall("{*}attribute") + kind.findall(".//{*}attribute")
        }
        children = {
            c.get("ref") or c.get("name") for c in kind.iter() if c.tag.endswith("}element")
        }
        wrong = [
            f"<{element.tag} {name}> unknown" for name in element.attrib if name not in attributes
        ]
        wrong += [f"<{element.tag}> lacks {n}" for n, a in attributes.items()
                  if a.get("use") == "required" and n not in element.attrib]  # fmt: skip
        for name, value in element.attrib.items():
            pattern = (
                self.patterns.get(attributes[name].get("type")) if name in attributes else None
            )
            if pattern is not None and not re.fullmatch(pattern, value):
                wrong.append(f"<{element.tag} {name}={value!r}> does not fit {pattern}")
        wrong += [f"<{c.tag}> in <{element.tag}>" for c in element if c.tag not in children]
        if (
            kind.get("mixed") != "true"
            and kind.find(".//{*}extension") is None
            and (element.text or "").strip()
        ):
            wrong.append(f"text in <{element.tag}>")
        return wrong + [error for child in element for error in self.errors(child)]


@functools.cache
def junit() -> Xsd:
    return Xsd(SCHEMAS / "junit-10.xsd")


# --- random reports

texts = st.text(max_size=8)
FREE = texts | st.floats(width=32) | st.none() | st.lists(st.integers(0, 9), max_size=2)
PLAIN = {
    int: st.integers(0, 10**12), float: st.floats(width=32), bool: st.booleans(), str: texts,
    type(None): st.none(), Any: FREE, datetime: st.datetimes(timezones=st.just(UTC)),
}  # fmt: skip


@functools.cache
def random(cls: type) -> st.SearchStrategy[Any]:
    """Random instances of a class of results or reports: any text, infinities and NaN."""
    hints = typing.get_type_hints(cls, include_extras=True)
    names = (
        cls.__struct_fields__
        if issubclass(cls, msgspec.Struct)
        else [f.name for f in dataclasses.fields(cls)]
    )
    return st.builds(cls, **{name: _values(hints[name]) for name in names})


def _values(hint: Any) -> st.SearchStrategy[Any]:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        base, rule = arguments
        if base is float:
            return _numbers(rule)
        if base is int:
            return st.integers(rule.ge, 10**12)
        return st.just({}) | random(Provenance).map(to_dict)  # the one mapping with a rule
    if origin in (typing.Union, types.UnionType):
        return st.one_of(*map(_values, arguments))
    if origin is typing.Literal:
        return st.sampled_from(arguments)
    if origin is tuple and arguments[-1] is not Ellipsis:
        return st.tuples(*map(_values, arguments))
    if origin is tuple:
        return st.lists(_values(arguments[0]), max_size=2).map(tuple)
    if origin is Mapping:
        return st.dictionaries(texts, _values(arguments[1]), max_size=2)
    return PLAIN[hint] if hint in PLAIN else random(hint)


def _numbers(rule: msgspec.Meta) -> st.SearchStrategy[float]:
    """Of a number's annotation: within its bounds, or one of its words."""
    if rule.gt is not None:
        return st.floats(0.001, 0.5)
    more = rule.extra_json_schema or {}
    within = st.floats(
        more.get("minimum"), more.get("maximum"), width=32, allow_nan=False, allow_infinity=False
    )
    return within | st.sampled_from([float(word) for word in more["words"]])
