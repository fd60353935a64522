"""The published sequential test as a peer, and the harness that runs it beside ours."""

import json
import math

import numpy as np
import pytest

from dpaudit_studies.evidence import sequential, sequential_mmd, sequential_price
from dpaudit_studies.evidence.catalogue import CASES, Case
from dpaudit_studies.evidence.sequential_mmd import (
    FOR_BANDWIDTH,
    NOTEBOOK,
    PAPER,
    UNIT,
    Variant,
    pairs_until,
)

NEVER = [1e-300]
SIDES = Case("sides", lambda rng, side, n: np.full((n, 2), float(side)), "∞", False)


def case(name):
    return next(c for c in CASES if c.name == name)


# The capitals of OneSidedTwoSampleSequentialTest in the authors' notebook (google-research,
# dp_sequential_test, commit cacca8e) after the same 100 pairs.
@pytest.mark.parametrize(
    ("epsilon", "delta", "columns", "log_capital"),
    [
        (0.1, 0.0, 1, 2.8529819935568566),
        (0.01, 1e-5, 3, 4.705818300131639),
        (0.5, 0.0, 2, -0.26610592218168144),
    ],
)
def test_capitals_are_those_of_the_authors_code(epsilon, delta, columns, log_capital):
    i = np.arange(120)[:, None] + np.arange(columns)
    x, y = np.sin(1.7 * i) + np.cos(0.3 * i * i), 2 + np.sin(2.3 * i)
    claim = {"epsilon": epsilon, "delta": delta}
    _, (ours, other) = pairs_until(x, y, **claim, alphas=NEVER, variants=[NOTEBOOK, PAPER])
    assert ours == pytest.approx(log_capital, abs=1e-10)
    assert other != pytest.approx(log_capital, abs=1e-3)


def coins(rng, pairs):
    """Randomised response with ε = 1 whose MMD is exactly τ: values far apart for bandwidth 1."""
    keep = 1 / (1 + math.exp(-1))
    x, y = (100.0 * (rng.random((FOR_BANDWIDTH + pairs, 1)) < p) for p in (keep, 1 - keep))
    x[:FOR_BANDWIDTH] = y[:FOR_BANDWIDTH] = 0.0
    return x, y


def rejections(epsilon, *, variant=UNIT, times=150, alpha=0.2):
    rng = np.random.default_rng(1)
    streams = (coins(rng, 300) for _ in range(times))
    claim = {"epsilon": epsilon, "delta": 0.0, "alphas": [alpha], "variants": [variant]}
    return sum(pairs_until(x, y, **claim)[0][0][0] is not None for x, y in streams)


def test_the_peer_keeps_its_level_where_mmd_is_the_threshold_and_has_power_below():
    assert rejections(1.0) <= 30 + 3.5 * math.sqrt(150 * 0.2 * 0.8)
    assert rejections(0.3) >= 140
    assert rejections(1.0, variant=Variant(factor=0.4, radius=1.0)) >= 140  # τ too small: not kept


def test_from_074_on_the_notebook_can_contradict_nothing():
    # the largest payoff: a ball of radius 1/2, and two releases that have nothing in common
    apart = math.sqrt(2) / 2
    assert NOTEBOOK.threshold(0.74, 0.0) > apart > NOTEBOOK.threshold(0.73, 0.0)
    assert UNIT.threshold(1.0, 0.0) == pytest.approx(math.sqrt(2) * math.tanh(0.5))
    x, y = np.zeros((1500, 1)), np.full((1500, 1), 100.0)
    y[:FOR_BANDWIDTH] = 0.0  # a bandwidth of 1
    until, capitals = pairs_until(x, y, epsilon=1.0, delta=0.0, alphas=[0.05, 0.01])
    assert until[1][0] < until[1][1] < until[0][0] < until[0][1]
    until, (capital,) = pairs_until(
        x, y, epsilon=1.0, delta=0.0, alphas=[0.05], variants=[NOTEBOOK]
    )
    assert until == [[None]]
    assert capital <= 0 < capitals[0]


