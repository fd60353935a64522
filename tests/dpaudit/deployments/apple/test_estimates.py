"""Claimed against shown: Apple's printed records, good and bad generators, the shared α."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from dpaudit.deployments.apple.bits.estimates import Estimates, shown_epsilon, shown_epsilons
from dpaudit.deployments.apple.bits.shown import group_of
from dpaudit.deployments.apple.configuration.reading import read_configuration
from dpaudit.deployments.apple.configuration.resolving import resolve
from dpaudit.deployments.apple.model import Segment
from dpaudit.deployments.apple.reports.reading import read_reports
from dpaudit.errors import UsageError

DATA = Path(__file__).parents[3] / "data" / "apple"
PUZZLE = "SequenceFragmentPuzzle+CountMedianSketch"


def coin(epsilon):
    return 1 / (1 + math.exp(epsilon))


def vector(rng, m, q):
    bits = rng.random(m) < q
    bits[rng.integers(m)] ^= True
    return np.packbits(bits, bitorder="little").tobytes().hex().upper()


def sketches(rng, n, *, q, m=256, epsilon=2, key="words"):
    records = tuple(f"{rng.integers(8)},{vector(rng, m, q)}" for _ in range(n))
    return Segment(key, "CountMedianSketch", {"epsilon": epsilon, "k": 8, "m": m}, records)


def puzzles(rng, n, *, q, m=1024):
    parameters = {"epsilon": 4, "sequenceK": 8, "fragmentK": 8, "sequenceM": m, "fragmentM": m}
    records = tuple(f"{rng.integers(8)},{vector(rng, m, q)}:{vector(rng, m, q)}" for _ in range(n))
    return Segment("com.apple.keyboard.NewWords.en_US", PUZZLE, parameters, records)


def bits(rng, n, *, q, key="emoji", epsilon=1):
    signs = np.where(rng.random(n) < q, "+1", "-1")
    records = tuple(f"{rng.integers(5000)},{sign}" for sign in signs)
    return Segment(key, "OneBitHistogram", {"epsilon": epsilon, "p": 5000}, records)


def test_apples_printed_emoji_vectors_show_twice_their_claim():
    segments = [s for report in read_reports(DATA / "reports") for s in report.segments]
    (shown,) = [
        s
        for s in shown_epsilons(segments)
        if s.key == "com.apple.keyboard.Emoji.ru_RU.EmojiKeyboard"
    ]
    assert (shown.records, shown.used) == (10, 5)  # the text has lost a digit of each of the others
    assert shown.claimed == 2
    assert 3 < shown.record.low < 4 < shown.record.high < 5
    assert shown.verdict == "shows more"
    assert [f.serious for f in shown.findings][-1]
    assert all(c.p > 0.05 for c in shown.checks)


def test_the_configuration_is_claimed_too():
    segments = [s for report in read_reports(DATA / "reports") for s in report.segments]
    configuration = read_configuration(DATA / "ios-11")
    shown = {s.key: s for s in shown_epsilons(segments, resolved=resolve(configuration))}
    emoji = shown["com.apple.keyboard.Emoji.ru_RU.EmojiKeyboard"]
    assert {(c.by, c.epsilon) for c in emoji.claims} == {("configuration", 2.0), ("report", 2.0)}


def test_a_new_word_has_two_sketches():
    segment = puzzles(np.random.default_rng(1), 20, q=coin(2))
    shown = shown_epsilon(segment.key, [segment], configured=2.0)
    assert shown.sketch.low < 4 < shown.sketch.high
    assert shown.record.low < 8 < shown.record.high
    assert shown.record.low > 4  # more than either claim: 2 by the configuration, 4 by the report
    (finding,) = shown.findings
    assert "claimed: 2 by the configuration, 4 by the report (by the code: 8)" in finding.message


def test_an_honest_sketch_agrees_and_one_with_too_much_noise_shows_less():
    rng = np.random.default_rng(2)
    agrees = shown_epsilon("words", [sketches(rng, 30, q=coin(1))])
    assert (agrees.verdict, agrees.findings) == ("agrees", ())
    less = shown_epsilon("words", [sketches(rng, 30, q=coin(0.4))])
    assert less.verdict == "shows less"
    assert less.findings == ()


def test_broken_vectors_have_no_verdict_and_a_serious_finding():
    segment = sketches(np.random.default_rng(3), 20, q=coin(1))
    twice = Segment(
        segment.key, segment.algorithm, segment.parameters, segment.records + segment.records[:1]
    )
    shown = shown_epsilon("words", [twice])
    assert shown.verdict == "not identified"
    assert "copies" in shown.reason
    assert [f.serious for f in shown.findings] == [True]
    zeros = Segment(segment.key, segment.algorithm, segment.parameters, ("0," + "0" * 64,) * 8)
    assert "no bias explains so few" in shown_epsilon("words", [zeros]).reason


@pytest.mark.parametrize(("epsilon", "verdict"), [(1, "agrees"), (4, "shows more")])
def test_one_bit_histograms(epsilon, verdict):
    segment = bits(np.random.default_rng(4), 300, q=coin(epsilon))
    assert shown_epsilon("emoji", [segment], configured=1.0, alpha=1e-3).verdict == verdict


def test_single_hadamard_signs_identify_nothing():
    records = tuple(f"{j},{j},+1" for j in range(50))
    segment = Segment(
        "domains", "HadamardCountMedianSketch", {"epsilon": 1, "k": 64, "m": 64}, records
    )
    shown = shown_epsilon("domains", [segment])
    assert (shown.verdict, shown.record) == ("not identified", None)
    assert "no two records" in shown.reason
    again = Segment("domains", segment.algorithm, segment.parameters, ("3,5,+1",) * 200)
    assert shown_epsilon("domains", [again]).verdict == "shows more"  # never turned over


def test_family_wise_error_over_many_keys():
    """Some honest key of 6 contradicts its claim in at most 5 % of audits."""
    rng = np.random.default_rng(5)
    wrong = 0
    for _ in range(8):
        segments = [sketches(rng, 4, q=coin(1), m=64, key=f"key {k}") for k in range(6)]
        wrong += any(s.verdict != "agrees" or s.findings for s in shown_epsilons(segments))
    assert wrong <= 3  # 0.4 at the most expected, P(more) < 4e-4; that α is shared: see below


def test_alpha_is_shared():
    rng = np.random.default_rng(6)
    segment = sketches(rng, 10, q=coin(1))
    alone = shown_epsilons([segment])[0].record
    among = shown_epsilons([segment, *(sketches(rng, 1, q=coin(1), key=str(k)) for k in range(9))])[
        0
    ].record
    assert alone.confidence == pytest.approx(0.95)
    assert among.confidence == pytest.approx(0.995)
    assert among.low < alone.low < alone.high < among.high


def test_other_parameters_are_another_group():
    rng = np.random.default_rng(7)
    two = [sketches(rng, 3, q=coin(1), epsilon=2), sketches(rng, 3, q=coin(1), epsilon=1)]
    estimates = Estimates()
    for segment in two:
        estimates.add(segment)
    assert list(estimates.shown()) == [group_of(s) for s in two]
    with pytest.raises(UsageError, match="2 kinds of records"):
        shown_epsilon("words", two)
    with pytest.raises(UsageError, match="alpha=1"):
        estimates.shown(alpha=1)


def test_the_same_reports_show_the_same():
    records = tuple(f"0,{j % 4},{'+1' if j % 3 else '-1'}" for j in range(60))
    segment = Segment(
        "domains", "HadamardCountMedianSketch", {"epsilon": 1, "k": 64, "m": 64}, records
    )
    assert shown_epsilon("domains", [segment]) == shown_epsilon("domains", [segment])


@pytest.mark.parametrize("epsilon", [True, "1", -1, 0, 1e301, None])
def test_a_claim_that_is_none(epsilon):
    parameters = {"p": 5000} | ({} if epsilon is None else {"epsilon": epsilon})
    shown = shown_epsilon(
        "emoji", [Segment("emoji", "OneBitHistogram", parameters, ("1,-1",) * 50)]
    )
    assert shown.claims == ()
    assert shown.verdict == "not identified"


def test_what_the_code_s_own_coin_explains():
    rng = np.random.default_rng(4)
    honest = shown_epsilon("words", [sketches(rng, 60, q=coin(2))], configured=2.0)
    assert honest.coin == 4
    assert honest.findings[-1].message.endswith(" (by the code: 4)")
    worse = shown_epsilon("words", [sketches(rng, 60, q=coin(3))], configured=2.0)
    assert worse.findings[-1].message.endswith(" (by the code: only 4)")
    assert shown_epsilon("emoji", [bits(rng, 300, q=coin(1))], configured=1.0).coin == 1


def test_broken_bits_have_no_epsilon():
    vectors = [f"1,{vector(np.random.default_rng(5), 256, 0.1)}"] * 3  # each time the same
    shown = shown_epsilon(
        "k", [Segment("k", "CountMedianSketch", {"k": 9, "m": 256}, tuple(vectors))], configured=1.0
    )
    assert (shown.verdict, shown.record, shown.sketch) == ("not identified", None, None)


@pytest.mark.parametrize("alpha", [0, 0.5, 0.9, 1, math.nan])
def test_an_alpha_that_is_none(alpha):
    with pytest.raises(UsageError, match=r"between 0 and 0\.5"):
        shown_epsilon("k", [Segment("k", "HadamardCountMedianSketch", {}, ())], alpha=alpha)
