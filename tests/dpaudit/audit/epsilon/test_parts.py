"""The parts of the ε audit: neighbours, score files, cells, statistics, advice."""

import math

import numpy as np
import pytest

from dpaudit.audit.epsilon.canary_scores import read_scores
from dpaudit.audit.epsilon.events import (
    choose,
    coarse_statistics,
    cut,
    intervals,
    low_bit_statistics,
)
from dpaudit.audit.epsilon.run import parse_neighbours
from dpaudit.audit.epsilon.verdict import shape_advice
from dpaudit.errors import UsageError


@pytest.mark.parametrize(
    ("text", "first", "second"),
    [
        ("0,1", [0], [1]),
        ("-1.5, 2e3", [-1.5], [2000]),
        ("0,0,0;1,0,0", [0, 0, 0], [1, 0, 0]),
        ("3;4", [3], [4]),
    ],
)
def test_neighbours(text, first, second):
    a, b = parse_neighbours(text)
    assert a.tolist() == first
    assert b.tolist() == second


def test_neighbours_from_files(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(3))
    np.save(tmp_path / "b.npy", np.zeros(3, dtype=np.float32))
    for divider in ";,":
        a, b = parse_neighbours(f"{tmp_path}/a.npy{divider}{tmp_path}/b.npy")
        assert a.tolist() == [0, 1, 2]
        assert b.tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("0", "1 were given"),
        ("0,1,2", "3 were given"),
        ("0;1;2", "3 were given"),
        ("0,0;1", "lengths 2 and 1"),
        ("1,1", "equal"),
        ("a,1", "'a' is no list of numbers"),
        ("nan,1", "finite"),
        ("inf;1", "finite"),
        (";", "no list"),
        ("none.npy;1", "cannot be read"),
    ],
)
def test_neighbours_refused(text, says):
    with pytest.raises(UsageError, match=f"neighbours=.*{says}"):
        parse_neighbours(text)


def test_scores(tmp_path):
    (tmp_path / "s.csv").write_text("member,score,note\n1,0.5,a\n0,-2,b\n")
    score, member = read_scores(tmp_path / "s.csv")
    assert score.tolist() == [0.5, -2]
    assert member.tolist() == [True, False]
    np.savez(tmp_path / "s.npz", score=score, member=member)
    again, members = read_scores(tmp_path / "s.npz")
    assert again.tolist() == score.tolist()
    assert members.tolist() == member.tolist()


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("s.csv", "score\n1\n", "no column 'member'"),
        ("s.csv", "score,member\n", "no rows"),
        ("s.csv", "score,member\nx,1\n", "could not convert"),
        ("s.csv", "score,member\nnan,1\n", "nan in row 1 is not finite"),
        ("s.csv", "score,member\n1,1\n1,2\n", r"member 2.0 in row 2 is neither"),
        ("s.csv", "score,member\n1\n", "else than numbers"),
        ("s.txt", "", "score,member"),
        ("s.npz", "no archive", "scores="),
    ],
)
def test_scores_refused(tmp_path, name, text, says):
    (tmp_path / name).write_text(text)
    with pytest.raises(UsageError, match=says):
        read_scores(tmp_path / name)


def test_scores_of_different_lengths_and_pickles_are_refused(tmp_path):
    np.savez(tmp_path / "s.npz", score=np.zeros(3), member=np.zeros(2))
    with pytest.raises(UsageError, match="shape"):
        read_scores(tmp_path / "s.npz")
    np.savez(tmp_path / "p.npz", score=np.array([{}], dtype=object), member=np.zeros(1))
    with pytest.raises(UsageError, match="scores="):
        read_scores(tmp_path / "p.npz")
    with pytest.raises(UsageError, match="cannot be read"):
        read_scores(tmp_path / "none.csv")


