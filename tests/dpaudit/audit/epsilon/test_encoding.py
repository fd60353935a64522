"""The encoding: what each kind of release becomes, and that later releases change nothing."""

import math

import numpy as np
import pytest

from dpaudit.audit.epsilon.encoding import Encoding
from dpaudit.audit.epsilon.neighbour_search import promise


def _column(encoding, rows, name):
    return rows[:, encoding.names.index(name)]


def test_numbers_stay_as_they_are():
    x = np.random.default_rng(1).normal(size=(2, 100, 3))
    encoding = Encoding.fitted(x[0], x[1])
    assert np.array_equal(encoding.rows(x[0]), x[0])
    assert encoding.names == ["release[0]", "release[1]", "release[2]"]


def test_single_numbers_are_one_column():
    x = np.random.default_rng(1).normal(size=(2, 100))
    for side in (x, x.tolist()):
        encoding = Encoding.fitted(side[0], side[1])
        assert encoding.names == ["release"]
        assert np.array_equal(encoding.rows(side[1])[:, 0], x[1])


@pytest.mark.parametrize("odd", [None, "text", b"bytes", math.inf, -math.inf, math.nan, (), {}])
def test_an_odd_release_among_numbers_is_a_kind(odd):
    some = [1.0, 2.0, 3.0] * 10
    encoding = Encoding.fitted(some, some[:-6] + [odd] * 6)
    rows = encoding.rows([1.0, odd])
    assert np.isfinite(rows).all()
    kinds = _column(encoding, rows, "kind of release")
    assert kinds[0] != kinds[1]


def test_types_of_numbers_differ():
    encoding = Encoding.fitted([1] * 9 + [1.0] * 9, [True] * 9 + [1.0] * 9)
    assert len(set(_column(encoding, encoding.rows([1, 1.0, True]), "kind of release"))) == 3


def test_lengths_keys_and_order_are_columns():
    encoding = Encoding.fitted([{"a": 1, "b": 2}] * 9, [{"b": 2, "a": 1}] * 9)
    assert encoding.names == ["text of release#keys"]
    encoding = Encoding.fitted([[1.0]] * 9, [[1.0, 5.0]] * 9)
    rows = encoding.rows([[1.0], [1.0, 5.0]])
    assert _column(encoding, rows, "release#length").tolist() == [1, 2]
    assert _column(encoding, rows, "release#sum").tolist() == [1, 6]


def test_what_a_data_frame_holds_is_a_column_wherever_it_stands():
    def frame(oldest, cities):
        return {"age": np.array([30.0, oldest, 40.0]), "city": cities}

    one, other = frame(50.0, ["Bonn", "Graz", "Bonn"]), frame(90.0, ["Graz", "Oslo", "Bonn"])
    encoding = Encoding.fitted([one] * 9, [other] * 9)
    moved = {"age": other["age"][::-1], "city": other["city"][::-1]}
    rows = encoding.rows([one, other, moved])
    assert _column(encoding, rows, "release.age#max").tolist() == [50, 90, 90]
    assert _column(encoding, rows, "release.city#count of 'Bonn'").tolist() == [2, 1, 1]
    assert _column(encoding, rows, "release.city#count of 'Oslo'").tolist() == [0, 1, 1]
    many = {"id": [str(i) for i in range(17)]}
    assert not any("#count" in name for name in Encoding.fitted([many] * 9, [{}] * 9).names)


def test_numbers_in_texts_are_columns():
    texts = [f"total: {i / 10} of 5e2" for i in range(20)]
    encoding = Encoding.fitted(texts, texts)
    rows = encoding.rows(["total: -2.5 of 5e2"])
    assert _column(encoding, rows, "release#number[0]")[0] == -2.5


def test_rare_texts_have_hashes_that_stay():
    encoding = Encoding.fitted(["yes"] * 9 + ["no"] * 9, ["yes"] * 18)
    first = encoding.rows(["never", "other", "never", "yes"])[:, 0]
    assert first[0] == first[2] != first[1]
    assert first[0] == pytest.approx(2.682967, abs=1e-6)
    assert first[3] in (0, 1)


def test_what_float64_rounds_off_is_kept():
    big = 1 << 60
    encoding = Encoding.fitted([big] * 9, [big + 1] * 9)
    a, b = encoding.rows([big, big + 1])
    assert a.tolist() != b.tolist()


def test_the_counting_half_changes_nothing():
    rng = np.random.default_rng(2)
    some = [{"k": "abc"[i]} for i in rng.integers(3, size=200)]
    encoding = Encoding.fitted(some[:100], some[100:])
    alone = [encoding.rows([release]) for release in some]
    assert np.array_equal(np.concatenate(alone), encoding.rows(some))
    assert np.array_equal(encoding.rows([*some, {"new": [1]}])[:-1], encoding.rows(some))


def test_new_places_are_counted_not_refused():
    users = [{f"user{i}": 1.0} for i in range(40)]
    encoding = Encoding.fitted(users, users)
    rows = encoding.rows([{"stranger": 1.0}, {}])
    assert np.isfinite(rows).all()


def test_lists_and_arrays_of_one_block_or_many_agree():
    rng = np.random.default_rng(3)
    equal = rng.normal(size=(50, 3)).tolist()
    mixed = [*equal[:25], *rng.normal(size=(25, 4)).tolist()]
    encoding = Encoding.fitted(mixed, mixed[::-1])
    assert np.array_equal(encoding.rows(equal), encoding.rows([*equal, [1.0]])[:-1])


def _leaky(kind, which, n, rng):
    """Releases that give the neighbour away with 1/2 against 1/8."""
    leak = (rng.random(n) < (0.5 if which else 0.125)).tolist()
    noise = rng.normal(size=n).tolist()
    both = list(zip(leak, noise, strict=True))
    return {
        "none": [None if x else v for x, v in both],
        "text": [f"{'high' if x else 'low'} {v:.2f}" for x, v in both],
        "length": [[v] * (2 if x else 3) for x, v in both],
        "key": [{"a": v, **({"b": 1.0} if x else {})} for x, v in both],
        "order": [{"a": v, "b": 1} if x else {"b": 1, "a": v} for x, v in both],
        "bytes": [bytes([i % 256, x]) for i, x in enumerate(leak)],
        "infinite": [math.inf if x else v for x, v in both],
        "type": [(1 if x else 1.0) for x in leak],
        "nested": [{"a": [(v, {"deep": x})]} for x, v in both],
        "big": [(1 << 62) + x for x in leak],
    }[kind]  # fmt: skip


@pytest.mark.parametrize(
    "kind", ["none", "text", "length", "key", "order", "bytes", "infinite", "type", "nested", "big"]
)
def test_leaks_of_every_kind_are_found_and_none_made_up(kind):
    rng = np.random.default_rng(4)
    first, second, same = (_leaky(kind, side, 4000, rng) for side in (0, 1, 1))
    assert promise(first, second, delta=0.0, rng=rng) > 1.1  # ln 4 = 1.39
    assert promise(same, second, delta=0.0, rng=rng) < 0.15


def test_bounds_after_encoding_cover():
    """Honest randomized response as text, ε = 1: the bound is above it at most as often as α."""
    rng, alpha, runs = np.random.default_rng(5), 0.2, 150
    p = 1 / (1 + math.e)
    wrong = 0
    for _ in range(runs):
        yes = [["no", "yes"][int(b)] for b in rng.random(400) < p]
        no = [["no", "yes"][int(b)] for b in rng.random(400) < 1 - p]
        wrong += promise(yes, no, delta=0.0, rng=rng, level=alpha / 2) > 1
    assert wrong <= 1.5 * alpha * runs
