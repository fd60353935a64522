"""Congruential and lagged generators behind the noise."""

import math

import numpy as np
import pytest
import scipy.special
import scipy.stats
from support import battery
from support.slow import partly

from dpaudit.audit import audit_sampler
from dpaudit.claims import Claim
from dpaudit.numeric import generators
from dpaudit.randomness import KeyedStream
from dpaudit_attacks.congruential.congruential import Congruential, lag_pairs
from dpaudit_attacks.congruential.held_out import held_out
from dpaudit_attacks.congruential.known import (
    LinearGenerator,
    generator_name,
    published_generators,
)
from dpaudit_attacks.congruential.peaks import GENERATORS, replay_peak, replay_polar_peak, starts
from dpaudit_attacks.congruential.relations import RISE, SHORTEST, constancy, reordered
from dpaudit_attacks.congruential.uniforms import Sequence

MANY = 6_000
JAVA = (2**48, 0x5DEECE66D, 11)
MINSTD = (2**31 - 1, 48271)
NORMAL = scipy.special.ndtri
RNG = np.random.default_rng(20261125)


def generator(modulus, multiplier, increment):
    return LinearGenerator("", modulus, multiplier, increment, 1, np.empty(0, np.int64))


def evidence_of(z, *, d=64, claim="gaussian:sigma=1", **more):
    rows = np.asarray(z)[: len(z) // d * d].reshape(-1, d)
    return battery.evidence_of(Congruential, [rows], claim, **more)


def uniforms(modulus, multiplier, increment=0, *, count=MANY, state=987654321, keep=None):
    """x/modulus, of which only the leading ``keep`` bits."""
    found = []
    for _ in range(count):
        state = (multiplier * state + increment) % modulus
        found.append(state / modulus)
    u = np.array(found)
    return u if keep is None else np.floor(np.ldexp(u, keep)) / 2.0**keep + 2.0 ** -(keep + 1)


def before(state, modulus, multiplier, increment=0):
    """The state that ``state`` follows."""
    return (state - increment) * pow(multiplier, -1, modulus) % modulus


def lagged(long, short, sign, *, count=MANY, bits=32):
    words = [int(x) for x in RNG.integers(0, 1 << bits, long)]
    for _ in range(count + 1000):
        words.append((words[-short] + sign * words[-long]) % (1 << bits))
    return np.array(words[-count:]) / 2.0**bits + 2.0 ** -(bits + 1)


def box_muller(u, *, mirrored=False, halves=False):
    size, angle = u[0::2], u[1::2]
    radius = np.sqrt(-2 * np.log1p(-size) if mirrored else -2 * np.log(size))
    both = radius * np.cos(2 * np.pi * angle), radius * np.sin(2 * np.pi * angle)
    return np.concatenate(both) if halves else np.stack(both, 1).ravel()


def vectorised(u):
    """As torch's float32 randn on the CPU: blocks of 16, uniforms of 24 bits, pairs 8 apart."""
    size, angle = np.moveaxis((np.floor(u * 2**24) / 2**24).reshape(-1, 2, 8), 1, 0)
    radius, turned = np.sqrt(-2 * np.log1p(-size)), 2 * np.pi * angle
    both = np.stack([radius * np.cos(turned), radius * np.sin(turned)], 1)
    return both.ravel().astype(np.float32).astype(np.float64)


def marsaglia(u, *, second_first=False):
    x, y = 2 * u[0::2] - 1, 2 * u[1::2] - 1
    square = x * x + y * y
    inside = (square < 1) & (square > 0)
    factor = np.sqrt(-2 * np.log(square[inside]) / square[inside])
    both = x[inside] * factor, y[inside] * factor
    return np.stack(both[::-1] if second_first else both, 1).ravel()


def with_carry(factor, *, bits=16, count=MANY):
    """Marsaglia's multiply-with-carry: the low half of each state."""
    state, found = 362436069, []
    for _ in range(count):
        state = factor * (state & (1 << bits) - 1) + (state >> bits)
        found.append(((state & (1 << bits) - 1) + RNG.random()) / 2.0**bits)
    return np.array(found)


RAND, MMIX = (2**31, 1103515245, 12345), (2**64, 6364136223846793005, 99)
PCG = (2**128, 0x2360ED051FC65DA44385DF649FCCF645, 5)
HILL, UNKNOWN = (27817185604309, 16555425264690), (2**32 - 5, 1234567893)
CONGRUENTIAL = "a congruential generator (multiplier {1}, modulus {0})"
DRAND = "drand48 and java.util.Random"
PREDICTED = [
    ("minstd (multiplier 48271)", NORMAL(uniforms(*MINSTD))),
    ("minstd (multiplier 16807)", NORMAL(uniforms(2**31 - 1, 16807)).astype(np.float32)),
    (DRAND, NORMAL(uniforms(*JAVA, keep=24))),
    ("the ANSI C rand (glibc's TYPE_0)", NORMAL(uniforms(*RAND, keep=15))),
    ("Knuth's MMIX generator", NORMAL(uniforms(*MMIX, keep=32))),
    ("PCG's 128-bit generator", NORMAL(uniforms(*PCG, count=5 * MANY, keep=32))),
    ("Wichmann and Hill's generator", NORMAL(uniforms(*HILL))),
    (CONGRUENTIAL.format("2^32 - 5", 1234567893), NORMAL(uniforms(*UNKNOWN))),
    (CONGRUENTIAL.format(1181614079, 18030), NORMAL(with_carry(18030))),
    (DRAND, uniforms(*JAVA, count=60 * MANY).reshape(-1, 12).sum(axis=1) - 6),
    ("minstd (multiplier 48271)", box_muller(uniforms(*MINSTD))),
    ("minstd (multiplier 48271)", box_muller(uniforms(*MINSTD), mirrored=True)),
    (DRAND, box_muller(uniforms(*JAVA), halves=True)),
]


@pytest.mark.parametrize(("generator", "z"), partly(PREDICTED, every=3))
def test_the_second_half_is_predicted_from_the_first(generator, z):
    evidence = evidence_of(z, d=2)
    assert evidence.p < 1e-300
    assert evidence.details["generator"] == generator
    assert evidence.effect.startswith(generator + " and ")
    right, of = map(int, evidence.details["predicted"].split(" of "))
    assert right == of > 1_000


@pytest.mark.slow
@pytest.mark.parametrize("second_first", [False, True])
def test_java_and_the_polar_method_are_predicted_with_their_rejections(second_first):
    z = marsaglia(uniforms(*JAVA, count=4 * MANY)[::2], second_first=second_first)
    evidence = evidence_of(z, d=2)
    assert evidence.details["predicted"] == "992 of 992"
    way = f"the polar method{', second value first' if second_first else ''}"
    assert evidence.effect.startswith(f"{DRAND} and {way}: ")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("says", "u"),
    [
        ("u(t) = u(t - 24) + u(t - 55) modulo 1", lagged(55, 24, 1)),
        ("u(t) = u(t - 22) - u(t - 43) modulo 1", lagged(43, 22, -1)),
        ("u(t) = u(t - 3) + u(t - 31) modulo 1", lagged(31, 3, 1, bits=31)),
        ("u(t) = u(t - 273) + u(t - 607) modulo 1", lagged(607, 273, 1)),
        ("u(t) = u(t - 418) + u(t - 1279) modulo 1", lagged(1279, 418, 1)),
    ],
)
def test_lagged_recurrences_are_found_without_knowing_the_lags(says, u):
    evidence = evidence_of(NORMAL(u), d=2)
    assert evidence.effect.startswith(f"{says}, by the inverse distribution function: ")
    assert evidence.details["predicted"] == "2000 of 2000"
    assert evidence.p < 1e-300


