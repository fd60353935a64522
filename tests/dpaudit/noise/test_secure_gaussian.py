import bisect
import functools
import itertools
import math
import struct
from fractions import Fraction
from types import SimpleNamespace

import mpmath
import numpy as np
import pytest
import scipy.stats
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from support.laws import hockey_stick

from dpaudit.accounting import gaussian_epsilon
from dpaudit.accounting.discrete import discrete_gaussian_bounds, discrete_gaussian_delta
from dpaudit.errors import UsageError
from dpaudit.noise.secure_gaussian import SecureGaussian
from dpaudit.numeric.exact_integers import (
    LARGEST_SCALE,
    IntegerLaw,
    _below,
    draw_integers,
    integers_at,
)
from dpaudit.randomness import KeyedStream
from dpaudit.testing import check_mitigation, check_noise_source
from dpaudit_mitigations.none import NoMitigation

SEED = "secure gaussian"
LINE = SimpleNamespace(dim=1, sensitivity=1.0)


@pytest.fixture
def stream():
    return KeyedStream.from_seed(SEED)


def column(*values):
    return torch.tensor([[v] for v in values], dtype=torch.float64)


def number(fraction):
    return mpmath.mpf(fraction.numerator) / fraction.denominator


# the law


@functools.cache
def exact_mass(law, reach):
    """P(i) for |i| ≤ reach by mpmath at 40 digits, from the definition alone."""
    with mpmath.workdps(40):
        weight = [mpmath.exp(-number(law.potential(i))) for i in range(reach + 1)]
        total = weight[0] + 2 * sum(weight[1:])
        return np.array([float(weight[abs(i)] / total) for i in range(-reach, reach + 1)])


def chi_square(drawn, law, reach, least=20):
    """p-value of counts against the exact law: by value, and in some forty groups of neighbours."""
    mass = exact_mass(law, reach)
    counts = np.bincount(np.clip(drawn, -reach, reach) + reach, minlength=2 * reach + 1)
    expected = mass * len(drawn)
    rare = expected < least
    group = np.minimum(np.cumsum(mass) * 40, 39).astype(int)
    p = []
    for label in (np.where(rare, -1, np.arange(len(mass))), group):
        _, inverse = np.unique(label, return_inverse=True)
        seen, wanted = (np.bincount(inverse, x) for x in (counts, expected))
        if wanted[0] < least:  # the rare ones
            seen, wanted = (np.append(x[0] + x[1], x[2:]) for x in (seen, wanted))
        p.append(scipy.stats.chisquare(seen, wanted / wanted.sum() * len(drawn)).pvalue)
    return 2 * min(p)


LAWS = {
    "gaussian 0.4": (IntegerLaw.gaussian(0.4), 12),
    "gaussian 3": (IntegerLaw.gaussian(3.0), 60),
    "gaussian 100.5, blocks of 2": (IntegerLaw.gaussian(100.5), 2000),
    "gaussian 700, blocks of 16": (IntegerLaw.gaussian(700.0), 14000),
    "laplace 0.3": (IntegerLaw.laplace(0.3), 30),
    "laplace 300, blocks of 8": (IntegerLaw.laplace(300.0), 12000),
}


@pytest.mark.parametrize("name", LAWS)
def test_a_million_integers_have_the_exact_law(name, stream):
    law, reach = LAWS[name]
    assert chi_square(draw_integers(1_000_000, law, stream=stream.child(name)), law, reach) > 1e-3


def test_the_law_test_sees_a_scale_that_is_one_percent_off(stream):
    drawn = draw_integers(1_000_000, IntegerLaw.gaussian(707.0), stream=stream)
    assert chi_square(drawn, IntegerLaw.gaussian(700.0), 14000) < 1e-4


@pytest.mark.parametrize("scale", [128.0, 300.5, 511.9, 2.0**24 * 1.37, LARGEST_SCALE])
@pytest.mark.parametrize(("kind", "least"), [(IntegerLaw.gaussian, 128), (IntegerLaw.laplace, 32)])
def test_what_the_rounding_proof_assumes(scale, kind, least):
    law = kind(scale)
    rows = len(law.blocks(64)[0])
    last, end = (rows - 1) * law.block, rows * law.block - 1
    # y ≤ 1/2 at the table's last row
    assert law.potential(end) - law.potential(last) <= Fraction(1, 2)
    assert 2 * end < 2**53
    assert law.block * least <= scale
    assert law.block <= 2**25  # place, sign and 38 bits in one word