def test_equal_releases_bet_nothing():
    x = np.ones((60, 2))
    until, capitals = pairs_until(x, x, epsilon=0.1, delta=0.0, alphas=[0.05])
    assert until == [[None], [None]]
    assert capitals == [0.0, 0.0]


def test_mmd_of_values_far_apart_and_of_the_same_law():
    rng = np.random.default_rng(1)
    x, y = rng.normal(0, 1e-3, (200, 1)), rng.normal(1, 1e-3, (200, 1))
    between, within = math.exp(-0.5), 1.0  # the median distance is 1
    assert sequential_mmd.mmd(x, y) == pytest.approx(math.sqrt(2 * (within - between)), rel=0.01)
    assert sequential_mmd.mmd(x, rng.normal(0, 1e-3, (200, 1))) < 0.1


def test_the_published_benchmark_is_two_means_with_the_noise_of_their_sizes():
    x, y = sequential_mmd.benchmark("Laplace", 0.1, np.random.default_rng(1), 40_000)
    assert np.abs(x).mean() == pytest.approx(20, rel=0.03)
    assert np.abs(y - 0.5).mean() == pytest.approx(10, rel=0.03)


def test_a_longer_stream_starts_the_same_and_each_release_is_of_its_neighbour():
    sides, rows = sequential.stream(case("laplace"), 5, 3000)
    for n in (1, 1024, 2999):
        shorter = sequential.stream(case("laplace"), 5, n)
        assert np.array_equal(shorter[0], sides[:n])
        assert np.array_equal(shorter[1], rows[:n])
    assert not np.array_equal(sequential.stream(case("laplace"), 6, 3000)[1], rows)
    assert abs(sides.sum() - 1500) < 3.5 * math.sqrt(750)
    sides, rows = sequential.stream(SIDES, 5, 3000)
    assert np.array_equal(rows, np.column_stack([sides, sides]))


def test_all_methods_see_the_same_streams(monkeypatch):
    seen, draw = {}, sequential.stream

    def recorded(of, seed, n):
        seen.setdefault((of.name, seed), []).append(draw(of, seed, n))
        return seen[of.name, seed][-1]

    monkeypatch.setattr(sequential, "stream", recorded)
    monkeypatch.setattr(sequential, "FOR_MMD", 100)
    sequential.published(case("keyed-counts"), [3, 4], 600)
    sequential.is_finding(case("keyed-counts"), 3, 250, 0.05)
    streams = seen["keyed-counts", 3]
    assert [len(sides) for sides, _ in streams] == [600, 200 + sequential.CHUNK, 250]
    for sides, rows in streams:
        assert np.array_equal(sides[:250], streams[0][0][:250])
        assert np.array_equal(rows[:250], streams[0][1][:250])


def test_a_blatant_leak_is_contradicted_and_a_sound_mechanism_is_not():
    broken = sequential.published(case("keyed-counts"), [1, 2], 1000)
    assert all(100 < n < 600 and n % 2 == 0 for n in broken["unit"]["0.05"])
    assert broken["mmd"] > broken["threshold"]
    sound = sequential.published(case("laplace"), [1, 2], 1000)
    assert sound["unit"] == sound["paper"] == {"0.05": [None] * 2, "0.01": [None] * 2}
    assert sound["mmd"] < sound["threshold"]


def test_the_fixed_audit_needs_the_least_size_where_half_the_streams_find(monkeypatch):
    tried = []

    def finding(_, seed, n, alpha):
        tried.append((n, alpha, seed))
        return n >= (1000 if alpha == 0.05 else 4000) + 3000 * (seed == 3)

    monkeypatch.setattr(sequential, "is_finding", finding)
    assert sequential.fixed(SIDES, [1, 2, 3], 0) == {"0.05": 1000, "0.01": 4000}
    assert (1000, 0.05, 3) not in tried  # two of three are enough
    monkeypatch.setattr(sequential, "is_finding", lambda *_: False)
    assert sequential.fixed(SIDES, [1], 0) == {"0.05": None, "0.01": None}


