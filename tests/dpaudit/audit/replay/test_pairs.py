"""Pairs to replay: in their relation, the difference last, edges of every field, and quickly."""

import math
import time
from collections import Counter
from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpaudit.audit.replay.evidence import Pairs
from dpaudit.errors import UsageError

MODES = ("search", "add", "remove", "replace")
GROWING = ("search", "add", "replace")
"""The modes in which records are made up."""
PEOPLE = [
    {"height": 1.5, "age": 31, "city": "Bonn"}, {"height": 1.75, "age": 47, "city": "Graz"},
    {"height": 1.25, "age": 52, "city": "Bonn"}, {"height": 2.0, "age": 29, "city": "Bonn"},
]  # fmt: skip

_real = st.floats(-1e100, 1e100) | st.sampled_from([math.nan, math.inf, -math.inf, -0.0, 0.0])
_whole = st.integers(-(1 << 63), (1 << 63) - 1)
_text = st.text("ab é", max_size=3)
_person = st.fixed_dictionaries(
    {"x": _real | st.none(), "n": _whole, "c": _text}, optional={"yes": st.booleans() | st.none()}
)
_schemas = st.sampled_from(
    [
        (_real, None), (_real, (-2, 3)), (_real | st.none(), {"": (0, 1)}),
        (_whole, None), (_whole, (0, 9)), (_text, None), (_text, ["a", "b", "new"]),
        (st.booleans(), None), (st.none(), None), (_real | _text, None),
        (_person, None), (_person, {"x": (0, 1)}), (_person, {"c": ["a", "b"], "n": (-5, 5)}),
        (st.tuples(_real, _whole), None), (st.tuples(_real, _whole).map(list), (0, 10)),
        (st.tuples(_text, _real), {"1": (-1, 0)}), (st.lists(_real, max_size=2), None),
        (st.fixed_dictionaries({"": _real, "a b": st.lists(_whole, max_size=2)}), None),
        (st.tuples(_real, _real).map(np.array), None),
    ]
)  # fmt: skip


def pairs_of(records, how, bounds=None, *, n=40, good=()):
    """The first ``n`` pairs; those with a number in ``good`` reach new lines."""
    pairs, found = Pairs(records, how, bounds, np.random.default_rng(1)), []
    for pair in islice(pairs, n):
        found.append(pair)
        if len(found) in good:
            pairs.reached(pair)
    return found


def texts(side):
    return [repr(record) for record in side]


def value(record, name):
    if isinstance(record, dict) and name in record:
        return record[name]
    return record[name] if isinstance(record, (list, tuple)) else record


def made_up(pairs, name):
    """What the record that makes the difference has in a field, as text."""
    return [repr(value(pair.second[-1], name)) for pair in pairs]


@st.composite
def cases(draw):
    record, bounds = draw(_schemas)
    return draw(st.lists(record, min_size=1, max_size=6)), bounds


@pytest.mark.parametrize("how", MODES)
@given(case=cases(), good=st.sets(st.integers(1, 60), max_size=6))
def test_every_pair_is_in_its_relation_and_differs_in_the_last_record(how, case, good):
    data, bounds = case
    own = texts(data)
    seen = Counter()
    for pair in pairs_of(data, how, bounds, n=60, good=good):
        first, second = texts(pair.first), texts(pair.second)
        seen[(*first, "", *second)] += 1
        if how == "replace":
            assert len(first) == len(second)
            assert first[:-1] == second[:-1]
            assert first[-1] != second[-1]
        else:
            assert first == second[:-1]
        if how == "add":
            assert first == own
        if how == "remove":
            assert any(second == [*own[:i], *own[i + 1 :], own[i]] for i in range(len(own)))
    assert set(seen.values()) <= {1}


@given(records=st.lists(_person, min_size=1, max_size=6), how=st.sampled_from(MODES))
def test_a_value_that_the_data_set_has_none_of_is_marked_and_stays_out_of_a_bounded_field(
    records, how
):
    bounds = {"n": (-5, 5)}
    known = {n: {repr(r.get(n)) for r in records} for n in ("x", "n", "c")}
    for pair in pairs_of(records, how, bounds, n=50, good=(3, 9)):
        strange = False
        for record in (*pair.first, *pair.second):
            x, n, c = record["x"], record["n"], record["c"]
            assert repr(n) in known["n"] or -5 <= n <= 5
            strange |= repr(c) not in known["c"]
            usual = isinstance(x, float) and math.isfinite(x)
            strange |= not usual and repr(x) not in known["x"]
        assert pair.beyond or not strange


@pytest.mark.parametrize("strange", [math.nan, None, math.inf])
@pytest.mark.parametrize("how", GROWING)
def test_a_missing_value_is_beyond_unless_that_field_has_one(how, strange):
    def marks(name, records):
        found = pairs_of(records, how, n=60)
        return {
            p.beyond
            for p in found
            if repr(value(p.second[-1], name)) == repr(strange)
            and p.origin.startswith("a record with")
        }

    first, *others = PEOPLE
    assert marks("height", PEOPLE) == {True}
    assert False in marks("height", [{**first, "height": strange}, *others])
    assert marks("age", [{**first, "height": strange}, *others]) == {True}
    usual = [p for p in pairs_of(PEOPLE, how) if p.second[-1] in PEOPLE]
    assert usual
    assert not any(p.beyond for p in usual)