# the lazy path


@pytest.mark.slow
@pytest.mark.parametrize(("coarse", "fine"), [(3, 1), (25, 2)])
@pytest.mark.parametrize("name", ["gaussian 3", "laplace 300, blocks of 8"])
def test_the_law_is_the_same_when_few_bits_are_looked_at_first(name, coarse, fine, stream):
    law, reach = LAWS[name]
    few = {"bits": (coarse, fine)}
    key = stream.child(name, coarse, fine).bytes(32)
    drawn = integers_at(law, key=key, start=0, columns=20_000, **few)[0]
    assert chi_square(drawn, law, reach) > 1e-3


def chacha_words(key, position, trial, second):
    """The eight words of a block, by the library; trial 0 and second 0: of the bulk."""
    nonce = struct.pack("<QII", position, trial, second)
    cipher = Cipher(algorithms.ChaCha20(key, nonce), mode=None).encryptor()
    return struct.unpack("<8Q", cipher.update(bytes(64)))


def borders(law):
    """P(block ≤ k) for every k but a share of 1e-70, by mpmath."""
    weights = []
    while not weights or weights[-1] > mpmath.mpf(10) ** -70:
        weights.append(mpmath.exp(-number(law.potential(len(weights) * law.block))))
    weights[0] /= 2 if law.block == 1 else 1
    total = sum(weights)
    return [b / total for b in itertools.accumulate(weights)]


