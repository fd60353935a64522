"""The search for neighbours: the pairs it tries, and the leaks that only some pairs show."""

import itertools
import math
import time
import types

import numpy as np
import pytest

import dpaudit
from dpaudit.audit.mechanism.datasets import records_of
from dpaudit.audit.mechanism.neighbour_search import (
    Schema,
    SearchStart,
    neighbours_of,
    search,
    worst_cases,
)
from dpaudit.errors import SamplerError, SamplerTimeoutError, UsageError
from dpaudit.targets.callables import CallableTarget

DATA = [0.0, 0.5, 1.0, 0.0, 1.0, 0.5, 0.5, 0.0]


@pytest.fixture(autouse=True)
def no_classifiers(monkeypatch):
    """Fixed statistics are enough here, and take no seconds."""
    monkeypatch.setattr("dpaudit.audit.mechanism.judge.learned_scores", lambda *_, **__: [])


def _found(release, *, adjacency="add-remove", bounds=(0, 1), seconds=60.0, progress=None):
    """What the search finds, and the ε that the pair shows on new releases."""
    options, beginning = (
        {"delta": 0.0, "samples": 4000},
        SearchStart(records_of(DATA), adjacency, bounds),
    )
    given = {"deadline": time.monotonic() + seconds, "progress": progress}
    rng = np.random.default_rng(1)
    with np.errstate(all="ignore"):
        release = CallableTarget(release, name="m", role="datasets")
        return search(release, beginning, rng=rng, **options, **given)


def _laplace(rng):
    return lambda value, scale, n: np.round((value + rng.laplace(0, scale, n)) * 1024) / 1024


def mechanisms(seed):
    """Releases whose worst pair is not obvious, with a bound that the search must reach."""
    rng = np.random.default_rng(seed)
    noisy = _laplace(rng)

    def clipped(data):
        return np.clip(np.asarray(data, dtype=float), 0, 1)

    def median(data, n):
        return noisy(np.median(clipped(data)) if len(data) else 0.5, 0.25, n)

    def one_sided(data, n):
        return noisy(float(np.minimum(data, 1).sum()), 1, n)

    def largest(data, n):
        return noisy(clipped(data).max() if len(data) else 0.0, 0.5, n)

    def variance(data, n):
        return noisy(clipped(data).var() if len(data) else 0.0, 0.25 / 8, n)

    def mean(data, n):
        return noisy(clipped(data).mean() if len(data) else 0.5, 1 / 8, n)

    def two_at_the_top(data, n):
        return noisy(4.0 * (np.sum(clipped(data) == 1) == 2), 1, n)

    def groups(data):
        return {x: round(rng.laplace(), 3) for x in data}

    def categories(data):
        return [round(float(rng.laplace()), 3) for _ in set(data)]

    def exact_when_many(data):
        return str(len(data)) if len(data) > 8 else "few" if rng.random() < 0.5 else "none"

    def honest_sum(data, n):
        return noisy(clipped(data).sum(), 1, n)

    def honest_median(data, n):
        return noisy(np.median(clipped(data)) if len(data) else 0.5, 1, n)

    def honest_text(data, n):
        return [f"count {x:.2f}" for x in noisy(len(data), 1, n)]

    def honest_order(data):
        return sorted(round(x, 3) for x in (len(data) + rng.laplace(), rng.laplace()))

    return locals()


LEAKS = {
    **dict.fromkeys(["median", "largest"], 1.8),
    **dict.fromkeys(["one_sided", "variance", "mean", "two_at_the_top"], 3.0),
    **dict.fromkeys(["groups", "categories", "exact_when_many"], 5.0),
}
HONEST = ["honest_sum", "honest_median", "honest_text", "honest_order"]


@pytest.mark.parametrize(
    "name", ["largest", *(pytest.param(n, marks=pytest.mark.slow) for n in LEAKS if n != "largest")]
)
def test_leaks_at_some_pairs_are_found(name):
    bounds = None if name == "one_sided" else (0, 1)
    found = _found(mechanisms(1)[name], bounds=bounds)
    assert found.promise > LEAKS[name]
    sizes = sorted(len(dataset) for dataset in found.pair)
    assert sizes[1] - sizes[0] == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", HONEST)
def test_sound_mechanisms_show_no_more_than_they_claim(name):
    release = mechanisms(2)[name]
    asked = {"epsilon": 1, "samples": 5000, "seed": 1, "in_process": True}
    result = dpaudit.audit_datasets(release, neighbours=_found(release).pair, **asked)
    assert result.verdict == "no-finding"


def test_the_search_is_as_good_as_trying_everything():
    """Of all pairs of at most 3 records of {0, ½, 1}, by their exact ε: a noisy range."""
    noisy = _laplace(np.random.default_rng(1))

    def spread(data):
        return max(data) - min(data) if len(data) else 0.0

    found = _found(lambda data, n: noisy(spread(data), 0.5, n))
    apart = abs(spread(found.pair[0]) - spread(found.pair[1]))
    assert apart == 1.0


