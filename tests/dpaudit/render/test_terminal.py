"""A report on a terminal: the verdict last, a short pass, a command that can be copied."""

from __future__ import annotations

import dataclasses

import pytest
from support import reports

from dpaudit.cli.progress import SafeConsole
from dpaudit.render.terminal import PASS_LINES, render_terminal
from dpaudit.report import Column, Section, Table, replace

LONG = f"dpaudit audit library:./{'a' * 300}.so:noise --claim gaussian:sigma=1 --seed 7"
FIRST_WORD = {"finding": "Finding", "no-finding": "No finding", "inconclusive": "Inconclusive"}


def shown(report, *, width=100, verbose=False, at=None):
    """The lines of a report on a terminal, as ``dpaudit`` prints them."""
    console = SafeConsole(width=at or width)
    with console.capture() as text:
        console.print(render_terminal(report, verbose=verbose, width=width), crop=False)
    return [line.rstrip() for line in text.get().splitlines()]


def plain(verdict="no-finding", *checks, **changes):
    """A report as audits print it: no advice, no sandbox."""
    return reports.report(verdict, *checks, **({"advice": (), "facts": {}} | changes))


def with_table(table, **changes):
    section = Section(title="All", blocks=(table,))
    return replace(reports.empty(), headline="Done.", sections=(section,), **changes)


@pytest.mark.parametrize("verdict", FIRST_WORD)
@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("verbose", [False, True])
def test_the_verdict_comes_last(verdict, width, verbose):
    lines = shown(reports.report(verdict), width=width, verbose=verbose)
    last = len(lines) - lines[::-1].index("")
    assert lines[last].startswith(f"{FIRST_WORD[verdict]}: ")
    assert (" is above." in " ".join(lines[last:])) == (verdict == "no-finding")
    assert max(map(len, lines)) <= width


@pytest.mark.parametrize("width", [80, 100, 200])
@pytest.mark.parametrize("count", [1, 5, 17, 60])
def test_a_pass_is_short_and_hides_no_number(count, width):
    kinds = reports.SPOTS
    spots = tuple(dataclasses.replace(kinds[i % 2], flaw=f"flaw {i:03}") for i in range(count))
    report = plain(blind_spots=spots)
    lines = shown(report, width=width)
    assert len(lines) <= PASS_LINES - 2  # the path of the report, after a blank line
    rows = sum("flaw 0" in line for line in lines)
    more = [line for line in lines if " more row" in line]
    if rows < count:
        assert more == [
            f"{count - rows} more row{'s' * (count - rows > 1)}: --verbose shows all, "
            "and so does the report of --out DIR."
        ]
        assert 3 <= rows <= 8
    else:
        assert more == []
    whole = "\n".join(shown(report, width=width, verbose=True))
    assert all(f"flaw {i:03}" in whole for i in range(count))


def test_what_cannot_be_excluded_is_said_of_no_finding():
    assert "What a pass" not in "\n".join(shown(plain("finding", blind_spots=reports.SPOTS)))


@pytest.mark.parametrize("width", [40, 80, 120])
@pytest.mark.parametrize("verbose", [False, True])
def test_the_command_stays_on_one_line_however_long(width, verbose):
    report = plain("finding", reports.check(reproduce=LONG))
    assert LONG in shown(report, width=width, verbose=verbose)


def test_one_command_is_shown_and_all_of_them_with_verbose():
    names = ("moments", "tails", "norms")
    again = [f"dpaudit audit x --tests {name}" for name in names]
    checks = [
        reports.check(name, reproduce=line, topic=name)
        for name, line in zip(names, again, strict=True)
    ]
    lines = shown(plain("finding", *checks))
    assert "To see it again (2 more with --verbose):" in lines
    assert [line for line in lines if line.startswith("dpaudit audit")] == again[:1]
    assert "dpaudit explain moments" in lines
    whole = shown(plain("finding", *checks), verbose=True)
    assert [line for line in whole if line.startswith("dpaudit audit")] == again


