"""An audit on a terminal: the verdict last, a short pass, a command that can be copied."""

from __future__ import annotations

import copy

import pytest
from support import documents, mechanisms

from dpaudit.cli.output import SafeConsole
from dpaudit.report import audit_table, document_of, mechanism_table
from dpaudit.report.terminal.audits import PASS_LINES

_SHOW = {"audit": audit_table, "mechanism": mechanism_table}
_LONG = f"dpaudit audit library:./{'a' * 300}.so:noise --claim gaussian:sigma=1 --seed 7"


def shown(found, *, width=100, verbose=False):
    """The lines of a result on a terminal, as ``dpaudit`` prints them."""
    result = document_of(found).result
    console = SafeConsole(width=width)
    with console.capture() as text:
        console.print(_SHOW[found["kind"]](result, verbose=verbose), crop=False)
    return [line.rstrip() for line in text.get().splitlines()]


def with_tests(found, names, **changes):
    """``found`` with its first test that has a finding, or its first, once for each name."""
    made = copy.deepcopy(found)
    tests = made["result"]["tests"]
    first = next((t for t in tests if t["finding"]), tests[0])
    made["result"]["tests"] = [first | {"name": name} | changes for name in names]
    return made


def with_spots(found, count):
    made = copy.deepcopy(found)
    spot = made["result"]["cannot_rule_out"][0]
    made["result"]["cannot_rule_out"] = [spot | {"flaw": f"flaw {i:03}"} for i in range(count)]
    return made


def mechanism(verdict):
    return {"kind": "mechanism", "result": mechanisms.result(verdict)}


MAKERS = {"audit": documents.audit, "mechanism": mechanism}
CASES = [
    (kind, verdict, width, verbose)
    for kind in MAKERS
    for verdict in ("no-finding", "finding", "inconclusive")
    for width in (80, 120)
    for verbose in (False, True)
]


@pytest.mark.parametrize(("kind", "verdict", "width", "verbose"), CASES)
def test_the_verdict_comes_last(kind, verdict, width, verbose):
    lines = shown(MAKERS[kind](verdict), width=width, verbose=verbose)
    last = len(lines) - lines[::-1].index("")
    wanted = {"no-finding": "No finding", "finding": "Finding", "inconclusive": "Inconclusive"}
    assert lines[last].startswith(f"{wanted[verdict]}: ")
    assert max(map(len, lines)) <= width


@pytest.mark.parametrize("width", [80, 100, 200])
@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("count", [1, 5, 17, 60])
def test_a_pass_is_short_and_hides_no_number(kind, count, width):
    found = with_spots(MAKERS[kind]("no-finding"), count)
    lines = shown(found, width=width)
    assert len(lines) <= PASS_LINES - 2  # the path of the report, after a blank line
    rows = sum("flaw 0" in line for line in lines)
    more = [line for line in lines if " more row" in line]
    if rows < count:
        assert more == [
            f"{count - rows} more row{'s' * (count - rows > 1)}: --verbose shows all, "
            "and so does the report of --out DIR."
        ]
        assert rows >= 3
    else:
        assert more == []
    whole = "\n".join(shown(found, width=width, verbose=True))
    assert all(f"flaw {i:03}" in whole for i in range(count))


@pytest.mark.parametrize("width", [40, 80, 120])
@pytest.mark.parametrize("kind", MAKERS)
def test_the_command_stays_on_one_line_however_long(kind, width):
    found = with_tests(MAKERS[kind]("finding"), ["moments"], reproduce=_LONG)
    for verbose in (False, True):
        assert _LONG in shown(found, width=width, verbose=verbose)


def test_one_command_is_shown_and_all_of_them_with_verbose():
    found = with_tests(documents.audit("finding"), ["moments", "tails", "norms"])
    for test in found["result"]["tests"]:
        test["reproduce"] = f"dpaudit audit x --tests {test['name']}"
    lines = shown(found)
    assert "To see it again (2 more with --verbose):" in lines
    assert [line for line in lines if line.startswith("dpaudit audit")] == [
        "dpaudit audit x --tests moments"
    ]
    again = [line for line in shown(found, verbose=True) if line.startswith("dpaudit audit")]
    assert again == [f"dpaudit audit x --tests {name}" for name in ("moments", "tails", "norms")]


def test_equal_findings_keep_the_order_of_causes():
    """The audit puts the likelier cause first among p-values that no longer differ."""
    names = ["support", "moments", "coordinates"]
    found = with_tests(documents.audit("finding"), names, p=1e-300, p_adjusted=1e-299)
    assert "dpaudit explain support" in shown(found)
    found["result"]["tests"][0] |= {"p": 1e-101, "p_adjusted": 1e-100}
    assert "dpaudit explain support" in shown(found)
    found["result"]["tests"][0] |= {"p": 1e-90, "p_adjusted": 1e-90}
    assert "dpaudit explain moments" in shown(found)


def test_what_others_wrote_steers_nothing():
    found = with_tests(documents.audit("finding"), ["moments"], reproduce="dpaudit \x1b[2J\nx")
    assert "dpaudit �[2J x" in shown(found)
