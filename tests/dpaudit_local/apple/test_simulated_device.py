"""A simulated device: the daemon's clock and budgets, and what is read back of its files."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpaudit.randomness import KeyedStream
from dpaudit_local.apple.configuration import read_configuration
from dpaudit_local.apple.database import check_balances, read_database
from dpaudit_local.apple.model import Budget, Configuration, Key, Properties
from dpaudit_local.apple.records import decode
from dpaudit_local.apple.reports import read_reports
from dpaudit_local.mechanisms.reports import SketchReports
from tests.support.apple.daemon import Daemon, GeneratedReport
from tests.support.apple.scenario import Scenario, make_scenario

DATA = Path(__file__).parents[2] / "data" / "apple"
START = datetime(2017, 1, 1, tzinfo=UTC)
DAEMON_STREAM = KeyedStream.from_seed("daemon")
HOUR = timedelta(hours=1)


def device(
    *budgets: Budget,
    keys: int = 1,
    parameter: float = 1.0,
    priorities: tuple[int | None, ...] = (1,),
) -> Configuration:
    """Every budget with one set of properties a priority, each of them with so many keys."""
    made = [
        Properties(f"{b.name}{n}", "OneBitHistogram", parameter, b.name, priority=priority)
        for b in budgets
        for n, priority in enumerate(priorities)
    ]
    properties = {p.name: p for p in made}
    names = {f"{p}.{i}": Key(f"{p}.{i}", p) for p in properties for i in range(keys)}
    return Configuration(Path("none"), names, properties, {b.name: b for b in budgets}, {})


EMOJI = Budget("emoji", 86400.0, 1)


def days(reports: tuple[GeneratedReport, ...]) -> dict[int, int]:
    """Submitted records by day since START."""
    return dict(Counter((r.created - START).days for r in reports for _ in r.records))


@pytest.mark.parametrize("a_day", [1, 5])
def test_section_4_2_3_one_or_several_emoji_every_day_are_one_a_day(a_day: int) -> None:
    daemon = Daemon(device(EMOJI), start=START, stream=DAEMON_STREAM)
    for day in range(60):
        for i in range(a_day):
            daemon.record("emoji0.0", START + timedelta(days=day, hours=1, minutes=i))
    assert days(daemon.run_until(START + timedelta(days=60) - HOUR)) == dict.fromkeys(range(60), 1)
    assert daemon.submitted == {"emoji": 60}


def test_section_4_2_3_twenty_idle_days_then_two_emoji_in_each_of_ten_languages() -> None:
    daemon = Daemon(device(EMOJI, keys=10), start=START, stream=DAEMON_STREAM)
    assert daemon.run_until(START + timedelta(days=20) - HOUR) == ()
    assert daemon.balances[0].balance == 20
    for language in range(10):
        for emoji in range(2):
            minutes = 10 * language + emoji
            when = START + timedelta(days=20, hours=1, minutes=minutes)
            daemon.record(f"emoji0.{language}", when)
    reports = daemon.run_until(START + timedelta(days=30))
    assert days(reports) == {20: 10, 21: 10}
    for report in reports:
        assert len({record.key for record in report.records}) == 10


@pytest.mark.parametrize(("amount", "most"), [(2, 2), (40, 40), (41, 40), (1000, 40)])
def test_a_report_holds_at_most_forty_records_of_a_key(amount: int, most: int) -> None:
    daemon = Daemon(device(Budget("b", 86400.0, amount), keys=2), start=START, stream=DAEMON_STREAM)
    daemon.run_until(START + timedelta(days=3))
    for _ in range(200):
        daemon.record("b0.0", daemon.now)
        daemon.record("b0.1", daemon.now)
    first = daemon.run_until(daemon.now + timedelta(days=1))[0]
    assert Counter(r.key for r in first.records) == {"b0.0": most, "b0.1": most}


def test_the_balance_bounds_a_report_and_what_is_sent_is_marked_then_deleted() -> None:
    daemon = Daemon(device(Budget("b", 86400.0, 3), keys=5), start=START, stream=DAEMON_STREAM)
    for key in range(5):
        daemon.record(f"b0.{key}", START + HOUR)
    (report,) = daemon.run_until(START + 18 * HOUR)
    assert report.created == START + 18 * HOUR
    assert len(report.records) == 3
    assert all(r.submitted for r in report.records)
    assert daemon.balances[0].balance == 0
    assert sorted(r.submitted for r in daemon.records) == [False, False, True, True, True]
    daemon.run_until(START + 24 * HOUR)
    assert [r.submitted for r in daemon.records] == [False, False]


def test_which_records_of_a_key_go_is_random_and_even() -> None:
    seen: Counter[int] = Counter()
    for seed in range(600):
        daemon = Daemon(device(EMOJI), start=START, stream=KeyedStream.from_seed(seed))
        for _ in range(3):
            daemon.record("emoji0.0", START + HOUR)
        (report,) = daemon.run_until(START + 18 * HOUR)
        seen[report.records[0].number] += 1
    # 200 each, standard deviation 11.5: five of them
    assert all(142 <= seen[n] <= 258 for n in range(3))


def test_priorities_smaller_numbers_first_and_never_99999() -> None:
    daemon = Daemon(
        device(Budget("b", 86400.0, 2), priorities=(7, 1, 99999)), start=START, stream=DAEMON_STREAM
    )
    for _ in range(2):
        for group in range(3):
            daemon.record(f"b{group}.0", START + HOUR)
    reports = daemon.run_until(START + timedelta(days=10))
    assert [[r.key for r in one.records] for one in reports] == [["b1.0"] * 2, ["b0.0"] * 2]


def test_a_parameter_beyond_epsilon_max_is_never_submitted() -> None:
    daemon = Daemon(device(EMOJI, parameter=2.0001), start=START, stream=DAEMON_STREAM)
    daemon.record("emoji0.0", START + HOUR)
    assert daemon.run_until(START + timedelta(days=10)) == ()
    assert daemon.keys["emoji0.0"].epsilon == 1
    assert [r.submitted for r in daemon.records] == [False]


def test_budgets_grow_by_whole_periods_only() -> None:
    week = Budget("health", 604800.0, 2)
    odd = Budget("odd", 100_000.0, 1)
    daemon = Daemon(device(week, odd), start=START, stream=DAEMON_STREAM)
    seen = {}
    for day in (0, 6, 7, 13, 14, 21):
        daemon.run_until(START + timedelta(days=day))
        seen[day] = [b.balance for b in daemon.balances]
        for b, seconds in zip(daemon.balances, (604800, 100_000), strict=True):
            assert (b.updated - b.created) % timedelta(seconds=seconds) == timedelta(0)
    # days * 86400 // 100000 + 1
    assert seen == {0: [2, 1], 6: [2, 6], 7: [4, 7], 13: [4, 12], 14: [6, 13], 21: [8, 19]}


def test_sleep_makes_up_for_budgets_and_runs_each_task_once() -> None:
    daemon = Daemon(device(EMOJI, keys=10), start=START, stream=DAEMON_STREAM)
    for key in range(10):
        daemon.record(f"emoji0.{key}", START + HOUR)
    daemon.sleep_until(START + timedelta(days=9, hours=3))
    assert daemon.balances[0].updated == START + timedelta(days=9)
    (report,) = daemon.run_until(daemon.now)
    assert report.created == START + timedelta(days=9, hours=3)
    assert len(report.records) == 10
    assert daemon.balances[0].balance == 0
    daemon.run_until(START + timedelta(days=10))
    assert daemon.balances[0].balance == 0  # the next maintenance is 24 hours after the last
    daemon.run_until(START + timedelta(days=10, hours=3))
    assert daemon.balances[0].balance == 1


def test_old_records_go_after_two_weeks_and_the_oldest_when_there_are_too_many() -> None:
    daemon = Daemon(device(EMOJI, parameter=3.0), start=START, stream=DAEMON_STREAM, most_stored=5)
    for _ in range(8):
        daemon.record("emoji0.0", START + HOUR)
    daemon.run_until(START + 12 * HOUR)
    assert [r.number for r in daemon.records] == [3, 4, 5, 6, 7]
    daemon.run_until(START + timedelta(days=14))
    assert len(daemon.records) == 5
    daemon.run_until(START + timedelta(days=14, hours=12))
    assert daemon.records == ()


def test_another_report_version_is_culled() -> None:
    daemon = Daemon(device(EMOJI, parameter=3.0), start=START, stream=DAEMON_STREAM)
    daemon.record("emoji0.0", START)
    daemon.upgrade(12)
    daemon.record("emoji0.0", START)
    daemon.run_until(START + 24 * HOUR)
    assert [r.version for r in daemon.records] == [12]


@pytest.mark.parametrize(("platform", "kept"), [("macos", 30), ("ios", 7)])
def test_report_files_are_deleted_after_a_month_or_seven_days(platform: str, kept: int) -> None:
    daemon = Daemon(device(EMOJI), start=START, stream=DAEMON_STREAM, platform=platform)  # type: ignore[arg-type]
    for day in range(90):
        daemon.record("emoji0.0", START + timedelta(days=day, hours=1))
        daemon.run_until(START + timedelta(days=day + 1))
    oldest = daemon.report_files[0].created
    assert timedelta(days=kept - 1) < daemon.now - oldest <= timedelta(days=kept)
    assert daemon.report_files[-1].created > daemon.now - timedelta(days=1)


WHAT = st.sampled_from(["record", "sleep", "run"])
STEP = st.tuples(WHAT, st.integers(0, 40), st.integers(0, 3), st.integers(1, 30))


@given(st.lists(STEP, max_size=60), st.integers(0, 60), st.integers(1, 60), st.integers(0, 3))
def test_no_usage_submits_more_than_has_accrued(
    steps: list[tuple[str, int, int, int]], amount: int, second: int, seed: int
) -> None:
    budgets = {"a": Budget("a", 86400.0, amount), "b": Budget("b", 604800.0, second)}
    configuration = device(*budgets.values(), keys=4, priorities=(1, 2))
    daemon = Daemon(configuration, start=START, stream=KeyedStream.from_seed(seed))
    reports: list[GeneratedReport] = []
    for what, hours, key, times in steps:
        when = daemon.now + hours * HOUR
        if what == "sleep":
            daemon.sleep_until(when)
        elif what == "run":
            reports += daemon.run_until(when)
        else:
            for i in range(times):
                daemon.record(f"{'ab'[i % 2]}{key % 2}.{key}", when)
        for balance in daemon.balances:
            budget = budgets[balance.key]
            periods = int((daemon.now - START).total_seconds() // budget.session_seconds)
            assert balance.balance >= 0
            assert daemon.submitted[balance.key] + balance.balance == daemon.accrued[balance.key]
            assert daemon.accrued[balance.key] <= (periods + 1) * budget.session_amount
    reports += daemon.run_until(daemon.now)
    # the same bound from the reports alone, at the time of each
    total: Counter[str] = Counter()
    numbers: list[int] = []
    for report in reports:
        numbers += [r.number for r in report.records]
        total.update(r.key[0] for r in report.records)
        for name, budget in budgets.items():
            periods = int((report.created - START).total_seconds() // budget.session_seconds)
            assert total[name] <= (periods + 1) * budget.session_amount
        assert max(Counter(r.key for r in report.records).values()) <= min(40, max(amount, second))
        assert all(r.created <= report.created for r in report.records)
    assert len(numbers) == len(set(numbers))
    assert total == +Counter(daemon.submitted)


@pytest.mark.slow
def test_an_hourly_user_of_everything_reaches_the_permitted_amounts_of_10_12_3() -> None:
    daemon = Daemon(read_configuration(DATA / "10.12.3"), start=START, stream=DAEMON_STREAM)
    for hour in range(24 * 20):
        for key in daemon.keys:
            daemon.record(key, START + hour * HOUR)
    daemon.run_until(START + timedelta(days=20))
    # 21 times SessionAmount at the most; the last credit, at day 20, goes out with the next report
    announced = ("keyboard.Emoji", "parsec.Search", "keyboard.NewWords")
    assert [daemon.submitted[f"com.apple.{name}"] for name in announced] == [20, 20, 40]
    # one key with SessionAmount 10 waits: 26 reports of at most 10 records each in 20 days
    assert daemon.submitted["com.apple.parsec.AppDeepLink"] == 200
    assert daemon.submitted["com.apple.health"] == 6


SCENARIO_STREAM = KeyedStream.from_seed(8)
SIERRA = read_configuration(DATA / "10.12.3")


def with_properties(configuration: Configuration, name: str, **change: object) -> Configuration:
    properties = dict(configuration.properties)
    properties[name] = replace(properties[name], **change)  # type: ignore[arg-type]
    return replace(configuration, properties=properties)


@pytest.fixture(scope="module")
def sierra(tmp_path_factory: pytest.TempPathFactory) -> Scenario:
    return make_scenario(
        SIERRA, out=tmp_path_factory.mktemp("sierra") / "device", days=12, stream=SCENARIO_STREAM
    )


def test_the_database_is_read_back_as_it_was_simulated(sierra: Scenario) -> None:
    database = read_database(sierra.database)
    assert database.findings == ()
    assert database.balances == sierra.daemon.balances
    assert check_balances(database, SIERRA) == ()
    assert sum(c.rows for c in database.counts) == len(sierra.daemon.records)
    expected = Counter((r.key, r.submitted) for r in sierra.daemon.records)
    assert {(c.key, c.submitted): c.rows for c in database.counts} == expected
    assert {c.submitted for c in database.counts} == {True, False}


def test_the_reports_are_read_back_as_they_were_simulated(sierra: Scenario) -> None:
    expected = Counter(
        (report.created.replace(microsecond=0), record.key, sierra.texts[record.number])
        for report in sierra.daemon.report_files
        for record in report.records
    )
    found: Counter[object] = Counter()
    budgets: Counter[str] = Counter()
    for report in read_reports(sierra.reports):
        assert report.findings == ()
        assert report.version == 11
        for segment in report.segments:
            properties = sierra.daemon.keys[segment.key].properties
            assert (properties.name == "Search") == report.path.name.endswith(".json.anon")
            assert segment.algorithm == properties.server_algorithm
            found.update((report.created, segment.key, text) for text in segment.records)
            budgets[properties.budget] += len(segment.records)
            decoded = decode(segment)
            assert (decoded.left_out, decoded.findings) == (0, ())
    assert found == expected
    # nothing is a month old yet, so all that was ever submitted is in the files
    assert budgets == +Counter(sierra.daemon.submitted)
    assert budgets["com.apple.keyboard.NewWords"] > 20


def test_words_have_the_coin_of_figure_20(sierra: Scenario) -> None:
    ones = bits = 0
    for report in read_reports(sierra.reports):
        for segment in report.segments:
            if segment.algorithm == "SequenceFragmentPuzzle+CountMedianSketch":
                for part in decode(segment).reports:
                    assert isinstance(part, SketchReports)
                    ones += int.from_bytes(part.bits.tobytes(), "big").bit_count()
                    bits += 8 * part.bits.size
    # bias 0.1192029 at PrivacyParameter 2; the bit that is turned over adds 0.76 in 32768
    expected = 0.1192029220221175 + (1 - 2 * 0.1192029220221175) / 32768
    assert bits > 10**6
    assert abs(ones / bits - expected) < 5 * (0.105 / bits) ** 0.5


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    def contents(name: str, seed: int) -> dict[str, bytes]:
        out = tmp_path / name
        make_scenario(SIERRA, out=out, days=3, stream=KeyedStream.from_seed(seed))
        return {str(p.relative_to(out)): p.read_bytes() for p in out.rglob("*") if p.is_file()}

    first = contents("a", 1)
    assert first == contents("b", 1)
    assert first != contents("c", 2)
    assert "database.sqlite" in first
    assert len(first) > 3


def test_ios_11_writes_json_anon_with_hadamard_sketches_and_keeps_them_a_week(
    tmp_path: Path,
) -> None:
    configuration = read_configuration(DATA / "ios-11")
    made = {"days": 15, "stream": SCENARIO_STREAM, "platform": "ios"}
    scenario = make_scenario(configuration, out=tmp_path / "d", **made)
    reports = list(read_reports(scenario.reports))
    assert all(r.path.name.endswith(".json.anon") for r in reports)
    week = scenario.daemon.now - timedelta(days=7, seconds=1)
    assert min(r.created for r in reports if r.created) > week
    segments = [s for r in reports for s in r.segments]
    assert all((d.findings, d.left_out) == ((), 0) for d in map(decode, segments))
    algorithms = {"HadamardCountMedianSketch", "CountMedianSketch", "OneBitHistogram"}
    assert algorithms <= {s.algorithm for s in segments}


def test_a_parameter_beyond_epsilon_max_goes_to_the_bits_table_and_no_report(
    tmp_path: Path,
) -> None:
    configuration = with_properties(SIERRA, "NewWords", parameter=3.0)
    scenario = make_scenario(configuration, out=tmp_path / "d", days=5, stream=SCENARIO_STREAM)
    words = {
        name for name, key in scenario.daemon.keys.items() if key.properties.name == "NewWords"
    }
    tables = {c.table for c in read_database(scenario.database).counts if c.key in words}
    assert tables == {"ZOBHRECORD"}
    assert not words & {s.key for r in read_reports(scenario.reports) for s in r.segments}


def test_an_unknown_algorithm_is_left_out_and_said(tmp_path: Path) -> None:
    configuration = with_properties(SIERRA, "DeepLinks", algorithm="Rot13")
    scenario = make_scenario(configuration, out=tmp_path / "d", days=2, stream=SCENARIO_STREAM)
    assert scenario.left_out == ("com.apple.parsec.AppDeepLink",)
    assert scenario.daemon.submitted["com.apple.parsec.AppDeepLink"] == 0


def test_no_keys_at_all(tmp_path: Path) -> None:
    scenario = make_scenario(
        replace(SIERRA, keys={}), out=tmp_path / "d", days=2, stream=SCENARIO_STREAM
    )
    assert read_database(scenario.database).balances == scenario.daemon.balances
    assert list(read_reports(scenario.reports)) == []
