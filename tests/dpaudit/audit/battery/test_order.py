"""Balance between calls, periods, ranks and relations between a few signs."""

import numpy as np
import pytest
import scipy

from dpaudit.audit.battery.order.loops import fold
from dpaudit.audit.battery.order.order import Order
from dpaudit.audit.battery.order.periods import Periods
from dpaudit.audit.battery.order.signs import FarLags
from dpaudit.audit.battery.parts import fair_coins
from dpaudit.audit.battery.triggers import Triggers
from dpaudit.audit.block import SampleBlock
from dpaudit.claims import Claim
from dpaudit.randomness import KeyedStream

NORMAL = Claim.parse("gaussian:sigma=1")


def evidence_of(make, answers):
    """Evidence of a test that sees these answers, (values (n, d), number of calls) each."""
    test, call = make(NORMAL, KeyedStream.from_seed("order")), 0
    for x, calls in answers:
        block = SampleBlock(call, x, claim=NORMAL, spread=np.random.default_rng(7), calls=calls)
        test.update(block)
        call += calls
    return test.evidence(alpha=1e-4)


def has_its_level(p):
    """Whether p-values are no smaller than uniform ones, as far as chance lets us see."""
    return all(
        scipy.special.bdtrc(sum(x <= level for x in p) - 1, len(p), level) > 1e-4
        for level in (0.02, 0.1, 0.3)
    )


