"""What is permitted, against the paper and a simulation, and what reports spent, day by day."""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from support.laws import largest_ratio

from dpaudit.errors import UsageError
from dpaudit.randomness import KeyedStream
from dpaudit_local.apple.bits.estimates import MOST_GROUPS, Estimates
from dpaudit_local.apple.configuration import read_configuration, resolve
from dpaudit_local.apple.database import read_database
from dpaudit_local.apple.ledger import make_ledger
from dpaudit_local.apple.model import (
    Balance,
    Budget,
    Configuration,
    Database,
    Key,
    Properties,
    Report,
    Segment,
)
from dpaudit_local.apple.observed import UNKNOWN, Spending
from dpaudit_local.apple.reports import read_reports
from dpaudit_local.apple.rules import coin_epsilon
from tests.support.apple.daemon import Daemon
from tests.support.apple.scenario import make_scenario

DATA = Path(__file__).parents[2] / "data" / "apple"
PUZZLE = "SequenceFragmentPuzzle+CountMedianSketch"


def ledger_of(version, **options):
    return make_ledger(read_configuration(DATA / version), **options)


def made(budget, keys, *, parameter=1.0, algorithm="OneBitHistogram", **fields):
    named = {f"key{i}": Key(f"key{i}", "P") for i in range(keys)}
    properties = {"P": Properties("P", algorithm, parameter, budget.name, **fields)}
    return Configuration(Path("made"), named, properties, {budget.name: budget}, {})


def test_the_papers_totals():
    new, old = ledger_of("10.12.3"), ledger_of("ios-10.1.1")
    assert (new.permitted.per_day, len(new.permitted.budgets)) == (16, 4)
    assert {t.name: t.per_day for t in new.platforms}["macOS"] == 6
    assert {t.name: t.per_day for t in old.platforms}["iOS"] == 14
    assert [line.claimed.per_day for line in new.lines[:4]] == [4, 1, 10, 1]
    assert new.configured.per_day == pytest.approx(16 + 4 + 1 + 2 / 7)


def test_ios_11_is_29_more():
    new, old = ledger_of("ios-11"), ledger_of("ios-10.1.1")
    assert new.configured.per_day - old.configured.per_day == 29
    emoji = "com.apple.keyboard.Emoji"
    assert (new.line(emoji).claimed.per_day, old.line(emoji).claimed.per_day) == (20, 1)
    assert new.line("com.apple.safari.FilledIn").claimed.per_day == 10


@pytest.mark.parametrize("days", [1, 7, 8, 365])
def test_over_days(days):
    ledger = ledger_of("10.12.3", days=days)
    assert ledger.permitted.over_days == 16 * days
    assert ledger.line("com.apple.health").claimed.over_days == 2 * math.ceil(days / 7)


def test_days_are_checked():
    for days in (0, -1, 10**6):
        with pytest.raises(UsageError, match="days"):
            ledger_of("10.12.3", days=days)


def test_rollover_is_figure_2s():
    """After 80 days without use: testBudget's row has 324 (SessionAmount 4)."""
    line = ledger_of("10.12.3", days=80).line("com.apple.differentialprivacy.testBudget")
    assert line.burst.balance == 324


def test_ten_languages_after_twenty_days():
    """The paper's example (4.2.3): ten emoji of ten languages per report, in two reports."""
    budget = Budget("com.apple.keyboard.Emoji", 86400.0, 1)
    burst = make_ledger(made(budget, 10), days=20).line(budget.name).burst
    assert (burst.report_records, burst.report_epsilon) == (10, 10)
    assert (burst.day_records, burst.day_epsilon) == (20, 20)


def most_records(budget, keys, *, grown_from, first, end):
    """The greedy device: everything waits, and each report takes all it may."""
    period, balance, taken = int(budget.session_seconds), 0, 0
    grants = range(grown_from, end, period)
    reports = range(first, end, 18 * 3600)
    for moment, what in sorted([(t, 0) for t in grants] + [(t, 1) for t in reports]):
        if what == 0:
            balance += budget.session_amount
        elif moment >= first:
            most = min(balance, keys * min(budget.session_amount, 40))
            balance, taken = balance - most, taken + most
    return taken, balance


