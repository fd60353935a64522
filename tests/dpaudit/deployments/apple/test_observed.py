"""What reports spent, day by day, and the daemon's limits."""

from __future__ import annotations

import dataclasses
import math
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from dpaudit.deployments.apple.bits.estimates import Estimates
from dpaudit.deployments.apple.bits.shown import MOST_GROUPS
from dpaudit.deployments.apple.configuration.reading import read_configuration
from dpaudit.deployments.apple.database.reading import read_database
from dpaudit.deployments.apple.model import Balance, Database, Report, Segment
from dpaudit.deployments.apple.observed import UNKNOWN, observe
from dpaudit.deployments.apple.reports.reading import read_reports
from dpaudit.deployments.apple.simulation.scenario import make_scenario
from dpaudit.randomness import KeyedStream

DATA = Path(__file__).parents[3] / "data" / "apple"
SIERRA = read_configuration(DATA / "10.12.3")
EMOJI = "com.apple.keyboard.Emoji.en_US.EmojiKeyboard"
FRENCH = "com.apple.keyboard.Emoji.fr_FR.EmojiKeyboard"
WORDS = "com.apple.keyboard.NewWords.en_US"
START = datetime(2017, 5, 1, 12, tzinfo=UTC)


def segment(key, records, algorithm=None):
    words = key.startswith("com.apple.keyboard.NewWords")
    algorithm = algorithm or (
        "SequenceFragmentPuzzle+CountMedianSketch" if words else "OneBitHistogram"
    )
    return Segment(key, algorithm, {"epsilon": 1, "p": 5000}, ("1,-1",) * records)


def report(day, *segments, name=None):
    created = None if day is None else START + timedelta(days=day)
    return Report(Path(name or f"{day}.dpsub"), 11, created, segments)


def opened(day):
    at = START + timedelta(days=day)
    balance = Balance("com.apple.keyboard.Emoji", 0, at, at)
    return Database(Path("db"), (balance,), (), ())


def test_the_arithmetic():
    observed = observe(
        [
            report(0, segment(EMOJI, 1), segment(WORDS, 2)),
            report(0, segment(FRENCH, 1)),
            report(3, segment(WORDS, 1)),
            report(None, segment(EMOJI, 1)),
        ],
        SIERRA,
    )
    assert (observed.reports, observed.undated, observed.span) == (4, 1, 4)
    assert [(d.date, d.total.records, d.total.claimed) for d in observed.days] == [
        ("2017-05-01", 4, 6.0),
        ("2017-05-04", 1, 2.0),
    ]
    assert observed.busiest.date == "2017-05-01"
    spent = {b.budget: (b.records, b.claimed) for b in observed.budgets}
    assert spent == {"com.apple.keyboard.Emoji": (3, 3.0), "com.apple.keyboard.NewWords": (3, 6.0)}
    assert observed.total.claimed == 9
    assert observed.per_day == 8 / 4
    assert "no forecast" in observed.says


def test_what_the_bits_show_replaces_the_claim_where_it_is_known():
    reports = [r for r in read_reports(DATA / "reports") if "figure12" in r.path.name]
    estimates = Estimates()
    for s in reports[0].segments:
        estimates.add(s)
    shown = estimates.shown()
    (emoji,) = [s for s in shown.values() if "Emoji" in s.key]
    observed = observe(reports, SIERRA, shown=shown)
    spent = {b.budget: b for b in observed.budgets}
    assert spent["com.apple.keyboard.Emoji"].claimed == 10  # by the configuration: 1 a record
    assert spent["com.apple.keyboard.Emoji"].shown_low == pytest.approx(10 * emoji.record.low)
    # 1 by the report
    assert spent[UNKNOWN].claimed == spent[UNKNOWN].shown_low == spent[UNKNOWN].shown_high == 10
    assert observed.days == ()
    assert "no rate is known" in observed.says


def test_records_that_nobody_puts_an_epsilon_on():
    observed = observe(
        [report(0, Segment("unheard of", "OneBitHistogram", {}, ("1,-1",) * 3))], SIERRA
    )
    assert (observed.unclaimed, observed.total.claimed) == (3, 0)
    assert (observed.total.shown_low, observed.total.shown_high) == (0, math.inf)
    assert any("3 records have no stated ε" in f.message and f.serious for f in observed.findings)


def test_bits_are_taken_where_nothing_is_claimed():
    rng = np.random.default_rng(1)
    vectors = np.packbits(rng.random((30, 256)) < 0.1192, axis=1)
    records = tuple(f"1,{v.tobytes().hex()}" for v in vectors)
    unheard = report(0, Segment("unheard of", "CountMedianSketch", {"k": 9, "m": 256}, records))
    estimates = Estimates()
    estimates.add(unheard.segments[0])
    observed = observe([unheard], SIERRA, shown=estimates.shown())
    assert 30 * 3 < observed.total.shown_low < 30 * 4 < observed.total.shown_high < 30 * 5