@pytest.mark.slow
def test_a_lagged_recurrence_is_found_behind_lengths_and_angles():
    evidence = evidence_of(box_muller(lagged(55, 24, 1), mirrored=True), d=2)
    assert evidence.p < 1e-300
    assert evidence.details["lags"] == [24, 55]


@pytest.mark.slow
def test_combined_generators_are_found_by_a_relation_of_32_neighbours():
    """L'Ecuyer's MRG32k3a (1999)."""
    m1, m2, one, two, u = 4294967087, 4294944443, [1, 2, 3], [4, 5, 6], []
    for _ in range(MANY):
        one = [*one[1:], (1403580 * one[1] - 810728 * one[0]) % m1]
        two = [*two[1:], (527612 * two[2] - 1370589 * two[0]) % m2]
        u.append(((one[2] - two[2]) % m1 + 0.5) / (m1 + 1))
    evidence = evidence_of(NORMAL(np.array(u)), d=2)
    assert evidence.p < 1e-100
    assert evidence.effect.startswith("MRG32k3a and the inverse distribution function: ")


@pytest.mark.slow
@pytest.mark.parametrize("d", [5, 8])
def test_pairs_and_columns_are_found_at_every_width(d):
    u = uniforms(*JAVA, count=10 * 2048)
    for z in (box_muller(u), box_muller(u, halves=True), NORMAL(u).reshape(d, -1).T.ravel()):
        assert evidence_of(z, d=d).details["generator"] == "drand48 and java.util.Random"