def test_against_a_simulation_of_the_rules():
    rng = random.Random(20)
    for _ in range(300):
        seconds = rng.choice((86400, 604800, 3600 * rng.randint(1, 60)))
        budget = Budget("B", float(seconds), rng.choice((0, 1, 2, 10, 41, 100)))
        keys, days = rng.randint(0, 6), rng.randint(1, 40)
        line = make_ledger(made(budget, keys), days=days).line("B")
        in_report, end = keys * min(budget.session_amount, 40), days * 86400
        most = max(
            most_records(budget, keys, grown_from=0, first=phase, end=end)[0]
            for phase in range(0, 18 * 3600, 3600)
        )
        assert most <= line.claimed.over_days
        # what is granted waits at most 18 hours, and fits into the report
        if seconds >= 86400 and keys:
            assert line.claimed.over_days - most <= budget.session_amount
        at_once, _ = most_records(budget, keys, grown_from=0, first=end, end=end + 1)
        assert line.burst.report_records == at_once
        day = max(
            most_records(budget, keys, grown_from=0, first=end + wait, end=end + 86400)[0]
            for wait in (0, 6 * 3600 - 1)
        )
        assert day <= line.burst.day_records
        assert seconds < 86400 or line.burst.day_records == day
        assert line.burst.day_records <= 2 * in_report


def test_the_daemon_stays_within_and_comes_close(stream):
    configuration = read_configuration(DATA / "10.12.3")
    days, start = 12, datetime(2017, 1, 1, tzinfo=UTC)
    daemon = Daemon(configuration, start=start, stream=stream)
    lines = {line.budget: line for line in make_ledger(configuration, days=days).lines}
    keys = {}
    for resolved in resolve(configuration):
        keys.setdefault(resolved.budget.name, []).append(resolved.key.name)
    for hour in range(0, 24 * days - 1, 6):
        for names in keys.values():
            for name in names[:4] * 4:
                daemon.record(name, start + timedelta(hours=hour))
    daemon.run_until(start + timedelta(days=days) - timedelta(seconds=1))
    for budget, records in daemon.submitted.items():
        most = lines[budget].claimed.over_days / lines[budget].claimed.per_record
        assert records <= most, budget
        assert records >= most - 2 * lines[budget].session_amount, budget


def test_a_cap_of_forty_also_bounds_the_day():
    budget = Budget("B", 86400.0, 1000)
    assert make_ledger(made(budget, 1)).lines[0].records_per_day == pytest.approx(40 * 24 / 18)
    assert make_ledger(made(budget, 1, patterns_allowed=True)).lines[0].records_per_day == 1000


def test_keys_that_are_left_out_are_counted():
    budget = Budget("B", 86400.0, 1)
    lost = made(budget, 3)
    lost = replace(lost, keys=lost.keys | {"lost": Key("lost", "Nowhere")})
    assert (make_ledger(made(budget, 3)).left_out, make_ledger(lost).left_out) == (0, 1)


def test_refused_keys_permit_nothing():
    budget = Budget("com.apple.keyboard.Emoji", 86400.0, 5)
    line = make_ledger(made(budget, 3, parameter=2.5)).lines[0]
    assert (line.keys, line.silent_keys) == (0, 3)
    assert line.claimed.per_day == line.burst.day_epsilon == 0


def outputs(places, flip, *, sketches):
    """Exact law of a record for an object at ``places[i]`` of sketch ``i`` (Figures 16, 17)."""
    bits = 3
    law = {}
    for drawn in itertools.product((0, 1), repeat=bits * sketches):
        said = list(drawn)
        for i, place in enumerate(places):
            said[i * bits + place] ^= 1
        probability = math.prod(flip if b else 1 - flip for b in drawn)
        law[tuple(said)] = law.get(tuple(said), 0.0) + probability
    return law


