"""What bits show: exact tails, coverage, checks of the bits, claimed against shown."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import scipy

from dpaudit.errors import UsageError
from dpaudit.randomness import KeyedStream
from dpaudit.types import Interval
from dpaudit_local.apple.bits.estimates import ALPHA, Estimates, group_of, shown_epsilons
from dpaudit_local.apple.bits.signs import HistogramSigns, histogram_flip, predictable_flip
from dpaudit_local.apple.bits.sketches import (
    SketchVectors,
    at_least,
    at_most,
    check_spread,
    coin_interval,
    epsilon_of_flip,
    runs_two_sided,
)
from dpaudit_local.apple.configuration import read_configuration, resolve
from dpaudit_local.apple.model import Segment
from dpaudit_local.apple.reports import read_reports


def law(first, second):
    """The law of the sum of two binomials by plain convolution."""

    def one(n, p):
        return np.array([math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)])

    return np.convolve(one(*first), one(*second))


@pytest.mark.parametrize(
    ("first", "second"), [((12, 0.1), (3, 0.9)), ((5, 0.5), (0, 0.3)), ((9, 0.97), (4, 0.03))]
)
def test_tails_of_two_binomials(first, second):
    exact = law(first, second)
    for k in range(-1, len(exact) + 2):
        assert at_least(k, first, second) == pytest.approx(exact[max(k, 0) :].sum(), abs=1e-12)
        assert at_most(k, first, second) == pytest.approx(exact[: max(k + 1, 0)].sum(), abs=1e-12)


def test_large_counts_against_the_normal_law():
    n, p = 10**6, 0.12
    mean, deviation = n * p + 1000 * 0.88, math.sqrt(n * p * (1 - p) + 1000 * 0.88 * 0.12)
    tail = at_least(round(mean + 3 * deviation), (n, p), (1000, 0.88))
    assert tail == pytest.approx(0.00135, rel=0.03)


def runs_by_counting(circles):
    """How often each total number of runs comes up among all arrangements."""
    laws = []
    for size, ones in circles:
        counts = np.zeros(size + 1)
        for where in itertools.combinations(range(size), ones):
            bits = np.isin(np.arange(size), where)
            counts[int((bits & ~np.roll(bits, 1)).sum())] += 1
        laws.append(counts / counts.sum())
    total = laws[0]
    for more in laws[1:]:
        total = np.convolve(total, more)
    return total


@pytest.mark.parametrize(
    "circles", [[(7, 3)], [(8, 4), (8, 4), (6, 2)], [(5, 0), (5, 5), (6, 3)], [(9, 8)]]
)
def test_runs_around_circles(circles):
    exact = runs_by_counting(circles)
    for k in np.flatnonzero(exact):
        expected = min(1.0, 2 * min(exact[: k + 1].sum(), exact[k:].sum()))
        assert runs_two_sided(int(k), circles) == pytest.approx(expected, abs=1e-12)


def test_which_way_round_a_vector_lies_says_nothing_of_its_object():
    """The theorem behind ``check_neighbours``: runs have the law of ones placed at random."""
    m, q = 6, 0.23
    for place in (0, 4):
        seen: dict[tuple[int, int], float] = {}
        for bits in itertools.product((0, 1), repeat=m):
            x = np.array(bits, dtype=bool)
            p = math.prod(
                (1 - q if b else q) if i == place else (q if b else 1 - q)
                for i, b in enumerate(bits)
            )
            key = int(x.sum()), int((x & ~np.roll(x, 1)).sum())
            seen[key] = seen.get(key, 0.0) + p
        for ones in range(1, m):
            mass = sum(p for (n, _), p in seen.items() if n == ones)
            random = runs_by_counting([(m, ones)])
            for runs in range(1, m):
                assert seen.get((ones, runs), 0.0) / mass == pytest.approx(random[runs], abs=1e-12)


Q2 = 1 / (1 + math.e**2)  # 0.1192: Figure 20's coin


@pytest.mark.parametrize(
    ("q", "vectors", "m", "place"),
    [
        (Q2, 6, 64, None),
        (0.9, 5, 64, 0),
        pytest.param(Q2, 40, 32, 5, marks=pytest.mark.slow),
        pytest.param(0.45, 3, 64, None, marks=pytest.mark.slow),
    ],
)
def test_coverage_whatever_was_sketched(q, vectors, m, place):
    rng = np.random.default_rng([1, vectors, m])
    missed = 0
    for _ in range(120):
        bits = rng.random((vectors, m)) < q
        bits[np.arange(vectors), rng.integers(m, size=vectors) if place is None else place] ^= True
        interval = coin_interval(int(bits.sum()), vectors, m, confidence=0.9)
        missed += not interval.low <= q <= interval.high
    assert missed <= 25  # 12 at the most expected, P(more) < 2e-4


@pytest.mark.parametrize(
    ("ones", "vectors", "m"),
    [(9, 2, 16), (2, 2, 16), (0, 1, 16), (16, 1, 16), (30, 2, 16), (20, 4, 8)],
)
def test_no_bias_outside_the_interval_is_compatible(ones, vectors, m):
    """The tails of a fine grid of biases, by plain convolution."""
    interval = coin_interval(ones, vectors, m, confidence=0.9)
    compatible = [
        q for q in np.linspace(0, 1, 801) if min(tails(ones, vectors, m, float(q))) > 0.05
    ]
    assert interval.low <= min(compatible, default=1)
    assert max(compatible, default=0) <= interval.high
    if interval.low > 1 / m and interval.high < 1 - 1 / m:
        assert min(compatible) - interval.low < 0.002
        assert interval.high - max(compatible) < 0.002


def test_vectors_that_no_coin_makes():
    assert coin_interval(0, 10, 256, confidence=0.99) is None
    assert coin_interval(2560, 10, 256, confidence=0.99) is None
    # a one each: the object itself, without any noise
    assert coin_interval(10, 10, 256, confidence=0.99).low == 0
    assert epsilon_of_flip(coin_interval(10, 10, 256, confidence=0.99), differing=2).low > 10


def tails(ones, vectors, m, q):
    both = law((vectors * (m - 1), q), (vectors, 1 - q))
    return both[: ones + 1].sum(), both[ones:].sum()


@pytest.mark.parametrize("q", [0.1, Q2, 0.4])
def test_epsilon_of_a_sketch_is_its_largest_likelihood_ratio(q):
    m = 5

    def log_likelihood(bits, place):
        return sum(
            math.log((1 - q if b else q) if i == place else (q if b else 1 - q))
            for i, b in enumerate(bits)
        )

    worst = max(
        log_likelihood(bits, i) - log_likelihood(bits, j)
        for bits in itertools.product((0, 1), repeat=m)
        for i in range(m)
        for j in range(m)
    )
    exact = epsilon_of_flip(Interval(low=q, high=q, confidence=0.95, method=""), differing=2)
    assert exact.low == exact.high == pytest.approx(worst)


def test_an_interval_around_one_half_shows_nothing_from_below():
    e = epsilon_of_flip(Interval(low=0.4, high=0.7, confidence=0.95, method=""), differing=2)
    assert e.low == 0
    assert e.high == pytest.approx(2 * math.log(7 / 3))


@pytest.mark.parametrize("bad", [(1, 0, 16), (1, 1, 2), (-1, 1, 16), (17, 1, 16)])
def test_counts_that_do_not_fit(bad):
    with pytest.raises(UsageError, match="ones="):
        coin_interval(*bad, confidence=0.95)


def honest(rng, vectors, m, place=None, q=Q2):
    bits = rng.random((vectors, m)) < q
    bits[np.arange(vectors), rng.integers(m, size=vectors) if place is None else place] ^= True
    return bits


def estimated(bits, check_alpha=0.01):
    collected = SketchVectors(bits.shape[1])
    collected.add(np.packbits(bits, axis=1, bitorder="little"))
    return collected.estimate(interval_alpha=0.05, check_alpha=check_alpha)


def p_values(bits):
    return {c.name: c.p for c in estimated(bits).checks}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("vectors", "m", "place"), [(60, 256, 7), (20, 64, 63), (12, 256, None), (3, 4096, 0)]
)
def test_level_whatever_was_sketched(vectors, m, place):
    rng = np.random.default_rng([2, vectors, m])
    found: dict[str, int] = {}
    for _ in range(60):  # positions without their Bonferroni correction: a quarter at (60, 256, 7)
        for name, p in p_values(honest(rng, vectors, m, place)).items():
            found[name] = found.get(name, 0) + (p <= 0.05)
    assert max(found.values()) <= 10  # 3 at the most expected, P(more) < 3e-4 each


def stuck(rng):
    bits = honest(rng, 50, 256)
    bits[:, 3::8] = False
    return bits


def favoured(rng):
    bits = honest(rng, 50, 256)
    bits[:, 3::8] |= rng.random((50, 32)) < 0.1
    return bits


def uneven(rng):
    return np.vstack([honest(rng, 1, 256, q=q) for q in rng.uniform(0.05, 0.19, 50)])


def bytes_twice(rng):
    in_bytes = honest(rng, 50, 256).reshape(50, 32, 8)
    in_bytes[:, 1::2] = in_bytes[:, ::2]
    return in_bytes.reshape(50, 256)


def sticky(rng):
    bits = honest(rng, 10, 256)
    for i in range(255):
        bits[:, i + 1] = np.where(rng.random(10) < 0.3, bits[:, i], bits[:, i + 1])
    return bits


def repeated(rng):
    bits = honest(rng, 10, 256)
    bits[4] = bits[9]
    return bits


@pytest.mark.parametrize(
    ("broken", "by"),
    [
        (stuck, "positions"),
        (favoured, "positions"),
        (uneven, "spread"),
        (bytes_twice, "neighbours"),
        (sticky, "neighbours"),
        (repeated, "copies"),
    ],
)
def test_broken_generators_are_found(broken, by):
    bits = broken(np.random.default_rng(3))
    assert p_values(bits)[by] < 0.002
    assert p_values(honest(np.random.default_rng(3), *bits.shape))[by] > 0.002


def test_segments_add_up():
    rng = np.random.default_rng(4)
    bits = honest(rng, 30, 256)
    packed = np.packbits(bits, axis=1, bitorder="little")
    collected = SketchVectors(256)
    for part in np.array_split(packed, 7):
        collected.add(part)
    assert collected.estimate(interval_alpha=0.05, check_alpha=0.01) == estimated(bits)


def test_nothing_shows_nothing():
    assert SketchVectors(256).estimate(interval_alpha=0.05, check_alpha=0.01) is None


def test_the_p_value_of_the_spread_is_two_sided():
    ones = np.array([70, 75, 77, 80, 81, 83, 85, 90])
    check = check_spread(ones, 256, Interval(low=0.3, high=0.3, confidence=1.0, method=""))
    ratio = ((ones - ones.mean()) ** 2).sum() / (256 * 0.3 * 0.7)
    assert check is not None
    assert check.p == pytest.approx(
        2 * min(scipy.special.chdtr(7, ratio), scipy.special.chdtrc(7, ratio))
    )


Q1 = 1 / (1 + math.e)
STREAM = KeyedStream.from_seed("test signs")


def signs_of(rng, truth, q):
    return np.where(rng.random(len(truth)) < q, -truth, truth).astype(np.int8)


def same(rng, n):
    return np.ones(n, dtype=np.int8)


def mixed(rng, n):
    return rng.choice(np.array([-1, 1], dtype=np.int8), n)


def in_turns(rng, n):
    return np.where(np.arange(n) % 2, 1, -1).astype(np.int8)


@pytest.mark.parametrize("objects", [same, mixed, in_turns])
@pytest.mark.parametrize(("n", "places"), [(40, 6), (300, 1)])
def test_the_bound_holds_whatever_the_objects(objects, n, places):
    rng = np.random.default_rng([5, n])
    missed = 0
    for t in range(200):
        place = rng.integers(places, size=n)
        sign = signs_of(rng, objects(rng, n), Q1)
        bound, predictions = predictable_flip(
            place, place, sign, confidence=0.9, stream=STREAM.child(t)
        )
        assert predictions == n - len(set(place.tolist()))
        missed += bound.high < Q1
    assert missed <= 36  # 20 at the most expected, P(more) < 2e-4


def test_the_order_of_the_file_does_not_matter():
    """Sorted by sign, an even majority is seldom wrong: in that order fair coins look biased."""
    rng = np.random.default_rng(10)
    missed = 0
    for t in range(100):
        place = np.repeat(np.arange(80), 6)
        sign = np.sort(signs_of(rng, mixed(rng, 480), 0.45).reshape(80, 6), axis=1).ravel()
        bound, _ = predictable_flip(place, place, sign, confidence=0.9, stream=STREAM.child(t))
        missed += bound.high < 0.45
    assert missed <= 22  # 10 at the most expected, P(more) < 2e-4


def test_a_coin_that_flips_too_seldom_is_caught():
    rng = np.random.default_rng(6)
    caught = honest = 0
    for t in range(40):
        place = rng.integers(8, size=200)
        for q in (0.05, Q1):
            sign = signs_of(rng, np.where(place % 2, 1, -1), q)
            bound, _ = predictable_flip(
                place, place * 0, sign, confidence=0.99, stream=STREAM.child(t)
            )
            caught += q == 0.05 and bound.high < Q1
            honest += q == Q1 and bound.high < Q1
    assert caught == 40
    assert honest <= 3


@pytest.mark.parametrize("place", [([0, 1, 2, 3], [0, 1, 2, 3]), ([0, 0, 1, 1], [0, 1, 0, 1])])
def test_places_that_occur_once_identify_nothing(place):
    """A function and a coordinate make a place together."""
    signs = np.ones(4, dtype=np.int8)
    function, coordinate = map(np.array, place)
    assert predictable_flip(function, coordinate, signs, confidence=0.95, stream=STREAM) is None


def test_signs_that_are_none():
    with pytest.raises(UsageError, match="−1 or"):
        predictable_flip(np.zeros(2), np.zeros(2), np.array([1, 0]), confidence=0.95, stream=STREAM)


@pytest.mark.parametrize("records", [30, 1000])
@pytest.mark.parametrize("favourite", [False, True])
def test_histogram_coverage(records, favourite):
    rng = np.random.default_rng([7, records, favourite])
    p, missed, missed_above = 6, 0, 0
    for _ in range(200):
        objects = np.full(records, 3) if favourite else rng.integers(p, size=records)
        positions = rng.integers(p, size=records)
        sign = signs_of(rng, np.where(positions == objects, 1, -1), Q1)
        ones = int((sign > 0).sum())
        both = histogram_flip(ones, records, positions=p, confidence=0.9)
        missed += not both.low <= Q1 <= both.high
        # positions chosen against us: each the object's own
        at_object = signs_of(rng, np.ones(records), Q1)
        above = int((at_object > 0).sum())
        missed_above += histogram_flip(above, records, positions=None, confidence=0.9).high < Q1
    assert missed <= 36
    assert missed_above <= 36


def histogram(rng, n, q, p=5000):
    collected = HistogramSigns()
    collected.add(rng.integers(p, size=n).astype(np.uint32), signs_of(rng, -np.ones(n), q))
    return collected


@pytest.mark.parametrize("case", ["beyond", "crowded", "unknown", "half"])
def test_no_lower_end_without_its_assumptions(case):
    rng = np.random.default_rng(9)
    collected = histogram(
        rng, 100, 0.5 if case == "half" else 0.2, p=100 if case == "crowded" else 5000
    )
    if case == "beyond":
        collected.add(np.array([49477827], dtype=np.uint32), np.array([1], dtype=np.int8))
    flip, reason = collected.estimate(positions=None if case == "unknown" else 5000, alpha=0.05)
    assert flip.low == 0
    assert "lower bound for ε only" in reason


DATA = Path(__file__).parents[2] / "data" / "apple"
RUSSIAN = "com.apple.keyboard.Emoji.ru_RU.EmojiKeyboard"
PUZZLE = "SequenceFragmentPuzzle+CountMedianSketch"


def coin(epsilon):
    return 1 / (1 + math.exp(epsilon))


def vector_text(rng, m, q):
    one_bit_reports = rng.random(m) < q
    one_bit_reports[rng.integers(m)] ^= True
    return np.packbits(one_bit_reports, bitorder="little").tobytes().hex().upper()


def sketch_reports(rng, n, *, q, m=256, epsilon=2, key="words"):
    records = tuple(f"{rng.integers(8)},{vector_text(rng, m, q)}" for _ in range(n))
    return Segment(key, "CountMedianSketch", {"epsilon": epsilon, "k": 8, "m": m}, records)


def puzzle_reports(rng, n, *, q, m=1024):
    parameters = {"epsilon": 4, "sequenceK": 8, "fragmentK": 8, "sequenceM": m, "fragmentM": m}
    records = tuple(
        f"{rng.integers(8)},{vector_text(rng, m, q)}:{vector_text(rng, m, q)}" for _ in range(n)
    )
    return Segment("com.apple.keyboard.NewWords.en_US", PUZZLE, parameters, records)


def one_bit_reports(rng, n, *, q, key="emoji", epsilon=1):
    signs = np.where(rng.random(n) < q, "+1", "-1")
    records = tuple(f"{rng.integers(5000)},{sign}" for sign in signs)
    return Segment(key, "OneBitHistogram", {"epsilon": epsilon, "p": 5000}, records)


def shown_one(key, segments, *, configured=None, alpha=ALPHA):
    """What the one kind of records shows, at this PrivacyParameter in use."""
    resolved = SimpleNamespace(key=SimpleNamespace(name=key), epsilon=configured)
    (shown,) = shown_epsilons(segments, resolved=[resolved] if configured else (), alpha=alpha)
    return shown


def test_apples_printed_emoji_vectors_show_twice_their_claim():
    segments = [s for report in read_reports(DATA / "reports") for s in report.segments]
    resolved = resolve(read_configuration(DATA / "ios-11"))
    shown = {s.key: s for s in shown_epsilons(segments, resolved=resolved)}[RUSSIAN]
    assert {(c.by, c.epsilon) for c in shown.claims} == {("configuration", 2), ("report", 2)}
    (shown,) = [s for s in shown_epsilons(segments) if s.key == RUSSIAN]
    assert (shown.records, shown.used) == (10, 5)  # the text has lost a digit of each of the others
    assert shown.claimed == 2
    assert 3 < shown.record.low < 4 < shown.record.high < 5
    assert shown.verdict == "shows more"
    assert [f.serious for f in shown.findings][-1]
    assert all(c.p > 0.05 for c in shown.checks)


def test_a_new_word_has_two_sketches():
    segment = puzzle_reports(np.random.default_rng(1), 20, q=coin(2))
    shown = shown_one(segment.key, [segment], configured=2.0)
    assert shown.sketch.low < 4 < shown.sketch.high
    assert shown.record.low < 8 < shown.record.high
    assert shown.record.low > 4  # more than either claim: 2 by the configuration, 4 by the report
    (finding,) = shown.findings
    assert "claimed: 2 by the configuration, 4 by the report (by the code: 8)" in finding.message


def test_an_honest_sketch_agrees_and_one_with_too_much_noise_shows_less():
    rng = np.random.default_rng(2)
    agrees = shown_one("words", [sketch_reports(rng, 30, q=coin(1))])
    assert (agrees.verdict, agrees.findings) == ("agrees", ())
    less = shown_one("words", [sketch_reports(rng, 30, q=coin(0.4))])
    assert less.verdict == "shows less"
    assert less.findings == ()


def test_broken_vectors_have_no_verdict_and_a_serious_finding():
    segment = sketch_reports(np.random.default_rng(3), 20, q=coin(1))
    twice = replace(segment, records=segment.records + segment.records[:1])
    shown = shown_one("words", [twice])
    assert (shown.verdict, shown.record, shown.sketch) == ("not identified", None, None)
    assert "copies" in shown.reason
    assert [f.serious for f in shown.findings] == [True]
    zeros = replace(segment, records=("0," + "0" * 64,) * 8)
    assert "no bias explains so few" in shown_one("words", [zeros]).reason


@pytest.mark.parametrize(("epsilon", "verdict"), [(1, "agrees"), (4, "shows more")])
def test_one_bit_histograms(epsilon, verdict):
    segment = one_bit_reports(np.random.default_rng(4), 300, q=coin(epsilon))
    assert shown_one("emoji", [segment], configured=1.0, alpha=1e-3).verdict == verdict


def test_single_hadamard_signs_identify_nothing():
    records = tuple(f"{j},{j},+1" for j in range(50))
    parameters = {"epsilon": 1, "k": 64, "m": 64}
    segment = Segment("domains", "HadamardCountMedianSketch", parameters, records)
    shown = shown_one("domains", [segment])
    assert (shown.verdict, shown.record) == ("not identified", None)
    assert "no two records" in shown.reason
    again = replace(segment, records=("3,5,+1",) * 200)
    assert shown_one("domains", [again]).verdict == "shows more"  # never turned over


@pytest.mark.slow
def test_family_wise_error_over_many_keys():
    """Some honest key of 6 contradicts its claim in at most 5 % of audits."""
    rng = np.random.default_rng(5)
    wrong = 0
    for _ in range(8):
        segments = [sketch_reports(rng, 4, q=coin(1), m=64, key=f"key {k}") for k in range(6)]
        wrong += any(s.verdict != "agrees" or s.findings for s in shown_epsilons(segments))
    assert wrong <= 3  # 0.4 at the most expected, P(more) < 4e-4; that α is shared: see below


def test_alpha_is_shared():
    rng = np.random.default_rng(6)
    segment = sketch_reports(rng, 10, q=coin(1))
    others = [sketch_reports(rng, 1, q=coin(1), key=str(k)) for k in range(9)]
    alone, among = (shown_epsilons(s)[0].record for s in ([segment], [segment, *others]))
    assert alone.confidence == pytest.approx(0.95)
    assert among.confidence == pytest.approx(0.995)
    assert among.low < alone.low < alone.high < among.high


def test_other_parameters_are_another_group():
    rng = np.random.default_rng(7)
    two = [
        sketch_reports(rng, 3, q=coin(1), epsilon=2),
        sketch_reports(rng, 3, q=coin(1), epsilon=1),
    ]
    estimates = Estimates()
    for segment in two:
        estimates.add(segment)
    assert list(estimates.epsilons()) == [group_of(s) for s in two]
    with pytest.raises(UsageError, match="alpha=1"):
        estimates.epsilons(alpha=1)


@pytest.mark.parametrize("epsilon", [True, "1", -1, 0, 1e301, None])
def test_a_claim_that_is_none(epsilon):
    parameters = {"p": 5000} | ({} if epsilon is None else {"epsilon": epsilon})
    segment = Segment("emoji", "OneBitHistogram", parameters, ("1,-1",) * 50)
    shown = shown_one("emoji", [segment])
    assert shown.claims == ()
    assert shown.verdict == "not identified"


def test_what_the_code_s_own_coin_explains():
    rng = np.random.default_rng(4)
    honest = shown_one("words", [sketch_reports(rng, 60, q=coin(2))], configured=2.0)
    assert honest.coin == 4
    assert honest.findings[-1].message.endswith(" (by the code: 4)")
    worse = shown_one("words", [sketch_reports(rng, 60, q=coin(3))], configured=2.0)
    assert worse.findings[-1].message.endswith(" (by the code: only 4)")
    assert shown_one("emoji", [one_bit_reports(rng, 300, q=coin(1))], configured=1.0).coin == 1


@pytest.mark.parametrize("alpha", [0, 0.5, 0.9, 1, math.nan])
def test_an_alpha_that_is_none(alpha):
    with pytest.raises(UsageError, match=r"between 0 and 0\.5"):
        shown_one("k", [Segment("k", "HadamardCountMedianSketch", {}, ())], alpha=alpha)
