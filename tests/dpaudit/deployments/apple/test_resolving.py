"""KeyName → properties → budget: Table 1, the daemon's rules, and no key dropped silently."""

from dataclasses import replace
from pathlib import Path

import pytest

from dpaudit.deployments.apple.configuration.reading import read_configuration
from dpaudit.deployments.apple.configuration.resolving import resolve, unresolved
from dpaudit.deployments.apple.model import Budget, Configuration, Key, Properties

DATA = Path(__file__).parents[3] / "data" / "apple"
SKETCH, BIT = "CountMedianSketch", "OneBitHistogram"
TABLE_1 = """
keyboard.NewWords.it_IT NewWords CountMedianSketch 2 keyboard.NewWords 2
keyboard.NewWords.ru_RU NewWords CountMedianSketch 2 keyboard.NewWords 2
keyboard.NewWords.zh_Hans NewWordsChinese CountMedianSketch 2 keyboard.NewWords 2
keyboard.LocalWords.en_US LocalWords CountMedianSketch 2 keyboard.NewWords 2
keyboard.Emoji.fr_FR.EmojiKeyboard TermFrequency OneBitHistogram 1 keyboard.Emoji 1
parsec.AppDeepLink DeepLinks CountMedianSketch 1 parsec.AppDeepLink 10
health.datatypes HealthDataTypes OneBitHistogram 1 health 2
lookup.QueryMatch.queryOnly.notHighlighted Search OneBitHistogram 1 parsec.Search 1
lookup.DomainMatch Search OneBitHistogram 1 parsec.Search 1
"""


def configuration(keys=(), properties=(), budgets=(("B", 86400, 1),)):
    return Configuration(
        Path("made"),
        {name: Key(name, to) for name, to in keys},
        {name: Properties(name, BIT, parameter, budget) for name, parameter, budget in properties},
        {name: Budget(name, seconds, amount) for name, seconds, amount in budgets},
        {},
    )


@pytest.mark.parametrize("row", TABLE_1.strip().splitlines())
def test_table_1(row):
    name, properties, algorithm, parameter, budget, amount = row.split()
    resolved = resolve(read_configuration(DATA / "10.12.3"))
    found = {r.key.name: r for r in resolved}[f"com.apple.{name}"]
    assert (found.properties.name, found.properties.algorithm, found.budget.name) == (
        properties,
        algorithm,
        f"com.apple.{budget}",
    )
    assert (found.epsilon, found.budget.session_amount) == (float(parameter), int(amount))


@pytest.mark.parametrize(
    ("parameter", "epsilon", "priority"),
    [(0.5, 0.5, 1), (2, 2, 1), (2.0000001, 1, 99999), (1e300, 1, 99999)],
)
def test_epsilon_max(parameter, epsilon, priority):
    made = configuration([("k", "P")], [("P", parameter, "B")])
    (found,) = resolve(made)
    assert (found.epsilon, found.priority) == (epsilon, priority)
    said = [f.message for f in unresolved(made)]
    assert len(said) == (parameter > 2)
    assert all("k" in message and "99999" in message for message in said)


@pytest.mark.parametrize(("amount", "records"), [(0, 0), (1, 1), (40, 40), (41, 40), (10**9, 40)])
def test_forty_records_a_report(amount, records):
    (found,) = resolve(configuration([("k", "P")], [("P", 1, "B")], [("B", 86400, amount)]))
    assert found.records_per_report == records


def test_unknown_names_and_loops():
    made = configuration(
        [
            ("good", "P"),
            ("gone", "Nowhere"),
            ("itself", "itself"),
            ("first", "second"),
            ("second", "first"),
            ("through", "good"),
            ("unpaid", "Unpaid"),
        ],
        [("P", 1, "B"), ("Unpaid", 1, "com.apple.none"), ("Idle", 1, "B")],
    )
    assert [r.key.name for r in resolve(made)] == ["good"]
    said = {f.where: f.message for f in unresolved(made)}
    assert "gone" in said["PropertiesName Nowhere"]
    assert "loop: itself → itself" in said["PropertiesName itself"]
    assert "loop: second → first → second" in said["PropertiesName second"]
    assert "loop: first → second → first" in said["PropertiesName first"]
    assert "loop" not in said["PropertiesName good"]
    assert "through" in said["PropertiesName good"]
    assert "com.apple.none" in said["PropertiesName Unpaid"]
    assert "default" in said["PropertiesName Unpaid"]
    assert "no KeyName" in said["PropertiesName Idle"]


def test_long_chains_end():
    names = [f"k{i}" for i in range(5000)]
    made = configuration(list(zip(names, [*names[1:], names[0]], strict=True)))
    assert resolve(made) == ()
    assert len(unresolved(made)) == 5000


def test_unknown_algorithms_and_parameters_are_said():
    made = configuration([("k", "P")])
    odd = Properties("P", "Rot13", 1.0, "B", server_algorithm="None")
    made = Configuration(made.folder, made.keys, {"P": odd}, made.budgets, {})
    assert len(resolve(made)) == 1
    said = " ".join(f.message for f in unresolved(made))
    assert "'Rot13'" in said
    assert "'None'" in said


def test_a_priority_that_keeps_records_from_the_ledger_is_told():
    made = configuration([("K", "P")], [("P", 1, "B")])
    silent = replace(made, properties={"P": replace(made.properties["P"], priority=100_000)})
    assert unresolved(made) == ()
    (finding,) = [f for f in unresolved(silent) if "Priority" in f.message]
    assert "SubmissionPriority=100000" in finding.message
    assert finding.message.endswith("K")