@pytest.mark.parametrize("parameter", [0.5, 1.0, 2.0])
@pytest.mark.parametrize(("sketches", "server"), [(1, "CountMedianSketch"), (2, PUZZLE)])
def test_the_coin_of_sketches_by_every_outcome(parameter, sketches, server):
    flip = 1 / (math.exp(parameter) + 1)
    laws = [
        outputs(p, flip, sketches=sketches) for p in itertools.product(range(3), repeat=sketches)
    ]
    worst = math.log(largest_ratio(laws))
    budget = Budget("B", 86400.0, 1)
    (key,) = resolve(
        made(budget, 1, parameter=parameter, algorithm="CountMedianSketch", server_algorithm=server)
    )
    assert coin_epsilon(key) == pytest.approx(worst, abs=1e-12)


def test_the_coin_of_signs_and_figure_20():
    assert 1 / (math.exp(2) + 1) == pytest.approx(0.1192029220221175, abs=1e-15)
    budget = Budget("B", 86400.0, 1)
    for algorithm in ("OneBitHistogram", "HadamardCountMedianSketch"):
        (key,) = resolve(made(budget, 1, algorithm=algorithm))
        flip = 1 / (math.exp(key.epsilon) + 1)
        assert coin_epsilon(key) == pytest.approx(math.log((1 - flip) / flip))
    (key,) = resolve(made(budget, 1, algorithm="Rot13"))
    assert coin_epsilon(key) is None


def test_the_coins_sums_are_kept_apart():
    ledger = ledger_of("10.12.3")
    assert (ledger.permitted.per_day, ledger.permitted.coin_per_day) == (16, 2 * 8 + 1 + 10 * 2 + 1)
    configuration = read_configuration(DATA / "10.12.3")
    unknown = replace(configuration.properties["Search"], algorithm="Rot13")
    other = replace(configuration, properties=configuration.properties | {"Search": unknown})
    ledger = make_ledger(other)
    assert ledger.line("com.apple.parsec.Search").coin is None
    assert ledger.permitted.coin_per_day is ledger.configured.coin_per_day is None
    assert ledger.permitted.per_day == 16


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


def report(day, *segments):
    created = None if day is None else START + timedelta(days=day)
    return Report(Path(f"{day}.dpsub"), 11, created, segments)


def opened(day):
    at = START + timedelta(days=day)
    balance = Balance("com.apple.keyboard.Emoji", 0, at, at)
    return Database(Path("db"), (balance,), (), ())


def spent_by(reports, configuration, *, database=None, shown=None):
    spending = Spending(configuration, database=database)
    for one in reports:
        spending.add(one)
    return spending.summary(shown)


def test_the_arithmetic():
    first = [report(0, segment(EMOJI, 1), segment(WORDS, 2)), report(0, segment(FRENCH, 1))]
    rest = [report(3, segment(WORDS, 1)), report(None, segment(EMOJI, 1))]
    observed = spent_by([*first, *rest], SIERRA)
    assert (observed.reports, observed.undated, observed.span) == (4, 1, 4)
    days = [(d.date, d.total.records, d.total.claimed) for d in observed.days]
    assert days == [("2017-05-01", 4, 6.0), ("2017-05-04", 1, 2.0)]
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
    shown = estimates.epsilons()
    (emoji,) = [s for s in shown.values() if "Emoji" in s.key]
    observed = spent_by(reports, SIERRA, shown=shown)
    spent = {b.budget: b for b in observed.budgets}
    assert spent["com.apple.keyboard.Emoji"].claimed == 10  # by the configuration: 1 a record
    assert spent["com.apple.keyboard.Emoji"].shown_low == pytest.approx(10 * emoji.record.low)
    # 1 by the report
    assert spent[UNKNOWN].claimed == spent[UNKNOWN].shown_low == spent[UNKNOWN].shown_high == 10
    assert observed.days == ()
    assert "no rate is known" in observed.says


def test_records_that_nobody_puts_an_epsilon_on():
    unheard = Segment("unheard of", "OneBitHistogram", {}, ("1,-1",) * 3)
    observed = spent_by([report(0, unheard)], SIERRA)
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
    observed = spent_by([unheard], SIERRA, shown=estimates.epsilons())
    assert 30 * 3 < observed.total.shown_low < 30 * 4 < observed.total.shown_high < 30 * 5