def balanced(kind, x):
    if kind == "centred":
        return x - x.mean()
    if kind == "of mean square 1":
        return x / np.sqrt((x * x).mean())
    half = x.ravel()[: x.size // 2]
    return np.concatenate([half, -np.random.default_rng(9).permutation(half)]).reshape(x.shape)


@pytest.mark.parametrize("kind", ["centred", "of mean square 1", "mirrored"])
def test_calls_that_are_too_balanced_are_found(kind):
    z = np.random.default_rng(53).standard_normal((20, 100, 64))
    evidence = evidence_of(Triggers, [(balanced(kind, x), 1) for x in z])
    assert evidence.parts["between calls"] < 1e-6
    assert "20 long calls vary" in evidence.effect


@pytest.mark.slow
def test_the_variation_between_calls_has_its_level():
    rng = np.random.default_rng(54)
    p = []
    for _ in range(100):
        long = [(rng.standard_normal((5, 64)), 1) for _ in range(6)]
        answers = [(rng.standard_normal((300, 8)), 300), *long]
        p.append(evidence_of(Triggers, answers).parts["between calls"])
    assert has_its_level(p)


def series(flaw, *, values=1 << 19, seed=60):
    """One flawed series of values, cut into answers of 2^16 after a few of odd sizes."""
    z = flaw(np.random.default_rng(seed), np.random.default_rng(seed + 1).standard_normal(values))
    cuts = [777, 1554, *range(1554 + (1 << 16), values, 1 << 16)]
    return [(part.reshape(-1, 1), 1) for part in np.split(z, cuts)]


def every_997th(rng, z):
    z[5::997] *= 1.8
    return z


def wave_of_1013(rng, z):
    phase = 2 * np.pi * np.arange(len(z)) / 1013
    for harmonic in range(1, 9):
        z += 0.014 * np.cos(harmonic * phase + rng.uniform(0, 6))
    return z


def breathing(rng, z):
    return z * (1 + 0.03 * np.cos(2 * np.pi * np.arange(len(z)) / 77_777))


def largest_third(rng, z):
    groups = z.reshape(-1, 8)
    hit = np.flatnonzero(rng.random(len(groups)) < 0.03)
    places = groups[hit].argmax(1)
    groups[hit, 2], groups[hit, places] = groups[hit, places], groups[hit, 2]
    return z


def sorted_sometimes(rng, z):
    z = z[: len(z) // 3 * 3].reshape(-1, 3)
    hit = rng.random(len(z)) < 0.02
    z[hit] = np.sort(z[hit], axis=1)[:, ::-1]
    return z.ravel()


def with_signs(*lags, bias):
    """Each sign is the product of those ``lags`` before, with probability ½ + bias/2."""

    def flaw(rng, z):
        sign = np.where(z > 0, 1, -1)
        follows = rng.random(len(z)) < bias
        for t in range(max(lags), len(z)):
            if follows[t]:
                sign[t] = np.prod([sign[t - lag] for lag in lags])
        return np.abs(z) * sign

    return flaw


FLAWS = {
    "every 997th": (every_997th, "periods in draw order", "modulo 997 in draw order"),
    "a wave": (wave_of_1013, "harmonics of values in draw order", "a period of 1,013"),
    "a breathing scale": (breathing, "harmonics of squares in draw order", "squares in draw order"),
    "largest third": (largest_third, "largest of eight in draw order", "value 2 of eight"),
    "sorted": (sorted_sometimes, "orders of three in draw order", "c < b < a"),
    "three signs": (with_signs(1, 2, bias=0.03), "signs of neighbours", "signs of 3 neighbours"),
    "four signs": (with_signs(3, 7, 11, bias=0.03), "signs of neighbours", "0, 4, 8, 11"),
    "far lags": (with_signs(1013, 1999, bias=0.15), "signs at two far lags", "0, 986 and 1,999"),
    "two lags": (with_signs(9, 30, bias=0.03), "signs at two lags", "at lags 0, 21 and 30"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FLAWS)
def test_a_flaw_of_order_is_found(name):
    flaw, part, says = FLAWS[name]
    found = evidence_of(Order, series(flaw))
    assert found.p < 1e-6
    assert found.details == {"look": part}
    assert says in found.effect


def third_of_700(z):
    z[3::700] *= 1.6


def wave_in_the_call(z):
    z += 0.03 * np.cos(2 * np.pi * np.arange(len(z)) / 613)


BEGINNING = {
    "periods in each call": third_of_700,
    "one frequency of values in each call": wave_in_the_call,
}


@pytest.mark.slow
@pytest.mark.parametrize("part", BEGINNING)
def test_periods_that_begin_with_each_call_are_found(part):
    rng = np.random.default_rng(62)
    calls = [rng.standard_normal((20_000 + 37 * i, 1)) for i in range(60)]
    for z in calls:
        BEGINNING[part](z[:, 0])
    assert evidence_of(Order, [(z, 1) for z in calls]).parts[part] < 1e-6


@pytest.mark.parametrize("sets", [[3, 17, 40], list(range(64))])
def test_a_hidden_check_bit_of_rows_is_found_exactly(sets):
    z = np.random.default_rng(63).standard_normal((500, 64))
    z[:, sets[0]] *= np.sign(z[:, sets].prod(1))
    found = evidence_of(Order, [(z[:100], 1), (z[100:], 1)])
    assert found.parts["signs of whole rows"] == 2.0 ** (64 + 1 - 192)
    assert f"{len(sets)} of 64 coordinates" in found.effect
    assert "192 of 192 rows" in found.effect
    z[150, sets[0]] *= -1
    assert evidence_of(Order, [(z, 1)]).parts["signs of whole rows"] == 1.0


@pytest.mark.slow
def test_a_noisy_check_bit_of_a_window_of_a_row_is_found():
    z = np.random.default_rng(64).standard_normal((20_000, 32))
    sets = [16, 18, 23, 27, 31]
    hit = np.random.default_rng(65).random(len(z)) < 0.1
    z[hit, 31] *= np.sign(z[hit][:, sets].prod(1))
    found = evidence_of(Order, [(z, 1)])
    assert found.parts["signs by place in rows"] < 1e-6
    assert "5 coordinates 16 to 31 of 32 (places 0 + 0, 2, 7, 11, 15)" in found.effect


@pytest.mark.slow
@pytest.mark.parametrize("single", [False, True])
def test_the_family_keeps_its_level(single):
    rng, p = np.random.default_rng(66), []
    for _ in range(40):
        answers = [(rng.standard_normal((256, 8)), 256)]
        answers += [(rng.standard_normal((300, d)), 1) for d in (1, 3, 13, 64)]
        if single:
            answers = [(x.astype(np.float32).astype(float), calls) for x, calls in answers]
        p.append(evidence_of(Order, answers).p)
    assert has_its_level(p)


@pytest.mark.parametrize(("total", "tosses"), [(0, 10), (4, 10), (-10, 10), (3, 9)])
def test_fair_coins_are_exact(total, tosses):
    tosses_by_heads = scipy.special.comb(tosses, np.arange(tosses + 1))
    away = np.abs(2 * np.arange(tosses + 1) - tosses) >= abs(total)
    assert fair_coins(total, tosses) == pytest.approx(tosses_by_heads[away].sum() / 2**tosses)


@pytest.mark.parametrize("longest", [64, 129, 300])
def test_folded_counts_are_right_for_every_period(longest):
    rng = np.random.default_rng(67)
    where = np.sort(rng.choice(900, 200, replace=False))
    upper = rng.random(200) < 0.5
    sides = where[upper], where[~upper]
    found = fold(*sides, longest=longest)
    for period in range(2, longest + 1):
        above, below = (np.bincount(x % period, minlength=period) for x in sides)
        both = above + below
        assert found[period].tolist() == [both.max(), both.min(), above.max(), below.max()]


@pytest.mark.parametrize(("sign", "seen"), [(1, "more values above"), (-1, "more values below")])
def test_the_residue_of_a_planted_period_is_named(sign, seen):
    """At places 41 modulo 97, 3 % of the values are large ones of one sign."""
    rng = np.random.default_rng(68)
    z = rng.standard_normal(400_000)
    places = np.arange(41, len(z), 97)
    z[places[rng.random(len(places)) < 0.03]] = 2.7 * sign
    periods = Periods()
    periods.update(z, 1)
    part = periods.parts()["periods in draw order"]
    assert part.p < 1e-9
    assert part.effect.startswith(f"residue 41 modulo 97 in draw order: {seen} beyond")


@pytest.mark.parametrize("values", [8_192, 10_000, 16_383, 16_384, 20_000])
def test_positions_are_never_too_large_for_their_quotients(values):
    z = np.random.default_rng(68).standard_normal((values, 1))
    assert evidence_of(Order, [(z, 1)]).p > 1e-3
    with pytest.raises(ValueError, match="below"):
        fold(np.array([values]), np.array([0]), longest=128)


@pytest.mark.slow
def test_far_lags_are_judged_by_other_signs_than_those_that_choose_them():
    p = []
    for seed in range(40):
        lags = FarLags()
        lags.update(np.random.default_rng([77, seed]).random(12_192) < 0.5, 1)
        lags.update(np.zeros(1 << 20, bool), 1 << 20)  # so many values that all signs are used
        p.append(lags.parts()["signs at two far lags"].p)
    assert has_its_level(p)