@pytest.mark.slow
def test_rows_filled_by_halves_are_pairs_where_there_are_two_columns():
    """Also where a longer call, of four columns, came before."""
    u = uniforms(*JAVA, count=16 * 1024)
    blocks = [
        np.stack([box_muller(row, halves=True) for row in part.reshape(-1, d)])
        for d, part in ((4, u[: 10 * 1024]), (2, u[10 * 1024 :]))
    ]
    evidence = battery.evidence_of(Congruential, blocks, seed=12)
    assert "Box-Muller, neighbours" in evidence.effect


@pytest.mark.slow
@pytest.mark.parametrize("d", [5, 7, 8, 64])
@pytest.mark.parametrize("halves", [False, True])
def test_rows_filled_one_by_one_are_found(d, halves):
    """Of an odd row the last value is drawn and lost."""
    even = d + d % 2
    u = uniforms(*JAVA, count=even * (20_000 // even))
    z = np.concatenate([box_muller(row, halves=halves)[:d] for row in u.reshape(-1, even)])
    assert evidence_of(z, d=d).p < 1e-30


@pytest.mark.slow
@pytest.mark.parametrize("numbers", [MINSTD, (2**32, 1664525, 1013904223)])
def test_pairs_8_apart_are_found_in_single_precision(numbers):
    evidence = evidence_of(vectorised(uniforms(*numbers, count=16 * 1024)))
    assert evidence.p < 1e-30
    assert "Box-Muller, values 8 apart: sums of 8 neighbouring uniforms" in evidence.effect


@pytest.mark.slow
def test_fresh_pairs_8_apart_in_single_precision_pass():
    for seed in range(5):
        u = np.random.default_rng((4, seed)).random(16 * 1024)
        assert evidence_of(vectorised(u)).p > 1e-3


def test_laplace_noise_is_looked_at_with_and_without_its_sign():
    u = uniforms(*MINSTD)
    inverted = np.sign(u - 0.5) * -np.log(2 * np.minimum(u, 1 - u))
    signed = -np.log(u[0::2]) * np.where(u[1::2] < 0.5, -1, 1)
    for z in (inverted, signed):
        evidence = evidence_of(3 * z, d=2, claim="laplace:scale=3")
        assert evidence.details["generator"] == "minstd (multiplier 48271)"


@pytest.mark.slow
def test_coarse_noise_shows_known_generators():
    """Inverse CDF of a discrete Laplace law of scale 10: about five bits of each state are left."""
    assert evidence_of(np.round(NORMAL(uniforms(*JAVA)), 2)).p < 1e-100
    q, k = math.exp(-1 / 10), np.arange(-400, 401)
    law = np.cumsum((1 - q) / (1 + q) * q ** np.abs(k))
    z = k[np.searchsorted(law, uniforms(*JAVA, count=4 * MANY))]
    evidence = evidence_of(z, d=2, claim="discrete-laplace:scale=10")
    assert evidence.p < 1e-30
    assert evidence.details["generator"] == DRAND


def from_a_small_number(transform, *, small_first):
    """640 values from two uniforms each, the first from a very small number."""
    state = 300  # the next uniform is near 0, the one before such a number may be near 1
    if not small_first:
        earlier = (before(x, *MINSTD) for x in range(100, 9000))
        state = next(x for x in earlier if x > 0.985 * MINSTD[0])
    u = uniforms(*MINSTD, count=1280, state=before(state, *MINSTD))
    return transform(u[0::2], u[1::2])


def cosine_only(u, v):
    return np.sqrt(-2 * np.log(u)) * np.cos(2 * np.pi * v)


def exponentials(u, v):
    return 2 * (np.log(u) - np.log(v))


def geometric_numbers(u, v):
    return np.floor(-10 * np.log1p(-u)) - np.floor(-10 * np.log1p(-v))


COSINE, NORMAL_LAW = "Box-Muller, cosine only", "gaussian:sigma=1"
EXPONENTIALS = "two exponentials' difference"
GEOMETRIC = "two geometric numbers' difference"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("says", "claim", "transform", "small_first"),
    [
        (COSINE, NORMAL_LAW, cosine_only, True),
        (COSINE, NORMAL_LAW, lambda u, v: cosine_only(v, u).astype(np.float32), False),
        (EXPONENTIALS, "laplace:scale=2", exponentials, False),
        (
            *(GEOMETRIC, "discrete-laplace:scale=10"),
            *(lambda u, v: geometric_numbers(1 - u, 1 - v), False),
        ),
    ],
)
def test_transforms_that_lose_a_uniform_are_replayed_from_an_outlier(
    says, claim, transform, small_first
):
    z = np.asarray(from_a_small_number(transform, small_first=small_first), np.float64)
    evidence = evidence_of(z, d=2, claim=claim)
    assert evidence.p < 1e-100
    assert evidence.details["predicted"] == "256 of 256"
    assert evidence.effect.startswith(f"minstd (multiplier 48271) and {says}: ")
    later = np.concatenate([z[:4], honest(400) if claim[0] == "g" else np.round(9 * honest(400))])
    assert evidence_of(later, d=2, claim=claim).p == 1


def test_a_replay_pays_for_all_states_and_places():
    z = from_a_small_number(cosine_only, small_first=True)[:6]
    claim, found = Claim.parse("gaussian:sigma=1"), []
    for seen in (1000, 2000):
        by_cause = dict(replay_peak(np.abs(z), claim, draws=seen))
        found.append(by_cause["minstd (multiplier 48271) and Box-Muller, cosine only"])
    states = int(np.exp(-(z[0] ** 2) / 2) * MINSTD[0]) + 1
    assert found[0].p == pytest.approx(1000 * 8 * states * 2.0 ** (-16 * 5), rel=1e-6, abs=0)
    assert found[1].p == pytest.approx(2 * found[0].p, rel=1e-9, abs=0)
    assert not list(replay_peak(np.abs(z[:1]), claim, draws=1))


def polar_after_a_peak(kept, *numbers):
    """300 values, the first of a pair near (0, 0): one of each pair that is not rejected."""
    one = generator(*numbers)
    begins = starts(one, 3e-3)
    begins = begins[begins % 2 == 1]  # without (0, 0)
    pairs = np.stack([begins, one.after(begins)]) * (2 / one.modulus) - 1
    state = int(begins[np.argmax(np.abs(pairs[kept]) / np.hypot(*pairs))])
    u = uniforms(*numbers, count=1_000, state=before(state, *numbers)).reshape(-1, 2)
    v = 2 * u - 1
    square = (v * v).sum(axis=1)
    inside = (square < 1) & (square > 0)
    made = v[inside, kept] * np.sqrt(-2 * np.log(square[inside]) / square[inside])
    return made[:300]


@pytest.mark.slow
@pytest.mark.parametrize("kept", [0, 1])
@pytest.mark.parametrize("numbers", [(2**31 - 1, 16807, 0), (2**32, 69069, 1), (2**32, 1664525, 0)])
def test_one_value_of_the_polar_method_is_replayed_from_an_outlier(kept, numbers):
    z = polar_after_a_peak(kept, *numbers)
    name = next(g.name for g in GENERATORS if (g.modulus, g.multiplier, g.increment) == numbers)
    evidence = evidence_of(z, d=2)
    assert evidence.p < 1e-100
    assert evidence.details["predicted"] == "256 of 256"
    assert evidence.effect.startswith(f"{name} and one value of the polar method: ")
    other = z.copy()
    other[1::7] = honest(len(other[1::7]))
    assert evidence_of(other, d=2).p > 0.05


@pytest.mark.parametrize("half", [0.003, 0.05, 0.2])
def test_starts_are_all_states_in_the_square(half):
    for one in (generator(65_537, 75, 74), generator(1 << 16, 65_533, 5)):
        s = np.arange(one.modulus, dtype=np.uint64)
        reach = half * one.modulus / 2 + 2
        inside = np.abs(np.stack([s, one.after(s)]) - one.modulus / 2) <= reach
        assert set(starts(one, half).tolist()) == set(s[inside.all(axis=0)].tolist())


@pytest.mark.slow
def test_a_replay_of_one_polar_value_pays_for_all_pairs_and_places():
    z = np.abs(polar_after_a_peak(1, 2**31 - 1, 16807, 0))[:6]
    name = "minstd (multiplier 16807) and one value of the polar method"
    pairs = len(starts(generator(2**31 - 1, 16807, 0), np.exp(-(z[0] ** 2) / 4)))
    few, many = (dict(replay_polar_peak(z, draws=seen))[name].p for seen in (1000, 2000))
    assert few == pytest.approx(1000 * 2 * pairs * 2.0 ** (-16 * 5), rel=1e-6, abs=0)
    assert many == pytest.approx(2 * few, rel=1e-9, abs=0)
    assert not list(replay_polar_peak(z[:1], draws=1))
    assert all(counts.p == 1 for _, counts in replay_polar_peak(np.array([0.1, 0.2]), draws=1))


@pytest.mark.slow
def test_one_polar_value_of_honest_noise_is_never_replayed():
    for _ in range(10):
        z = np.abs(RNG.standard_normal(257))
        z[0] = 5.2
        assert all(counts.p == 1 for _, counts in replay_polar_peak(z, draws=10**7))


def honest(*shape):
    return KeyedStream.from_seed("honest").numpy().standard_normal(shape)


@pytest.mark.slow
def test_honest_noise_passes_however_coarse_it_may_be():
    u = KeyedStream.from_seed("u").numpy().random(MANY)
    for claim, z in (
        ("gaussian:sigma=1", honest(MANY)),
        ("gaussian:sigma=1", honest(MANY).astype(np.float32)),
        ("gaussian:sigma=1", NORMAL(np.floor(u * 2**20) / 2**20 + 2.0**-21)),
        ("gaussian:sigma=1", np.random.default_rng(5).standard_normal(MANY)),
        ("laplace:scale=1", KeyedStream.from_seed("l").numpy().laplace(size=MANY)),
        ("discrete-gaussian:sigma=10", np.rint(10 * honest(MANY))),
    ):
        evidence = evidence_of(z, claim=claim)
        assert evidence.p > 0.05, claim
        assert evidence.effect.startswith("no recurrence fits: ")
        assert evidence.blind_spots[0].size == 64


ANOTHER_LAW = {
    "cauchy": lambda rng: rng.standard_cauchy(3 * MANY),
    "wide": lambda rng: rng.normal(0, 3, 3 * MANY),
    "narrow": lambda rng: rng.normal(0, 0.001, 3 * MANY),
    "shifted": lambda rng: rng.normal(5, 1, 3 * MANY),
}


@pytest.mark.parametrize("law", partly(list(ANOTHER_LAW), every=3))
def test_values_of_another_law_name_no_generator(law):
    evidence = evidence_of(ANOTHER_LAW[law](np.random.default_rng(1)))
    assert evidence.p < 1e-15  # they fulfil relations, in any order
    assert (evidence.cause, evidence.harm) == ("", "law")


@pytest.mark.parametrize("law", ["narrow", "shifted"])  # the others fulfil none in 512 values
def test_few_values_of_another_law_name_no_generator(law):
    evidence = evidence_of(ANOTHER_LAW[law](np.random.default_rng(1))[:512])
    assert evidence.p < 1e-9
    assert (evidence.cause, evidence.harm) == ("", "law")


@pytest.mark.parametrize("size", [256, 512])
def test_a_generator_is_named_by_few_windows(size):
    """MRG32k3a has 24 coefficients: 4 held-out windows in 256 values, counted in many orders."""
    rng = np.random.default_rng(1)
    words = generators.mrg32k3a(rng.integers(1, 4_294_944_443, 6).astype(np.uint64))(size)
    evidence = evidence_of(NORMAL((words + 0.5) / 4294967088))
    assert evidence.p < 1e-9
    assert evidence.cause == "MRG32k3a and the inverse distribution function"
    assert evidence.details["windows"] == f"{size // 64} of {size // 64}"


def test_an_audit_of_another_law_does_not_say_that_its_noise_can_be_computed():
    result = audit_sampler(
        "python:numpy.random:standard_cauchy",
        claim="gaussian:sigma=1",
        samples=40_000,
        seed=1,
        tests=("congruential", "moments"),
    )
    assert all(test.finding for test in result.tests)
    assert result.cause.startswith("scale ")
    assert result.remarks == ()


@pytest.mark.parametrize("scale", [0.9, 1.1])
def test_a_generator_is_still_named_where_the_scale_is_wrong_too(scale):
    evidence = evidence_of(scale * NORMAL(uniforms(*MINSTD)), d=2)
    assert evidence.p < 1e-60
    assert evidence.cause == "minstd (multiplier 48271) and the inverse distribution function"
    assert evidence.harm == ""


def test_relations_in_another_order_keep_pairs_and_the_first_half():
    u = RNG.random(1_024)
    for step in (1, 2, 16):
        other = reordered(Sequence("", u, step)).u
        assert np.array_equal(other[:512], u[:512])
        width = 1 if step == 1 else 2
        pairs, others = (x[512:].reshape(-1, step // width, width) for x in (u, other))
        for place in range(step // width):
            assert not np.array_equal(pairs[:, place], others[:, place])
            assert sorted(map(tuple, pairs[:, place])) == sorted(map(tuple, others[:, place]))


def test_repeated_or_few_values_and_other_processes_say_nothing():
    few = "too few different values"
    for z in (np.full(MANY, 1e308), np.tile(honest(50), MANY // 50), honest(100)):
        assert evidence_of(z).effect == few
    assert evidence_of(NORMAL(uniforms(*MINSTD)), process=1).effect == few
    u = np.repeat(RNG.random(40), 200)
    assert not list(lag_pairs(Sequence("", u)))  # at once: every pair of lags would do


@pytest.mark.parametrize("bits", [20, 53])
def test_a_relation_holds_by_chance_as_often_as_its_p_value_says(bits):
    """Coefficients up to 2^8 on uniforms of 20 bits, which are what is coarsest and honest."""
    rng = np.random.default_rng(20261127)
    ps = []
    for _ in range(400):
        u = np.floor(np.ldexp(rng.random(2048), bits)) / 2.0**bits
        ps.append(constancy(Sequence("", u), rng.integers(-256, 257, 8)).p)
    assert np.mean(np.array(ps) <= 0.05) <= 0.06
    assert np.mean(np.array(ps) <= 0.5) <= 0.55


def test_uniforms_of_the_polar_method_are_uniform_enough():
    rng = np.random.default_rng(20261128)
    ps = []
    for _ in range(300):
        u = rng.random(4096)
        disk = u.reshape(-1, 2)[np.square(2 * u.reshape(-1, 2) - 1).sum(axis=1) < 1].ravel()
        vector = np.zeros(8, np.int64)
        vector[0] = SHORTEST
        ps.append(constancy(Sequence("", disk, 2), vector, rise=RISE).p)
    assert np.mean(np.array(ps) <= 0.05) <= 0.05


def test_the_arc_is_chosen_on_one_half_and_counted_on_the_other():
    near = np.full(100, 0.999) + np.linspace(0, 0.002, 100)  # across 1
    found = held_out(near, np.concatenate([near, np.full(100, 0.5)]))
    assert (found.hits, found.of) == (100, 200)
    assert found.width == 2.0**-8
    assert found.chance == 2.0**-8 + 2.0**-16
    assert found.text == "100 of 200"
    assert found.p == pytest.approx(scipy.stats.binom.sf(99, 200, found.chance), rel=1e-6)
    assert held_out(near, np.full(50, 0.25)).p == 1
    assert held_out(near, near[:0]).p == 1
    blurred = held_out(near, near, factor=256, rise=1.25)
    assert blurred.chance == min(1, 1.25 * blurred.width + 2.0**-8)


def test_published_relations_are_relations():
    """MRG32k3a, two recurrences of order 3 without one modulus, is tested by its output."""
    for one in published_generators():
        if not one.modulus:
            continue
        step = pow(one.multiplier, one.stride, one.modulus)
        powers = [pow(step, i, one.modulus) for i in range(len(one.vector))]
        zero = sum(int(c) * x for c, x in zip(one.vector, powers, strict=True)) % one.modulus
        assert zero == 0, (one.name, one.stride)
        assert len(one.vector) in (8, 24)
        expected = 12345
        for _ in range(one.stride):
            expected = (one.multiplier * expected + one.increment) % one.modulus
        assert one.numbers(12345, 2)[1] == expected, (one.name, one.stride)


def test_generators_are_named_by_powers_and_parts_of_their_multipliers():
    prime, minstd = 2**31 - 1, "minstd (multiplier 48271)"
    for multiplier in (48271, pow(48271, 3, prime), prime - 48271):
        assert generator_name(prime, multiplier) == minstd
    assert generator_name(2**47, JAVA[1] % 2**47) == DRAND
    assert generator_name(prime, 48272) is None
    assert generator_name(2**20, JAVA[1] % 2**20) is None
