"""The daemon's clock, budgets and reports: the paper's examples, and bounds for any usage."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpaudit.deployments.apple.configuration.reading import read_configuration
from dpaudit.deployments.apple.model import Budget, Configuration, Key, Properties
from dpaudit.deployments.apple.simulation.daemon import TASKS, Daemon, GeneratedReport
from dpaudit.errors import UsageError
from dpaudit.randomness import KeyedStream

DATA = Path(__file__).parents[3] / "data" / "apple"
START = datetime(2017, 1, 1, tzinfo=UTC)
STREAM = KeyedStream.from_seed("daemon")
HOUR = timedelta(hours=1)


def device(
    *budgets: Budget,
    keys: int = 1,
    parameter: float = 1.0,
    priorities: tuple[int | None, ...] = (1,),
) -> Configuration:
    """Every budget with one set of properties a priority, each of them with so many keys."""
    properties = {
        f"{b.name}{n}": Properties(
            f"{b.name}{n}", "OneBitHistogram", parameter, b.name, priority=priority
        )
        for b in budgets
        for n, priority in enumerate(priorities)
    }
    names = {f"{p}.{i}": p for p in properties for i in range(keys)}
    return Configuration(
        Path("none"),
        {k: Key(k, p) for k, p in names.items()},
        properties,
        {b.name: b for b in budgets},
        {},
    )


EMOJI = Budget("emoji", 86400.0, 1)


def days(reports: tuple[GeneratedReport, ...]) -> dict[int, int]:
    """Submitted records by day since START."""
    return dict(Counter((r.created - START).days for r in reports for _ in r.records))


def test_apples_five_tasks_and_periods() -> None:
    assert {t.name: t.period / HOUR for t in TASKS} == {
        "PrivacyBudgetMaintenance": 24,
        "ReportFilesMaintenance": 24,
        "StorageCulling": 24,
        "StorageMaintenance": 12,
        "ReportGenerator": 18,
    }


@pytest.mark.parametrize("a_day", [1, 5])
def test_section_4_2_3_one_or_several_emoji_every_day_are_one_a_day(a_day: int) -> None:
    daemon = Daemon(device(EMOJI), start=START, stream=STREAM)
    for day in range(60):
        for i in range(a_day):
            daemon.record("emoji0.0", START + timedelta(days=day, hours=1, minutes=i))
    assert days(daemon.run_until(START + timedelta(days=60) - HOUR)) == dict.fromkeys(range(60), 1)
    assert daemon.submitted == {"emoji": 60}


def test_section_4_2_3_twenty_idle_days_then_two_emoji_in_each_of_ten_languages() -> None:
    daemon = Daemon(device(EMOJI, keys=10), start=START, stream=STREAM)
    assert daemon.run_until(START + timedelta(days=20) - HOUR) == ()
    assert daemon.balances[0].balance == 20
    for language in range(10):
        for emoji in range(2):
            daemon.record(
                f"emoji0.{language}",
                START + timedelta(days=20, hours=1, minutes=10 * language + emoji),
            )
    reports = daemon.run_until(START + timedelta(days=30))
    assert days(reports) == {20: 10, 21: 10}
    for report in reports:
        assert len({record.key for record in report.records}) == 10


@pytest.mark.parametrize(("amount", "most"), [(2, 2), (40, 40), (41, 40), (1000, 40)])
def test_a_report_holds_at_most_forty_records_of_a_key(amount: int, most: int) -> None:
    daemon = Daemon(device(Budget("b", 86400.0, amount), keys=2), start=START, stream=STREAM)
    daemon.run_until(START + timedelta(days=3))
    for _ in range(200):
        daemon.record("b0.0", daemon.now)
        daemon.record("b0.1", daemon.now)
    first = daemon.run_until(daemon.now + timedelta(days=1))[0]
    assert Counter(r.key for r in first.records) == {"b0.0": most, "b0.1": most}


def test_the_balance_bounds_a_report_over_all_keys_and_what_is_sent_is_marked_then_deleted() -> (
    None
):
    daemon = Daemon(device(Budget("b", 86400.0, 3), keys=5), start=START, stream=STREAM)
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
        device(Budget("b", 86400.0, 2), priorities=(7, 1, 99999)), start=START, stream=STREAM
    )
    for _ in range(2):
        for group in range(3):
            daemon.record(f"b{group}.0", START + HOUR)
    sent = [
        [r.key for r in report.records] for report in daemon.run_until(START + timedelta(days=10))
    ]
    assert sent == [["b1.0", "b1.0"], ["b0.0", "b0.0"]]


def test_a_parameter_beyond_epsilon_max_is_never_submitted() -> None:
    daemon = Daemon(device(EMOJI, parameter=2.0001), start=START, stream=STREAM)
    daemon.record("emoji0.0", START + HOUR)
    assert daemon.run_until(START + timedelta(days=10)) == ()
    assert daemon.keys["emoji0.0"].epsilon == 1
    assert [r.submitted for r in daemon.records] == [False]


def test_budgets_grow_by_whole_periods_only() -> None:
    week = Budget("health", 604800.0, 2)
    odd = Budget("odd", 100_000.0, 1)
    daemon = Daemon(device(week, odd), start=START, stream=STREAM)
    seen = {}
    for day in (0, 6, 7, 13, 14, 21):
        daemon.run_until(START + timedelta(days=day))
        seen[day] = [b.balance for b in daemon.balances]
        for b, seconds in zip(daemon.balances, (604800, 100_000), strict=True):
            assert (b.updated - b.created) % timedelta(seconds=seconds) == timedelta(0)
    # days * 86400 // 100000 + 1
    assert seen == {0: [2, 1], 6: [2, 6], 7: [4, 7], 13: [4, 12], 14: [6, 13], 21: [8, 19]}


def test_sleep_makes_up_for_budgets_and_runs_each_task_once() -> None:
    daemon = Daemon(device(EMOJI, keys=10), start=START, stream=STREAM)
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
    daemon = Daemon(device(EMOJI, parameter=3.0), start=START, stream=STREAM, most_stored=5)
    for _ in range(8):
        daemon.record("emoji0.0", START + HOUR)
    daemon.run_until(START + 12 * HOUR)
    assert [r.number for r in daemon.records] == [3, 4, 5, 6, 7]
    daemon.run_until(START + timedelta(days=14))
    assert len(daemon.records) == 5
    daemon.run_until(START + timedelta(days=14, hours=12))
    assert daemon.records == ()


def test_another_report_version_is_culled() -> None:
    daemon = Daemon(device(EMOJI, parameter=3.0), start=START, stream=STREAM)
    daemon.record("emoji0.0", START)
    daemon.upgrade(12)
    daemon.record("emoji0.0", START)
    daemon.run_until(START + 24 * HOUR)
    assert [r.version for r in daemon.records] == [12]


@pytest.mark.parametrize(("platform", "kept"), [("macos", 30), ("ios", 7)])
def test_report_files_are_deleted_after_a_month_or_seven_days(platform: str, kept: int) -> None:
    daemon = Daemon(device(EMOJI), start=START, stream=STREAM, platform=platform)  # type: ignore[arg-type]
    for day in range(90):
        daemon.record("emoji0.0", START + timedelta(days=day, hours=1))
        daemon.run_until(START + timedelta(days=day + 1))
    oldest = daemon.report_files[0].created
    assert timedelta(days=kept - 1) < daemon.now - oldest <= timedelta(days=kept)
    assert daemon.report_files[-1].created > daemon.now - timedelta(days=1)


usage = st.lists(
    st.tuples(
        st.sampled_from(["record", "sleep", "run"]),
        st.integers(0, 40),
        st.integers(0, 3),
        st.integers(1, 30),
    ),
    max_size=60,
)


@given(usage, st.integers(0, 60), st.integers(1, 60), st.integers(0, 3))
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


def test_the_same_stream_gives_the_same_life() -> None:
    def life(seed: int) -> list[GeneratedReport]:
        configuration = read_configuration(DATA / "10.12.3")
        daemon = Daemon(configuration, start=START, stream=KeyedStream.from_seed(seed))
        names = list(daemon.keys)
        reports = []
        for i in range(300):
            daemon.record(names[i % 97], START + i * HOUR)
            reports += daemon.run_until(daemon.now)
        return reports

    assert life(1) == life(1)
    assert life(1) != life(2)


def test_an_hourly_user_of_everything_reaches_the_permitted_amounts_of_10_12_3() -> None:
    daemon = Daemon(read_configuration(DATA / "10.12.3"), start=START, stream=STREAM)
    for hour in range(24 * 20):
        for key in daemon.keys:
            daemon.record(key, START + hour * HOUR)
    daemon.run_until(START + timedelta(days=20))
    # 21 times SessionAmount at the most; the last credit, at day 20, goes out with the next report
    announced = (
        "com.apple.keyboard.Emoji",
        "com.apple.parsec.Search",
        "com.apple.keyboard.NewWords",
    )
    assert [daemon.submitted[name] for name in announced] == [20, 20, 40]
    # one key with SessionAmount 10 waits: 26 reports of at most 10 records each in 20 days
    assert daemon.submitted["com.apple.parsec.AppDeepLink"] == 200
    assert daemon.submitted["com.apple.health"] == 6


def test_bad_arguments() -> None:
    configuration = device(EMOJI)
    with pytest.raises(UsageError, match="must have a time zone"):
        Daemon(configuration, start=datetime(2017, 1, 1), stream=STREAM)
    with pytest.raises(UsageError, match="macos or ios"):
        Daemon(configuration, start=START, stream=STREAM, platform="windows")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="at least 1 record"):
        Daemon(configuration, start=START, stream=STREAM, most_stored=0)
    for budget in (
        replace(EMOJI, session_seconds=0.0),
        replace(EMOJI, session_seconds=float("nan")),
        replace(EMOJI, session_seconds=float("inf")),
        replace(EMOJI, session_amount=-1),
    ):
        with pytest.raises(UsageError, match="of emoji"):
            Daemon(device(budget), start=START, stream=STREAM)
    daemon = Daemon(configuration, start=START, stream=STREAM)
    with pytest.raises(UsageError, match="must have properties and a budget"):
        daemon.record("nothing", START)
    daemon.run_until(START + HOUR)
    for late in (
        daemon.sleep_until,
        daemon.run_until,
        lambda when: daemon.record("emoji0.0", when),
    ):
        with pytest.raises(UsageError, match="before the daemon's now"):
            late(START)
    Daemon(device(replace(EMOJI, session_seconds=1e300)), start=START, stream=STREAM).run_until(
        START + 99 * HOUR
    )
