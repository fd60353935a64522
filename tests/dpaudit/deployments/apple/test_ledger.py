"""What is permitted: the paper's 16, 6, 14 and +29, a simulation, and the exact ε by the code."""

import itertools
import math
import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from support.laws import largest_ratio

from dpaudit.deployments.apple.configuration.reading import read_configuration
from dpaudit.deployments.apple.configuration.resolving import resolve
from dpaudit.deployments.apple.ledger import make_ledger
from dpaudit.deployments.apple.model import Budget, Configuration, Key, Properties
from dpaudit.deployments.apple.rules import coin_epsilon
from dpaudit.deployments.apple.simulation.daemon import Daemon
from dpaudit.errors import UsageError

DATA = Path(__file__).parents[3] / "data" / "apple"
PUZZLE = "SequenceFragmentPuzzle+CountMedianSketch"


def ledger_of(version, **options):
    return make_ledger(read_configuration(DATA / version), **options)


def made(budget, keys, *, parameter=1.0, algorithm="OneBitHistogram", **fields):
    names = [f"key{i}" for i in range(keys)]
    return Configuration(
        Path("made"),
        {name: Key(name, "P") for name in names},
        {"P": Properties("P", algorithm, parameter, budget.name, **fields)},
        {budget.name: budget},
        {},
    )


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
    assert (line.keys, line.silent_keys, line.claimed.per_day, line.burst.day_epsilon) == (
        0,
        3,
        0,
        0,
    )


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