def test_only_findings_are_shown_eight_of_them_unless_asked_for_all():
    found = [reports.check(f"test {i:02}") for i in range(11)]
    report = plain("finding", *found, reports.check("calm", "pass"))
    lines = shown(report)
    assert sum(" test " in line for line in lines) == 8
    assert "3 more rows: --verbose shows all, and so does the report of --out DIR." in lines
    assert not any("calm" in line or "single values" in line for line in lines)
    whole = "\n".join(shown(report, verbose=True))
    assert all(word in whole for word in ("test 10", "calm", "single values"))


@pytest.mark.parametrize(
    ("checks", "said"),
    [
        ([("a", "finding", {}), ("b", "pass", {})], "2 tests, 1 with a finding."),
        ([("a", "pass", {})], "1 test, smallest adjusted p 0.800."),
        ([("a", "pass", {}), ("b", "pass", {"advisory": True})], "1 more is advisory."),
        ([("a", "pass", {"advisory": True})] * 2, "0 tests; 2 more are advisory."),
    ],
)
def test_all_tests_are_counted_in_a_line(checks, said):
    made = [reports.check(name, outcome, facts=facts) for name, outcome, facts in checks]
    verdict = "finding" if checks[0][1] == "finding" else "no-finding"
    (line,) = [line for line in shown(plain(verdict, *made)) if line.endswith("shows each.")]
    assert said in line


def test_advice_the_sandbox_and_remarkable_advisory_tests_are_said():
    odd = reports.check("forks", "advice", p=1e-9, facts={"advisory": True})
    lines = shown(reports.report("no-finding", reports.check(outcome="pass"), odd))
    for line in ("ask for more releases", "Sandbox: full"):
        assert line in lines
    assert "Advice, no finding: forks: 5 of 9 against 0" in lines
    assert not any("Advice" in line for line in shown(plain("finding", odd, reports.check())))


def test_texts_lists_and_facts_that_are_for_a_terminal():
    lines = shown(reports.measurements())
    for line in ("A paragraph.", "a", "b", "Reports: 9."):
        assert line in lines
    assert not any("A heading" in line or "Sources" in line for line in lines)


@pytest.mark.parametrize("width", [80, 120])
def test_columns_that_do_not_fit_are_stacked_then_left_out_and_named(width):
    report = with_table(reports.long_table(3))
    lines = shown(report, width=width, at=300)
    assert all(len(line) <= width for line in lines if "--verbose" not in line)
    assert shown(report, width=width) == shown(report, width=width, at=width)
    text = " ".join(" ".join(lines).split())
    assert "0.0" in text
    assert "[0, 1]" in text
    named = text.partition(" more column")[2]
    for k in range(6):
        words = f"Column {k} of numbers"
        assert (words in named) != (f"0.{k} " in text.partition(" more column")[0])
    wide = shown(report, width=300)
    assert not any("more column" in line for line in wide)


def test_a_table_without_columns_is_no_table():
    assert shown(with_table(Table(columns=(), caption="none", terminal="Nothing"))) == ["Done."]


def test_long_tables_are_cut_and_say_so():
    lines = shown(with_table(reports.long_table(60, left_out=7)), width=200)
    assert "27 more rows: --verbose shows all, and so does the report of --out DIR." in lines
    assert sum(line.lstrip().startswith("arm ") for line in lines) == 40
    few = shown(with_table(reports.long_table(60, terminal_rows=5)), width=200)
    assert sum(line.lstrip().startswith("arm ") for line in few) == 5
    assert len(shown(with_table(reports.long_table(60)), width=200, verbose=True)) > 60
    (last,) = shown(with_table(reports.long_table(0)))[-1:]
    assert last == "Done."


@pytest.mark.parametrize("name", reports.EVERY)
@pytest.mark.parametrize("verbose", [False, True])
def test_what_others_wrote_is_text_and_steers_nothing(name, verbose):
    lines = shown(reports.hostile(reports.EVERY[name]), width=400, verbose=verbose)
    assert any("[red]" in line for line in lines)
    assert "".join(lines).isprintable()


def test_a_column_of_words_is_folded_before_numbers():
    words = Column("Words", ("many words " * 30,))
    numbers = Column("p", ("0.123456789",), True)
    lines = shown(with_table(Table(columns=(words, numbers), caption="", terminal="T")), width=60)
    assert any("0.123456789" in line for line in lines)
    assert max(map(len, lines)) <= 60