@pytest.mark.slow
def test_replacing_keeps_the_size_and_adding_does_not():
    honest = mechanisms(3)["honest_sum"]
    for adjacency, differ in (("replace", 0), ("add-remove", 1)):
        found = _found(honest, adjacency=adjacency)
        assert abs(len(found.pair[0]) - len(found.pair[1])) == differ


def test_bounds_are_kept_and_without_them_passed():
    schema = Schema.learn([0.2, 0.7], (0, 1))
    assert {min(schema.extremes), max(schema.extremes)} == {0.0, 1.0}
    extremes = Schema.learn([0.2, 0.7]).extremes
    tried = [x for x in extremes if not math.isnan(x)]
    assert len(tried) < len(extremes)
    assert max(tried) == 2**53
    assert any(0.7 < x < 0.8 for x in tried)
    assert min(tried) < 0.2
    assert any(x == 0 and math.copysign(1, x) < 0 for x in tried)


def test_fields_are_learned_by_name():
    rows = [{"age": 30, "city": "Bonn"}, {"age": 40, "city": "Bonn"}, {"age": 50, "city": "Graz"}]
    schema = Schema.learn(rows, {"age": (0, 120)})
    assert schema.low == {"age": 0, "city": "Bonn"}
    assert schema.high == {"age": 120, "city": "Bonn"}
    assert {r["city"] for r in schema.extremes} == {"Bonn", "Graz", "", "never seen"}
    assert all(isinstance(r["age"], int) for r in schema.extremes)
    with pytest.raises(UsageError, match="bounds=size"):
        Schema.learn(rows, {"size": (0, 1)})
    with pytest.raises(UsageError, match="low must be below high"):
        Schema.learn(rows, {"age": (1, 0)})


def test_worst_cases_begin_with_the_data_set_and_hold_the_empty_one():
    pairs = list(worst_cases(DATA, Schema.learn(DATA, (0, 1)), "add-remove"))
    assert pairs[0].first == tuple(DATA)
    assert any(pair.first == () for pair in pairs)
    assert any(set(pair.first) == {0.0} and pair.second[-1] == 1.0 for pair in pairs)
    assert all(len(pair.second) == len(pair.first) + 1 for pair in pairs)


def test_neighbours_differ_in_one_record():
    assert neighbours_of([1, 2], 9, "replace", at=0) == ((1, 2), (9, 2))
    assert neighbours_of([1, 2], 9, "add-remove", at=1) == ((1, 2), (1, 9, 2))


@pytest.mark.slow
def test_a_mechanism_that_raises_is_passed_over_and_counted():
    noisy = _laplace(np.random.default_rng(1))

    def mean(data, n):
        return noisy(sum(data) / len(data), 1, n)  # fails without records

    found = _found(mean)
    assert found.refused > 0
    assert "ZeroDivisionError" in found.error
    assert found.pair[0]

    def broken(data):
        raise ValueError(data)

    with pytest.raises(SamplerError, match="failed at all"):
        _found(broken)


def test_the_time_limit_ends_the_search(monkeypatch):
    clock = itertools.count()
    monkeypatch.setattr(
        "dpaudit.audit.mechanism.neighbour_search.time",
        types.SimpleNamespace(monotonic=lambda: time.monotonic() + next(clock)),
    )
    found = _found(mechanisms(1)["honest_sum"], seconds=20)
    assert found.late
    assert 0 < found.tried < 20 < found.budget
    with pytest.raises(SamplerTimeoutError, match="ran out of time at its first pair"):
        _found(mechanisms(1)["honest_sum"], seconds=1)


def test_the_progress_counts_trials_up_to_what_was_planned():
    seen = []
    found = _found(mechanisms(1)["honest_sum"], progress=lambda *told: seen.append(told))
    assert [done for done, _ in seen] == list(range(1, len(seen) + 1))
    assert {total for _, total in seen} == {len(seen)}
    assert found.tried <= found.budget < len(seen)


@pytest.mark.slow
def test_more_pairs_make_no_false_finding():
    """The pair that looked best of some 90 is judged anew: ε = 1 exactly is never contradicted."""
    rng = np.random.default_rng(5)
    keep = math.e / (1 + math.e)

    def respond(data):
        truth = bool(data) and data[0] >= 0.5
        return truth if rng.random() < keep else not truth

    asked = {"dataset": DATA, "neighbours": "search", "adjacency": "replace", "bounds": (0, 1)}
    for seed in range(3):
        result = dpaudit.audit_datasets(respond, epsilon=1, samples=1000, seed=seed, **asked)
        assert result.verdict == "no-finding"
        assert result.details["search"]["tried"] > 80
        assert result.epsilon.low < 1