def slow_integer(law, limits, key, position, *, coarse, fine):
    """A trial after the other, from the same bits, with real numbers where ours has enclosures.

    The number, and how many decisions needed more bits.
    """
    more = 0

    def located(prefix, bits, points, trial, first, last):
        """How many of the points are below a uniform that starts so; reads more while undecided."""
        nonlocal more
        later = itertools.chain.from_iterable(
            chacha_words(key, position, trial, second)[first : last + 1]
            for second in itertools.count(1)
        )
        while True:
            low, high = (
                bisect.bisect_right(points, mpmath.mpf(prefix + i) / 2**bits) for i in (0, 1)
            )
            if low == high < len(limits):
                return low
            prefix, bits, more = prefix << 64 | next(later), bits + 64, more + 1

    for trial in itertools.count():
        bulk = chacha_words(key, position // 8, 0, 0)[position % 8]
        word = chacha_words(key, position, trial, 1)[0] if trial else bulk
        k = located(word >> (64 - coarse), coarse, limits, trial, 1, 3)
        place, start, sign = word % law.block, k * law.block, word >> 25 & 1
        if place:
            point = mpmath.exp(-number(law.potential(start + place) - law.potential(start)))
            if located((word >> (39 - fine)) % 2**fine, fine, [point], trial, 4, 7):
                continue
        value = start + place
        if value or not sign or law.block == 1:
            return -value if sign else value, more
    raise AssertionError


@pytest.mark.slow
@pytest.mark.parametrize(
    "law", [IntegerLaw.gaussian(300.5), IntegerLaw.laplace(300.0), IntegerLaw.gaussian(3.0)]
)
def test_every_decision_is_that_of_a_slow_sampler_on_the_same_bits(law, stream):
    key, at, n, few = stream.child("slow").bytes(32), 2**35 - 150, 1000, {"coarse": 6, "fine": 3}
    bits = {"bits": tuple(few.values())}
    got = integers_at(law, key=key, start=at, columns=n, **bits)[0].tolist()
    usual = integers_at(law, key=key, start=at, columns=n)[0].tolist()
    with mpmath.workdps(120):
        limits = borders(law)
        slow = [slow_integer(law, limits, key, at + i, **few) for i in range(n)]
        other = [slow_integer(law, limits, key, at + i, coarse=25, fine=13) for i in range(n)]
    assert got == [number for number, _ in slow]
    assert usual == [number for number, _ in other]
    assert sum(more for _, more in slow) > 100


@pytest.mark.parametrize(
    "law", [IntegerLaw.gaussian(0.4), IntegerLaw.gaussian(2.0**24 * 1.3), IntegerLaw.laplace(7.0)]
)
@pytest.mark.parametrize("bits", [5, 64, 128])
def test_blocks_are_enclosed_between_neighbouring_integers(law, bits):
    lows, highs = law.blocks(bits)
    with mpmath.workdps(120):
        for low, high, border in zip(lows, highs, borders(law), strict=False):
            assert low <= border * 2**bits <= high <= low + 1
        assert 1 - borders(law)[len(lows) - 1] < mpmath.mpf(2) ** -bits


def test_the_fast_acceptance_is_never_wrong_and_seldom_unsure():
    rng = np.random.default_rng(5)
    step, unsure = 2.0**-36, 0
    with mpmath.workdps(40):
        for _ in range(3000):
            y = float(rng.uniform(0, 0.5) * 2.0 ** rng.integers(-40, 1))
            p = mpmath.exp(-y)
            near = rng.integers(-3, 4) * step if rng.random() < 0.5 else rng.uniform(-1, 0)
            u = min(max(math.floor((float(p) + near) / step) * step, 0.0), 1 - step)
            says = _below(u, step, y)
            if says == 1:
                assert u + mpmath.mpf(step) <= p
            elif says == 0:
                assert u >= p
            else:
                unsure += 1
                assert u - 2.0**-43 < p < u + step + 2.0**-43
    assert 0 < unsure < 600


@pytest.mark.parametrize("scale", [5e-324, 1e-200, 1e-3])
def test_a_scale_far_below_the_lattice_gives_zeros(scale, stream):
    for law in (IntegerLaw.gaussian(scale), IntegerLaw.laplace(scale)):
        assert not draw_integers(1000, law, stream=stream).any()


def test_an_upper_word_of_all_ones_goes_to_the_far_tail():
    """U = 1 − 2^-64 and a little: the block must be beyond all 64-bit borders."""
    law = IntegerLaw.gaussian(2.0**20)
    near = law.decide_block((1 << 64) - 1, 64, lambda: 0)
    far = law.decide_block((1 << 64) - 1, 64, lambda: (1 << 64) - 2)
    assert 9 < near * law.block / 2.0**20 < 9.5 < far * law.block / 2.0**20 < 14


# the source


@pytest.mark.parametrize(
    "source",
    [SecureGaussian(), SecureGaussian(sigma=3.7, granularity=0.5), SecureGaussian(sigma=1e-9)],
)
def test_conforms(source):
    check_noise_source(source)
    check_mitigation(NoMitigation(), SecureGaussian(sigma=2.0))


def test_a_stream_is_read_on(stream):
    query = torch.zeros((20, 3), dtype=torch.float64)
    first, second = (SecureGaussian().release(query, stream=stream) for _ in range(2))
    assert not torch.equal(first, second)


def test_the_granularity_depends_on_sigma_alone_and_can_be_chosen():
    steps = {1.0: 1.0, 1.999: 1.0, 2.0: 2.0, 0.7: 0.5, 3e-100: 2.0 ** math.floor(math.log2(3e-100))}
    for sigma, step in steps.items():
        assert SecureGaussian(sigma=sigma).granularity * 2.0**24 == step
    assert SecureGaussian(sigma=3.0, granularity=2).granularity == 2.0


NASTY = [0.0, -0.0, 5e-324, -5e-324, 2.2e-308, 0.1, -1 / 3, 1 + 2.0**-52, 0.5 - 2.0**-54]
NASTY += [12345.678901234567, -(2.0**28), 3.4999 * 2.0**-24]


def test_a_release_is_exactly_the_rounded_value_plus_the_noise_of_its_stream(stream):
    """So two values of one cell have the same releases, and all lie on one lattice."""
    source = SecureGaussian(sigma=1.5)
    g, query = Fraction(source.granularity), column(*NASTY).repeat(1, 50)
    released = source.release(query, stream=stream.child(1))
    noise = source.sample(*query.shape, stream=stream.child(1), dtype=torch.float64)
    flat = (x.flatten().tolist() for x in (query, released, noise))
    for value, got, plus in zip(*flat, strict=True):
        assert Fraction(got) == (round(Fraction(value) / g) + round(Fraction(plus) / g)) * g
        assert (Fraction(plus) / g).denominator == 1
        assert abs(Fraction(got) / g) < 2**53
    assert not (torch.signbit(released) & (released == 0)).any()


@pytest.mark.parametrize("value", [2.0**29, -(2.0**29), 2.0**52, 1e300, -1.7e308])
def test_a_value_too_large_for_exact_sums_is_refused(value, stream):
    with pytest.raises(UsageError, match=r"query value=.*granularity="):
        SecureGaussian().release(column(0.0, value), stream=stream)


def test_the_largest_value_is_taken_and_a_coarser_lattice_takes_larger_ones(stream):
    source = SecureGaussian()
    largest = (2**53 - 64 * 2**24) * source.granularity
    released = source.release(column(largest, -largest), stream=stream)
    assert (released - column(largest, -largest)).abs().max() < 10
    with pytest.raises(UsageError, match="coarser"):
        source.release(column(largest + source.granularity), stream=stream)
    coarse = SecureGaussian(sigma=1.0, granularity=0.5)
    assert abs(float(coarse.release(column(2.0**51), stream=stream)) - 2.0**51) < 10


@pytest.mark.parametrize(
    ("query", "words"),
    [
        (torch.zeros(3, dtype=torch.float64), "shape"),
        (torch.zeros((3, 1), dtype=torch.int64), "dtype"),
        (column(math.nan), "NaN"),
        (column(math.inf), "infinity"),
    ],
)
def test_what_is_no_query_is_refused(query, words, stream):
    with pytest.raises(UsageError, match=words):
        SecureGaussian().release(query, stream=stream)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("sigma", (0.0, math.nan, "1", 1e-310, 1e300)),
        ("granularity", (0.3, -0.5, math.inf, True, 2.0, 2.0**-33)),
    ],
)
def test_broken_options_are_refused(name, values):
    for value in values:
        with pytest.raises(UsageError, match=f"{name}="):
            SecureGaussian(**{name: value})