def test_quantiles_count_streams_that_never_end():
    assert sequential.quantile([None, 30, 10, 20], 0.5) == 20
    assert sequential.quantile([30, 10, 20, 40], 0.9) == 40
    assert sequential.both_quantiles([None, 1000]).split() == ["1,000", "never"]
    assert sequential.both_quantiles(None).split() == ["-", "-"]


def test_the_table_pools_the_catalogue_without_the_benchmarks():
    broken, sound = case("keyed-counts"), case("laplace")
    its = {"paper": {"0.05": [None, 500]}, "unit": {"0.05": [300, 320]}, "mmd": 0.9}
    row = {"ours": {"0.05": [40, 60]}, "fixed": {"0.05": 250}, "published": its | {"threshold": 1}}
    rows = {broken: row, sequential.BENCHMARKS[0]: row, sound: {"ours": {"0.05": [None, 7]}}}
    lines = list(sequential.table(rows, 0.05))
    line = "keyed-counts 40 60 500 never 300 320 250 0.900 1.000"
    assert line.split() in [line.split() for line in lines]
    assert "ours, the catalogue's broken: 2 of 2 streams contradicted; median, 90 %:" in lines[-4]
    assert lines[-3] == "ours, sound, at exactly the claim: 1 of 2 streams contradicted"


def test_kept_answers_are_not_measured_again(tmp_path, monkeypatch):
    monkeypatch.setitem(sequential.METHODS, "ours", lambda *_: {"0.05": [7]})
    path = tmp_path / "row.json"
    assert sequential.answer(SIDES, path, ["ours"], [1], 10) == {"ours": {"0.05": [7]}}
    monkeypatch.setitem(sequential.METHODS, "ours", lambda *_: pytest.fail("again"))
    monkeypatch.setitem(sequential.METHODS, "fixed", lambda *_: {"0.05": 250})
    both = {"ours": {"0.05": [7]}, "fixed": {"0.05": 250}}
    assert sequential.answer(SIDES, path, ["ours", "fixed"], [1], 10) == both
    assert json.loads(path.read_text(encoding="utf-8")) == both


def test_runs_at_the_claim_are_counted_once(tmp_path, monkeypatch):
    asked = []

    def contradicted(_method, _case, seed, _watched):
        asked.append(seed)
        return seed % 100 == 0

    monkeypatch.setattr(sequential_price, "is_contradicted", contradicted)
    path, kinds = tmp_path / "kept.json", {"seed": 1, "watched": 100}
    count = sequential_price.contradicted
    assert count("ours", SIDES, path, runs=2000, **kinds) == 20
    assert asked == list(range(1, 2001))
    asked.clear()
    assert count("ours", SIDES, path, runs=1500, **kinds) == 15
    assert asked == list(range(1001, 1501))
    assert count("ours", SIDES, path, runs=3000, **kinds) == 30


def test_the_price_is_the_median_ratio_where_the_fixed_audit_shows_something(
    monkeypatch, capsys, tmp_path
):
    fixed = {"laplace": 0.8, "blank": 0.0, "geometric": 0.5}
    bound = {"laplace": 0.76, "blank": 0.0, "geometric": 0.4}

    class Judged:
        def __init__(self, epsilon):
            self.epsilon = epsilon

    monkeypatch.setattr(sequential_price, "fixed_audit", lambda c, *_: Judged(fixed[c.name]))
    monkeypatch.setattr(sequential_price, "sequential_bound", lambda c, *_: bound[c.name])
    sequential_price.price([case(name) for name in fixed], tmp_path, streams=1, n=10, seed=1)
    lines = capsys.readouterr().out.splitlines()
    assert ["blank", "0", "0.00", "0.00", "-"] in [line.split() for line in lines]
    assert lines[-1] == "median ratio of 2 mechanisms: 0.88"