def test_files_without_records_are_no_reports():
    observed = spent_by([report(0, segment(EMOJI, 1)), report(1), report(None)], SIERRA)
    assert (observed.reports, observed.unread, observed.undated) == (1, 2, 0)
    observed = spent_by([], SIERRA)
    assert (observed.reports, observed.days, observed.busiest, observed.per_day) == (0, (), None, 0)


def test_more_kinds_of_records_than_are_kept():
    one = Segment("", "OneBitHistogram", {"epsilon": 1}, ("1,-1",))
    segments = [dataclasses.replace(one, key=f"key {i}") for i in range(MOST_GROUPS + 7)]
    estimates = Estimates()
    for s in segments:
        estimates.add(s)
    assert len(estimates.epsilons()) == MOST_GROUPS
    observed = spent_by([report(0, *segments)], SIERRA)
    assert observed.total.records == MOST_GROUPS
    assert any(m.startswith("7 records are in no sum") for m in messages(observed, serious=True))


def test_a_simulated_device_keeps_every_limit(tmp_path):
    stream = KeyedStream.from_seed(5)
    scenario = make_scenario(SIERRA, out=tmp_path / "device", days=20, stream=stream)
    database = read_database(scenario.database)
    observed = spent_by(read_reports(scenario.reports), SIERRA, database=database)
    assert observed.findings == ()
    assert observed.total.records == sum(len(r.records) for r in scenario.daemon.report_files)
    assert 0 < observed.per_day <= 24
    assert math.isclose(sum(d.total.claimed for d in observed.days), observed.total.claimed)


def messages(observed, *, serious):
    return [f.message for f in observed.findings if f.serious is serious]


def test_too_many_records_of_a_key_in_a_report():
    observed = spent_by([report(0, segment(WORDS, 2), segment(WORDS, 1))], SIERRA)
    (message,) = messages(observed, serious=True)
    assert "has 3 records in one report" in message
    assert "= 2 are allowed" in message


def test_more_than_the_budget_can_have_grown_to():
    crowd = [report(day, segment(EMOJI, 1), segment(FRENCH, 1)) for day in range(6)]
    assert "12 records" not in str(spent_by(crowd, SIERRA, database=opened(-10)).findings)
    (message,) = messages(spent_by(crowd, SIERRA, database=opened(0)), serious=True)
    assert message.startswith("6 records were submitted from 2017-05-01")
    # 3, and a day either side for other time zones
    assert message.endswith("to 2017-05-03; it can have allowed 5")
    older = spent_by(crowd, SIERRA, database=opened(4))
    assert any("older than the budget" in m for m in messages(older, serious=False))


def test_rolled_over_budget_is_a_remark_where_nothing_proves_more():
    languages = [k for k in SIERRA.keys if k.startswith("com.apple.keyboard.Emoji.")][:5]
    observed = spent_by([report(0, *(segment(k, 1) for k in languages))], SIERRA)
    assert messages(observed, serious=True) == []
    (message,) = messages(observed, serious=False)
    assert message.startswith("5 records on 2017-05-01")
    two = [report(0, segment(EMOJI, 1)), report(0, segment(FRENCH, 1))]
    assert spent_by(two, SIERRA).findings == ()


def test_keys_that_should_not_be_there(tmp_path):
    segments = segment("com.apple.unheard.of", 1), segment(EMOJI, 1, "CountMedianSketch")
    observed = spent_by([report(0, *segments)], SIERRA)
    assert messages(observed, serious=True) == ["submitted, but not in the configuration"]
    assert messages(observed, serious=False)[0].startswith("privatised with 'CountMedianSketch'")


def test_a_refused_key_that_was_submitted():
    properties = dict(SIERRA.properties)
    name = SIERRA.keys[EMOJI].properties
    properties[name] = dataclasses.replace(properties[name], parameter=3.0)
    refusing = dataclasses.replace(SIERRA, properties=properties)
    observed = spent_by([report(0, segment(EMOJI, 1))], refusing)
    assert any("99999" in m for m in messages(observed, serious=True))


def test_a_thousand_slips_are_counted_not_listed():
    observed = spent_by(
        (report(day, segment(WORDS, 3)) for day in range(0, 2000, 2)), SIERRA, database=opened(-10)
    )
    assert len(observed.findings) < 50
    assert any("980 more findings" in f.message for f in observed.findings)