def test_narrower_types_get_the_nearest_they_have(stream):
    source = SecureGaussian(sigma=3.0)
    query = torch.linspace(-9, 9, 40, dtype=torch.float32).reshape(20, 2)
    wide = source.release(query.double(), stream=stream.child(1))
    narrow = source.release(query, stream=stream.child(1))
    assert narrow.dtype == torch.float32
    assert torch.equal(narrow, wide.float())
    with pytest.raises(UsageError, match=r"dtype=torch\.float16"):
        SecureGaussian(sigma=1e5).release(torch.zeros((50, 2), dtype=torch.float16), stream=stream)


def test_noise_below_a_narrow_type_is_zero_without_a_sign_and_integers_are_not_cut_off(stream):
    query = torch.zeros((20, 2), dtype=torch.float32)
    released = SecureGaussian(sigma=1e-60).release(query, stream=stream)
    assert not released.any()
    assert not torch.signbit(released).any()
    with pytest.raises(UsageError, match=r"dtype=torch\.int32"):
        SecureGaussian().sample(20, 2, stream=stream, dtype=torch.int32)


def test_rows_of_any_layout_and_long_releases_across_chunks(stream):
    source = SecureGaussian()
    query = torch.arange(70_000 * 2, dtype=torch.float64).reshape(2, 70_000)
    whole = source.release(query, stream=stream.child(1))
    assert torch.equal(whole, source.release(query.T.contiguous().T, stream=stream.child(1)))
    error = (whole - query).flatten().numpy()
    assert scipy.stats.kstest(error, "norm").pvalue > 1e-3
    assert abs(np.corrcoef(error[:-1], error[1:])[0, 1]) < 0.02


# what it promises


