"""Two configurations beside each other: Table 3 row by row, and any other pair."""

from dataclasses import replace
from pathlib import Path

from dpaudit.deployments.apple.configuration.reading import read_configuration
from dpaudit.deployments.apple.differences import Difference, compare, effect
from dpaudit.deployments.apple.model import Budget, Key

DATA = Path(__file__).parents[3] / "data" / "apple"

TABLE_3 = {
    ("SessionAmount for com.apple.keyboard.NewWords", "1", "2"),
    ("SessionAmount for com.apple.differentialprivacy.testBudget", "1", "4"),
    ("BudgetName com.apple.health", "no", "yes"),
    ("PropertiesName LocalWords", "no", "yes"),
    ("KeyName apple.photos.search.miss.unnormalized.en_US", "yes", "no"),
    ("KeyName apple.photos.search.miss.normalized.en_US", "yes", "no"),
    ("PropertiesName HealthDataTypes", "no", "yes"),
    ("SubmissionPriority", "no", "yes"),
}
"""The paper lists LocalWords twice."""


def read(version):
    return read_configuration(DATA / version)


def rows(differences):
    return {(d.what, d.old, d.new) for d in differences}


def test_table_3():
    found = compare(read("10.12.1"), read("10.12.3"))
    assert len(found) == 8
    assert rows(found) == TABLE_3
    notes = {d.name: d.note for d in found if d.note}
    assert notes == {"LocalWords": "with 43 KeyNames", "HealthDataTypes": "with 1 KeyName"}
    assert [d.table[0] for d in found] == list("BBBPPPKK")


def test_backwards_and_the_same():
    found = compare(read("10.12.3"), read("10.12.1"))
    assert rows(found) == {(what, new, old) for what, old, new in TABLE_3}
    assert compare(read("10.12.1"), read("ios-10.1.1")) == ()


def test_ios_11():
    found = rows(compare(read("ios-10.1.1"), read("ios-11")))
    assert ("PrivacyParameter for TermFrequency", "1", "2") in found
    assert ("SessionAmount for com.apple.keyboard.Emoji", "1", "10") in found
    assert (
        "PrivatizationAlgorithm for TermFrequency",
        "OneBitHistogram",
        "CountMedianSketch",
    ) in found
    assert ("ServerAlgorithmString HadamardCountMedianSketch", "no", "yes") in found


def test_any_change_is_told():
    old = read("10.12.3")
    words = old.properties["NewWords"]
    changed = replace(
        words, parameter=1.5, priority=None, others={"New": {"a": [1]}}, patterns_allowed=True
    )
    new = replace(
        old,
        keys=old.keys
        | {"com.apple.lookup.DomainMatch": Key("com.apple.lookup.DomainMatch", "NewWords")},
        properties=old.properties | {"NewWords": changed},
        budgets=old.budgets | {"com.apple.health": Budget("com.apple.health", 86400.0, 2)},
        parameters={
            n: (p | {"p": 1} if n == "OneBitHistogram" else p) for n, p in old.parameters.items()
        },
    )
    assert compare(old, new) == (
        Difference("BudgetName", "com.apple.health", "SessionSeconds", "604800", "86400"),
        Difference("PropertiesName", "NewWords", "KeyPatternsAllowed", "False", "True"),
        Difference("PropertiesName", "NewWords", "New", "no", "{'a': [1]}"),
        Difference("PropertiesName", "NewWords", "PrivacyParameter", "2", "1.5"),
        Difference("PropertiesName", "NewWords", "SubmissionPriority", "1", "no"),
        Difference(
            "KeyName", "com.apple.lookup.DomainMatch", "PropertiesName", "Search", "NewWords"
        ),
        Difference("ServerAlgorithmString", "OneBitHistogram", "p", "5000", "1"),
    )


def test_what_it_does_to_the_day():
    said = effect(read("10.12.1"), read("10.12.3"))
    assert "rises from 14 to 16 (+2) for the initially announced applications" in said
    assert "falls from 16 to 14 (-2)" in effect(read("10.12.3"), read("10.12.1"))
    assert "rises from 16 to 45 (+29) with everything" in effect(read("ios-10.1.1"), read("ios-11"))
    assert effect(read("10.12.3"), read("10.12.3")).count("stays") == 2