def test_cells_keep_atoms_alone():
    rng = np.random.default_rng(1)
    values = np.concatenate([rng.standard_normal(5000), np.full(500, 0.25), np.full(300, -1.0)])
    cells = cut(values)
    probe = np.array([0.25, np.nextafter(0.25, 0), np.nextafter(0.25, 1), -1.0])
    places = np.searchsorted(cells.edges, probe, side="right")
    assert len(set(places)) == 4
    assert cells.counts(values)[places[0]] == 500
    assert cells.counts(values)[places[3]] == 300
    assert cells.counts(values).sum() == len(values)
    assert len(cells) < 350


def test_cells_of_a_discrete_law_are_its_values():
    cells = cut(np.repeat([0.0, 1.0, 5.0], [10, 20, 30]))
    assert [c for c in cells.counts(np.array([0.0, 1, 1, 5])) if c] == [1, 2, 1]
    assert len(cut(np.zeros(100))) > 1
    assert len(cut(np.array([]))) == 1


def test_intervals_join():
    cells = cut(np.arange(1000.0))
    chosen = np.zeros(len(cells), bool)
    chosen[[0, 1, 5]] = True
    found = intervals(cells, chosen)
    assert found == [(-math.inf, cells.edges[1]), (cells.edges[4], cells.edges[5])]


def test_lowest_set_bit():
    anything = np.ones((4, 1))
    lowest = low_bit_statistics(anything, anything, np.array([0.0]), np.array([1.0]))[0]
    x = np.array([[1.0], [0.75], [-6.0], [2.0**-1074], [1 + 2.0**-52], [1e300], [0.0]])
    assert lowest.of(x)[:5].tolist() == [0, -2, 1, -1074, -52]
    assert lowest.of(x)[6] > lowest.of(x)[5] > 900


def test_equal_rows_give_equal_numbers():
    """A projection must not depend on a row's place, or a discrete law would lose its atoms."""
    rng = np.random.default_rng(1)
    rows = rng.integers(0, 2, (4, 37)).astype(float)
    x = rows[rng.integers(0, 4, 3001)]
    for statistic in coarse_statistics(x[:1500], x[1500:], rng):
        if "⟨w, x⟩" in statistic.says:
            assert len(np.unique(statistic.of(x))) == 4


def test_shape_advice():
    rng = np.random.default_rng(1)
    zero, one = np.zeros(1), np.ones(1)
    noise = rng.laplace(0, 1, (40_000, 1))
    assert not shape_advice(noise[:20_000], noise[20_000:] + 1, zero, one)
    for other in (1.25 * noise[20_000:] + 1, np.minimum(noise[20_000:] + 1, 2)):
        assert "depends on the value" in shape_advice(noise[:20_000], other, zero, one)
    assert not shape_advice(np.zeros((10, 2)), np.ones((10, 2)), zero, one)


def test_a_value_that_names_a_data_set_gets_no_shape_advice():
    rng = np.random.default_rng(1)
    first, second = rng.laplace(40, 1, (20_000, 1)), rng.laplace(40.5, 2, (20_000, 1))
    assert not shape_advice(first, second, np.zeros(1), np.ones(1))


def test_shape_advice_is_rare_on_honest_noise():
    rng, said = np.random.default_rng(2), 0
    v = np.zeros(8), np.ones(8)
    for _ in range(200):
        said += bool(shape_advice(rng.normal(0, 1, (500, 8)), rng.normal(1, 1, (480, 8)), *v))
    assert said == 0


def test_at_equal_promise_the_simple_event_is_chosen():
    """x[1] is a coin that the neighbours bias; every statistic that contains it tells as much."""
    rng = np.random.default_rng(1)
    x0, x1 = (
        np.column_stack([np.zeros(4000), rng.random(4000) < share, np.zeros(4000)]).astype(float)
        for share in (0.3, 0.7)
    )
    events, nested = choose(coarse_statistics(x0, x1, rng), x0, x1, delta=0.0, alpha=0.01)
    assert [event.statistic.says for event in events] == ["x[1]", "x[1]"]
    assert [str(event) for event in events] == ["x[1] ≤ 0", "x[1] ≥ 1"]
    assert nested is not None
    assert nested.statistic.says == "x[1]"