def plane_delta(epsilon, *, scale, shift):
    """δ(ε) of the discrete Gaussian in the plane at an integer shift, summed over all points."""
    reach = math.ceil(12 * scale) + 6
    z = np.arange(-reach, reach + 1)
    mass, *moved = (np.exp(-0.5 * ((z + by) / scale) ** 2) for by in (0, *shift))
    pair = (np.outer(a, b) / mass.sum() ** 2 for a, b in ((mass, mass), moved))
    return float(hockey_stick(*pair, math.exp(epsilon)))


@pytest.mark.parametrize("scale", [1.0, 3.0, 20.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-5, 1e-2])
def test_the_bounds_hold_in_the_plane(scale, delta):
    bounds = discrete_gaussian_bounds(delta, scale=scale, sensitivity=5.0, dim=2)
    for shift in [(3, 4), (5, 0), (1, 0), (2, 2)]:
        assert plane_delta(bounds.high, scale=scale, shift=shift) <= delta * (1 + 1e-9)
    if bounds.low > 0:
        assert plane_delta(bounds.low * (1 - 1e-9), scale=scale, shift=(5, 0)) >= delta


def test_the_bounds_are_tight_on_a_fine_lattice():
    for dim in (1, 1000):
        bounds = SecureGaussian(sigma=2.0).epsilon(
            1e-6, host=SimpleNamespace(dim=dim, sensitivity=1.0)
        )
        continuous = gaussian_epsilon(1e-6, sigma=2.0)
        assert bounds.low < continuous < bounds.high
        assert bounds.high - bounds.low < 1e-4


def test_one_dimension_is_the_sum_of_theorem_7():
    """δ = P[Z > a] − e^ε·P[Z > a + m], a = εσ²/m − m/2, by mpmath."""
    scale, shift, epsilon = 2.5, 3, 0.8
    a = epsilon * scale**2 / shift - shift / 2
    with mpmath.workdps(40):
        weight = {z: mpmath.exp(-number(Fraction(2 * z * z, 25))) for z in range(-80, 81)}
        above = [sum(w for z, w in weight.items() if z > b) for b in (a, a + shift)]
        want = float((above[0] - mpmath.exp(epsilon) * above[1]) / sum(weight.values()))
    for signed in (shift, -shift):
        found = discrete_gaussian_delta(epsilon, scale=scale, shift=signed)
        assert found == pytest.approx(want, rel=1e-12)


def test_a_coarse_lattice_pays_for_its_rounding():
    """Neighbours 1 apart may round to 2 steps of 1/2 more: the worst pair stays below the bound."""
    source = SecureGaussian(sigma=2.0, granularity=0.5)
    bounds = source.epsilon(1e-5, host=LINE)
    shifts = {abs(round(a / 0.5) - round((a + 1.0) / 0.5)) for a in np.linspace(0, 2, 4001)}
    assert shifts == {2, 3} or shifts == {2}
    for shift in shifts:
        assert discrete_gaussian_delta(bounds.high, scale=4.0, shift=shift) <= 1e-5
    assert bounds.low < gaussian_epsilon(1e-5, sigma=2.0) < bounds.high


@pytest.mark.slow
def test_releases_at_neighbours_cannot_be_told_apart_better_than_promised(stream):
    """All half-lines and residues modulo small powers of two: δ at the claimed ε stays below δ."""
    source, n, delta = SecureGaussian(), 200_000, 1e-2
    factor = math.exp(source.epsilon(delta, host=LINE).high)
    at0, at1 = (
        source.release(column(*[v] * n), stream=stream.child(str(v))).numpy().ravel()
        for v in (0.0, 1.0)
    )
    slack = 6 * math.sqrt(0.25 / n) * (1 + factor)
    for low, high in ((at0, at1), (at1, at0)):
        for cut, sign in itertools.product(np.linspace(-2, 3, 101), (1, -1)):
            share = (sign * low > sign * cut).mean()
            assert (sign * high > sign * cut).mean() <= factor * share + delta + slack
        steps = [(x / source.granularity).astype(np.int64) for x in (low, high)]
        for size in (2, 4, 8, 16, 32):
            both = [np.bincount(x % size, minlength=size) for x in steps]
            assert scipy.stats.chi2_contingency(both).pvalue > 1e-4