@pytest.mark.parametrize("how", GROWING)
def test_bounds_of_a_field_leave_out_edges_of_that_field_alone(how):
    found = pairs_of(PEOPLE, how, {"height": (0, 3)})
    heights = {float(text) for text in made_up(found, "height")}
    assert {0.0, 3.0} <= heights
    assert all(0 <= height <= 3 for height in heights)
    assert "-0.0" in made_up(found, "height")
    assert {"nan", "None", str((1 << 63) - 1), str(-(1 << 63))} <= set(made_up(found, "age"))
    assert {"''", "None", "'never seen'"} <= set(made_up(found, "city"))
    cities = ["Bonn", "Graz", "Wien", "Linz"]
    bounded = pairs_of(PEOPLE, how, {"city": cities, "age": (20, 90)}, n=20)
    assert set(made_up(bounded, "city")) == {repr(city) for city in cities}
    assert {"20", "90"} <= set(made_up(bounded, "age"))
    assert "nan" in made_up(bounded, "height")


@pytest.mark.parametrize("how", GROWING)
def test_a_bounded_field_keeps_an_edge_that_the_data_set_has(how):
    data = [{**PEOPLE[0], "height": None}, *PEOPLE[1:]]
    tried = {
        text for p in pairs_of(data, how, {"height": (0, 3)}) for text in made_up([p], "height")
    }
    assert "None" in tried
    assert "nan" not in tried


@pytest.mark.parametrize("how", GROWING)
@pytest.mark.parametrize("fields", range(1, 13))
def test_the_first_pairs_touch_each_field_with_an_edge(how, fields):
    kinds = ([0.5, 1.5], [3, 4], ["a", "b"])
    edges = ({"nan"}, {"nan"}, {"''"})
    data = [{str(j): kinds[j % 3][i] for j in range(fields)} for i in (0, 1)]
    first = pairs_of(data, how, n=8 + fields)
    for j in range(fields):
        assert edges[j % 3] & set(made_up(first, str(j)))
    bounds = {"0": (0, 2)}
    assert {"0.0", "2.0"} <= set(made_up(pairs_of(data, how, bounds, n=9 + fields), "0"))


@pytest.mark.parametrize("how", GROWING)
@pytest.mark.parametrize(
    "bounds", [None, {"height": (0, 3), "age": (0, 99), "city": ["Bonn", "X"]}]
)
def test_a_pair_that_differs_in_every_field_at_an_extreme_comes_early(how, bounds):
    def is_worst(pair):
        last, rest = pair.second[-1], pair.first[-1:] if how == "replace" else PEOPLE
        return (
            last["height"] > max(r["height"] for r in rest)
            and last["age"] > max(r["age"] for r in rest)
            and last["city"] not in {r["city"] for r in rest}
        )

    assert bounds is None or how == "replace" or bounds["city"][-1] == "X"
    assert any(map(is_worst, pairs_of(PEOPLE, how, bounds, n=3)))


@pytest.mark.parametrize("how", GROWING)
def test_a_full_run_meets_the_edges_of_all_domains(how):
    found = pairs_of(PEOPLE, how)
    assert len(found) == 40
    assert {"nan", "inf", "-inf", "-0.0", "None", "1e+308"} <= set(made_up(found, "height"))
    largest, smallest = (1 << 63) - 1, -(1 << 63)
    assert {str(largest), str(smallest), "None"} <= set(made_up(found, "age"))
    cities = made_up(found, "city")
    assert {"''", "'never seen'"} <= set(cities)
    assert max(map(len, cities)) > 10_000
    assert any(repr(p.second[-1]) in texts(p.second[:-1]) for p in found)  # a duplicate
    assert any(  # a tie: as tall as another, and someone else
        p.second[-1]["height"] in {r["height"] for r in p.second[:-1]}
        and p.second[-1] not in p.second[:-1]
        for p in found
    )
    if how == "search":
        assert any(not p.first for p in found)
    if how == "replace":
        assert any(len(p.first) == 1 for p in found)
    if how != "add":
        assert any(len(p.first) > 2 and len(set(texts(p.second[:-1]))) == 1 for p in found)


def test_removed_first_are_records_at_an_end_or_rare():
    data = [{"age": age, "city": "Bonn"} for age in range(20, 80)]
    data[13]["city"], data[40]["age"], data[50]["age"] = "Graz", 1, 99
    removed = [p.second[-1] for p in pairs_of(data, "remove", n=6)]
    assert all(data[i] in removed for i in (-1, 13, 40, 50))
    assert len(pairs_of(data, "remove", n=100)) == len(data)


@pytest.mark.parametrize("how", GROWING)
def test_variations_of_a_pair_that_reached_new_lines_come_next(how):
    pairs = Pairs(PEOPLE, how, None, np.random.default_rng(1))
    each = iter(pairs)
    pair = next(each)
    pairs.reached(pair)
    assert next(each).origin == "a variation of a good pair"
    assert "a variation of a good pair" not in {p.origin for p in pairs_of(PEOPLE, how)}


@pytest.mark.parametrize("how", MODES)
def test_pairs_of_a_large_data_set_take_little_time(how):
    rng = np.random.default_rng(1)
    data = [
        {"height": float(rng.normal()), "age": int(rng.integers(99)), "city": "abc"[i % 3]}
        for i in range(10_000)
    ]
    start = time.process_time()
    assert len(pairs_of(data, how, n=20)) == 20
    assert time.process_time() - start < 1


def test_bounds_of_an_unknown_field_are_refused():
    with pytest.raises(UsageError, match="no record has such a field"):
        Pairs(PEOPLE, "add", {"weight": (0, 1)}, np.random.default_rng(1))