def test_files_without_records_are_no_reports():
    observed = observe([report(0, segment(EMOJI, 1)), report(1), report(None)], SIERRA)
    assert (observed.reports, observed.unread, observed.undated) == (1, 2, 0)


def test_more_kinds_of_records_than_are_kept():
    segments = [
        Segment(f"key {i}", "OneBitHistogram", {"epsilon": 1}, ("1,-1",))
        for i in range(MOST_GROUPS + 7)
    ]
    estimates = Estimates()
    for s in segments:
        estimates.add(s)
    assert len(estimates.shown()) == MOST_GROUPS
    observed = observe([report(0, *segments)], SIERRA)
    assert observed.total.records == MOST_GROUPS
    assert any(
        f.message.startswith("7 records are in no sum") and f.serious for f in observed.findings
    )


def test_a_simulated_device_keeps_every_limit(tmp_path):
    scenario = make_scenario(
        SIERRA, out=tmp_path / "device", days=20, stream=KeyedStream.from_seed(5)
    )
    observed = observe(
        read_reports(scenario.reports), SIERRA, database=read_database(scenario.database)
    )
    assert observed.findings == ()
    assert observed.total.records == sum(len(r.records) for r in scenario.daemon.report_files)
    assert 0 < observed.per_day <= 24
    assert math.isclose(sum(d.total.claimed for d in observed.days), observed.total.claimed)


def messages(observed, *, serious):
    return [f.message for f in observed.findings if f.serious is serious]


def test_too_many_records_of_a_key_in_a_report():
    observed = observe([report(0, segment(WORDS, 2), segment(WORDS, 1))], SIERRA)
    (message,) = messages(observed, serious=True)
    assert "has 3 records in one report" in message
    assert "= 2 are allowed" in message


def test_more_than_the_budget_can_have_grown_to():
    crowd = [
        report(day, segment(EMOJI, 1), segment(FRENCH, 1), name=f"{day}.dpsub") for day in range(6)
    ]
    assert "12 records" not in str(observe(crowd, SIERRA, database=opened(-10)).findings)
    (message,) = messages(observe(crowd, SIERRA, database=opened(0)), serious=True)
    assert message.startswith("6 records were submitted from 2017-05-01")
    # 3, and a day either side for other time zones
    assert message.endswith("to 2017-05-03; it can have allowed 5")
    older = observe(crowd, SIERRA, database=opened(4))
    assert any("older than the budget" in m for m in messages(older, serious=False))


def test_rolled_over_budget_is_a_remark_where_nothing_proves_more():
    languages = [k for k in SIERRA.keys if k.startswith("com.apple.keyboard.Emoji.")][:5]
    observed = observe([report(0, *(segment(k, 1) for k in languages))], SIERRA)
    assert messages(observed, serious=True) == []
    (message,) = messages(observed, serious=False)
    assert message.startswith("5 records on 2017-05-01")
    two = [report(0, segment(EMOJI, 1)), report(0, segment(FRENCH, 1))]
    assert observe(two, SIERRA).findings == ()


def test_keys_that_should_not_be_there(tmp_path):
    observed = observe(
        [report(0, segment("com.apple.unheard.of", 1), segment(EMOJI, 1, "CountMedianSketch"))],
        SIERRA,
    )
    assert messages(observed, serious=True) == ["submitted, but not in the configuration"]
    assert messages(observed, serious=False)[0].startswith("privatised with 'CountMedianSketch'")


def test_a_refused_key_that_was_submitted():
    properties = dict(SIERRA.properties)
    name = SIERRA.keys[EMOJI].properties
    properties[name] = dataclasses.replace(properties[name], parameter=3.0)
    observed = observe(
        [report(0, segment(EMOJI, 1))], dataclasses.replace(SIERRA, properties=properties)
    )
    assert any("99999" in m for m in messages(observed, serious=True))


def test_a_thousand_slips_are_counted_not_listed():
    observed = observe(
        (report(day, segment(WORDS, 3)) for day in range(0, 2000, 2)), SIERRA, database=opened(-10)
    )
    assert len(observed.findings) < 50
    assert any("980 more findings" in f.message for f in observed.findings)


def test_nothing():
    observed = observe([], SIERRA)
    assert (observed.reports, observed.days, observed.busiest, observed.per_day) == (0, (), None, 0)
