"""The pancake's law in one and several blocks, planted mistakes, shards, precision, and ε."""

import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.special
import scipy.stats
import torch
from oracles import along_key
from pancake_oracle import epsilon_by_definition

from dpaudit.accounting import pancake_epsilon, pancake_epsilon_lower, pancake_host_epsilon
from dpaudit.errors import UsageError
from dpaudit.noise.pancake import Pancake
from dpaudit.numeric import BLOCK
from dpaudit.numeric.kernels import fill_discrete_gaussian, fill_normal
from dpaudit.queries.gradients.step import DpSgdStep
from dpaudit.queries.histogram import Histogram
from dpaudit.testing import check_noise_source

FINE, BAD = 1e-3, 1e-6
SEVERAL = 3 * BLOCK + 17


def spacing_and_width(key, sigma):
    r2 = key.beta**2 + key.gamma**2
    return math.sqrt(2 * math.pi) * sigma * key.gamma / r2, sigma * key.beta / math.sqrt(r2)


def mixture_cdf(x, key, sigma):
    """Lemma 2.6 written out: the slow oracle."""
    spacing, width = spacing_and_width(key, sigma)
    reach = math.ceil(9 * sigma / spacing)
    k = np.arange(-reach, reach + 1)
    weight = np.exp(-math.pi * k**2 / (key.beta**2 + key.gamma**2))
    weight /= weight.sum()
    parts = (
        weight @ scipy.special.ndtr((np.atleast_1d(x) - k[:, None] * spacing) / width)
        for x in np.array_split(x, 50)
    )
    return np.concatenate(list(parts))


def wrapped_cdf(x, spread):
    """N(0, spread²) modulo 1, from −1/2."""
    turns = np.arange(-40, 41)[:, None]
    upper, lower = (scipy.special.ndtr(y / spread) for y in (x + turns, turns - 0.5))
    return (upper - lower).sum(0)


def p_value(x, law, **options):
    """Kolmogorov and Smirnov's p-value."""
    return scipy.stats.kstest(x, law, **options).pvalue


class Seen:
    """What the checks need of many releases, gathered batch by batch."""

    def __init__(self, key):
        w = key.direction
        rng = np.random.default_rng(11)
        across = rng.standard_normal((min(4, key.dim - 1), key.dim))
        basis = np.linalg.qr(np.vstack([w, across]).T)[0].T
        self.w, self.across, self.rng = w, basis[1:], rng
        self.along, self.norm, self.views, self.coordinate, self.last = [], [], [], [], []

    def add(self, v):
        c = v @ self.w
        self.along.append(c)
        self.norm.append((v * v).sum(1) - c * c)
        self.views.append(v @ self.across.T)
        index = self.rng.integers(0, v.shape[1], len(v))
        for at, kept in ((index, self.coordinate), (np.full(len(v), -1), self.last)):
            kept.append((v[np.arange(len(v)), at] - c * self.w[at]) / np.sqrt(1 - self.w[at] ** 2))

    def p_values(self, key, sigma):
        """The whole law: exact along w, Gaussian across it, independent, as are releases."""
        spacing, width = spacing_and_width(key, sigma)
        c, norm, views = (np.concatenate(x) for x in (self.along, self.norm, self.views))
        turns = c / spacing
        phase = turns - np.rint(turns)
        normal = np.sqrt(2) * np.cos(2 * math.pi * phase), (views[:, 0] / sigma)
        lone = phase - phase.mean()
        z = {
            "phase and the next": (lone[:-1] * lone[1:]).sum() / (np.sqrt(len(c)) * lone.var()),
            "phase and across": ((normal[0] - normal[0].mean()) * normal[1]).sum()
            / (np.sqrt(len(c)) * normal[0].std()),
            "size along and across": np.sqrt(len(c))
            * scipy.stats.spearmanr(np.abs(c), norm).statistic,
        }
        return {
            "phase": p_value(phase, lambda x: wrapped_cdf(x, width / spacing)),
            "along": p_value(c, lambda x: mixture_cdf(x, key, sigma)),
            "norm across": p_value(norm / sigma**2, "chi2", args=(key.dim - 1,)),
            "views across": p_value(views.ravel() / sigma, "norm"),
            "a coordinate": p_value(np.concatenate(self.coordinate) / sigma, "norm"),
            "the last coordinate": p_value(np.concatenate(self.last) / sigma, "norm"),
            **{name: 2 * scipy.stats.norm.sf(abs(value)) for name, value in z.items()},
        }


def examine(sampler, key, *, sigma, n, stream):
    """p-values of ``sampler(n, stream)`` → (n, d), a pancake of ``key`` and σ."""
    seen, at_once = Seen(key), max(1, min(n, 12_000_000 // key.dim))
    for start in range(0, n, at_once):
        part = sampler(min(at_once, n - start), stream.child("batch", start))
        seen.add(np.asarray(part, np.float64))
    return seen.p_values(key, sigma)


def ours(key, sigma, dtype=torch.float64):
    source = Pancake(key=key, sigma=sigma)
    return lambda n, stream: source.sample(n, key.dim, stream=stream, dtype=dtype).double().numpy()


def planted(key, sigma, *, along=None, inner=None):
    """v = g + (c − ⟨g,w⟩)·w in plain numpy, with the mistake passed in."""

    def law(n, rng):
        r = math.hypot(key.beta, key.gamma)
        reach = math.ceil(4 * r)
        k = np.arange(-reach, reach + 1)
        weight = np.exp(-math.pi * k**2 / r**2)
        spacing, width = spacing_and_width(key, sigma)
        return rng.choice(k, n, p=weight / weight.sum()) * spacing + width * rng.standard_normal(n)

    def sampler(n, stream):
        rng, g = stream.numpy(), np.empty((n, key.dim))
        fill_normal(g, sigma=sigma, stream=stream)
        c = (along or law)(n, rng)
        return g + np.outer(c - (inner or np.matmul)(g, key.direction), key.direction)

    return sampler


@pytest.mark.parametrize(
    ("d", "beta", "sigma", "n", "dtype"),
    [
        (16, 0.1, 3.0, 60_000, torch.float64),
        (16, 1.0, 0.5, 20_000, torch.float32),
        (BLOCK + 1, 0.1, 3.0, 800, torch.float32),
        (SEVERAL, 0.05, 1.5, 800, torch.float64),
    ],
)
def test_law(make_key, stream, d, beta, sigma, n, dtype):
    """800 of the long ones show a distance of 0.07 from a law, 0.006 in |v|."""
    key = make_key(dim=d, beta=beta)
    p = examine(ours(key, sigma, dtype), key, sigma=sigma, n=n, stream=stream)
    assert min(p.values()) > FINE, p


@pytest.mark.slow
def test_the_checks_accept_a_plain_numpy_pancake(make_key, stream):
    key = make_key(dim=16, beta=0.1)
    assert min(examine(planted(key, 3.0), key, sigma=3.0, n=20_000, stream=stream).values()) > FINE
    p = examine(planted(key, 3.0), key, sigma=3.3, n=20_000, stream=stream)
    for name in ("phase", "along", "norm across", "views across", "a coordinate"):
        assert p[name] < BAD, name


def test_forgetting_sigma_along_the_key_is_seen(make_key, stream):
    key = make_key(dim=16, beta=0.1)
    one = Pancake(key=key, sigma=1.0)
    sampler = planted(key, 3.0, along=lambda n, rng: along_key(one, n, rng=rng))
    p = examine(sampler, key, sigma=3.0, n=20_000, stream=stream)
    assert p["along"] < BAD
    assert p["phase"] < BAD
    assert min(p["norm across"], p["views across"]) > FINE  # and nothing else is


def test_rounding_a_normal_to_the_peaks_is_seen(make_key, stream):
    """Where peaks are few: at γ = 1.2 the rounded normal gives the middle peak 0.70, not 0.82."""
    key = make_key(dim=16, beta=0.1, gamma=1.2, allow_small_gamma=True)
    spacing, width = spacing_and_width(key, 3.0)
    scale = math.hypot(key.beta, key.gamma) / math.sqrt(2 * math.pi)

    def rounded(n, rng):
        return np.rint(rng.normal(0, scale, n)) * spacing + width * rng.standard_normal(n)

    assert min(examine(ours(key, 3.0), key, sigma=3.0, n=20_000, stream=stream).values()) > FINE
    p = examine(planted(key, 3.0, along=rounded), key, sigma=3.0, n=20_000, stream=stream)
    assert p["along"] < BAD
    assert p["phase"] > FINE  # the phase alone would not have told


@pytest.mark.slow
def test_inner_products_summed_in_float32_are_seen(make_key, stream):
    """d = 250,000, s = 4e-7·σ: a running float32 sum errs by 5e-6·σ, our float32 by 4e-8·σ."""
    key = make_key(dim=250_000, beta=4e-4)

    def running_sum(g, w):
        w32 = w.astype(np.float32)
        sums = [np.add.accumulate(row.astype(np.float32) * w32)[-1] for row in g]
        return np.array(sums, np.float64)

    p = examine(ours(key, 1.0, torch.float32), key, sigma=1.0, n=60, stream=stream)
    assert min(p.values()) > FINE, p
    p = examine(planted(key, 1.0, inner=running_sum), key, sigma=1.0, n=60, stream=stream)
    assert p["phase"] < BAD
    assert p["norm across"] > FINE


@pytest.mark.slow
def test_other_departures_are_seen(make_key, stream):
    key, good = make_key(dim=16, beta=0.1), ours(make_key(dim=16, beta=0.1), 3.0)

    def look(change):
        return examine(lambda n, s: change(good(n, s)), key, sigma=3.0, n=20_000, stream=stream)

    w = key.direction

    def frozen_last(v):
        c = v @ w
        v[:, -1] *= 1.1
        return v + np.outer(c - v @ w, w)

    assert look(frozen_last)["the last coordinate"] < BAD

    def phase_follows_across(v):
        across = np.random.default_rng(11).standard_normal((4, 16))
        u = np.linalg.qr(np.vstack([w, across]).T)[0].T[1]
        spacing = spacing_and_width(key, 3.0)[0]
        sharp = np.abs(v @ w / spacing - np.rint(v @ w / spacing)) < 0.02
        return v + np.outer(np.where(sharp, 2.0, -0.5) * np.abs(v @ u) * 0.2, u)

    assert look(phase_follows_across)["phase and across"] < BAD

    def repeats(v):
        along = np.outer(v @ w, w)
        return v - along + along[np.arange(len(v)) // 2 * 2]

    assert look(repeats)["phase and the next"] < BAD


# ---------------------------------------------------------------- block shares


@pytest.fixture
def several(make_key):
    return Pancake(key=make_key(dim=SEVERAL, beta=0.05), sigma=1.5)


def parts(source, shares):
    """Shares of one direction in units of w (n, blocks), and each block's share of |w|²."""
    w = source.key.vectors[0].astype(np.float64)
    squares = np.array([(w[low : low + BLOCK] ** 2).sum() for low in range(0, source.dim, BLOCK)])
    return shares[:, :, 0] / math.sqrt(squares.sum()), squares / squares.sum()


def uniform_phase(source, x):
    u = x / source.spacing
    return p_value(u - np.floor(u), "uniform")


@pytest.mark.slow
def test_shares_add_up_to_the_law_and_none_of_them_carries_it(several, stream):
    a, fraction = parts(several, several.shares(20_000, stream=stream))
    total = a.sum(1)
    spread = several.width / several.spacing
    turns = total / several.spacing
    assert p_value(total, lambda x: mixture_cdf(x, several.key, 1.5)) > FINE
    assert p_value(turns - np.rint(turns), lambda x: wrapped_cdf(x, spread)) > FINE
    z = a / (1.5 * np.sqrt(fraction))
    for block in range(4):
        assert p_value(z[:, block], "norm") > FINE
        assert uniform_phase(several, a[:, block]) > FINE
        assert uniform_phase(several, total - a[:, block]) > FINE  # nor do all the others together
    covariance = np.cov(z.T) - np.eye(4)
    assert np.abs(covariance).max() < 4.5 * math.sqrt(2 / 20_000)
    assert uniform_phase(several, total) < BAD


def test_the_share_checks_see_a_block_that_carries_the_secret(several, stream):
    rng = np.random.default_rng(7)
    _, fraction = parts(several, several.shares(1, stream=stream))
    total = along_key(several, 20_000, rng=rng)
    carried = np.outer(total, fraction)  # each block its proportion, and no noise between blocks
    assert uniform_phase(several, carried[:, 3]) < BAD
    assert p_value(carried[:, 0] / (1.5 * math.sqrt(fraction[0])), "norm") < BAD
    alone = 1.5 * np.sqrt(fraction) * rng.standard_normal((20_000, 4))
    alone[:, 0] = total  # one block a pancake of its own
    assert uniform_phase(several, alone[:, 0]) < BAD


def test_blocks_of_the_noise_have_their_shares(make_key, stream):
    for k in (1, 3):
        source = Pancake(key=make_key(dim=SEVERAL, directions=k), sigma=1.5)
        shares = source.shares(4, stream=stream)
        v = source.sample(4, SEVERAL, stream=stream)
        w = source.key.vectors.astype(np.float64)
        norm = math.sqrt((w[0] ** 2).sum())
        for block, low in enumerate(range(0, SEVERAL, BLOCK)):
            there = v[:, low : low + BLOCK] @ w[:, low : low + BLOCK].T
            assert there / norm == pytest.approx(shares[:, block] / norm, abs=1e-13)


# ---------------------------------------------------------------- shards


@pytest.mark.slow
@pytest.mark.parametrize(
    ("d", "k", "dtype"),
    [
        (16, 3, torch.float64),
        (BLOCK + 1, 3, torch.float32),
        (SEVERAL, 3, torch.float64),
        (SEVERAL, 1, torch.float32),
        (SEVERAL, 1, torch.bfloat16),
    ],
)
def test_shards_joined_are_the_whole_bit_for_bit(make_key, stream, d, k, dtype):
    source = Pancake(key=make_key(dim=d, directions=k), sigma=1.5)
    whole, shares = source.sample(3, d, stream=stream, dtype=dtype), source.shares(3, stream=stream)
    assert whole.dtype == dtype
    for edges in ([0, *range(BLOCK, d, BLOCK), d], [0, *range(2 * BLOCK, d, 2 * BLOCK), d]):
        shards = [
            source.sample_shard(a, b, shares, stream=stream, dtype=dtype)
            for a, b in itertools.pairwise(edges)
        ]
        assert torch.equal(whole, torch.cat(shards, 1))


def test_threads_do_not_change_the_numbers(make_key, stream):
    source = Pancake(key=make_key(dim=40 * BLOCK + 3, directions=2))
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = source.sample(2, source.dim, stream=stream, dtype=torch.float32)
        torch.set_num_threads(2)
        assert torch.equal(one, source.sample(2, source.dim, stream=stream, dtype=torch.float32))
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("start", "stop"),
    [(1, BLOCK), (0, BLOCK + 1), (BLOCK, BLOCK), (-BLOCK, BLOCK), (0, 4 * BLOCK), (SEVERAL,) * 2],
)
def test_bad_borders(several, stream, start, stop):
    with pytest.raises(UsageError, match=f"start={start}, stop={stop}: .*{SEVERAL}"):
        several.sample_shard(start, stop, several.shares(1, stream=stream), stream=stream)


def test_what_it_cannot_fill_is_refused(make_key, several, stream):
    small = Pancake(key=make_key(dim=64))
    with pytest.raises(UsageError, match=r"d=65.*dim=64"):
        small.sample(1, 65, stream=stream, dtype=torch.float64)
    for dtype in (torch.int64, torch.bool):
        with pytest.raises(UsageError, match="no integer law"):
            several.sample(1, SEVERAL, stream=stream, dtype=dtype)
    for shape in ((4, 1), (2, 3, 1), (2, 4, 2), (2, 5, 1)):  # of another key
        with pytest.raises(UsageError, match=r"shares of shape.*\(n, 4, 1\)"):
            several.sample_shard(0, BLOCK, np.zeros(shape), stream=stream)


# ---------------------------------------------------------------- precision at release


def blur(source, stream, *, n, draw, release):
    """Width, over the values' root mean square, of ⟨v,w_j⟩ − what was drawn for it.

    By quartiles: about one float32 block in five thousand is off by ten times as much, because w is
    whole numbers and their multiples by a factor that is nearly a whole number of ulps are all
    rounded the same way.
    """
    shares = source.shares(n, stream=stream)
    lower = np.linalg.cholesky(source.key.gram())
    wanted = np.linalg.solve(lower, shares.sum(1).T).T
    drawn = source.sample_shard(0, source.dim, shares, stream=stream, dtype=draw)
    v = drawn.to(release).double().numpy()
    error = np.abs(v @ source.key.basis.T - wanted)
    return np.median(error) / scipy.stats.norm.ppf(0.75) / math.sqrt((v * v).mean())


def rounding(bits, sigma):
    """Root mean square, over σ, of rounding N(0, σ²) to ``bits`` binary digits."""
    octave = np.arange(-60.0, 10)
    share = 2 * (
        scipy.special.ndtr(2 ** (octave + 1) / sigma) - scipy.special.ndtr(2**octave / sigma)
    )
    return math.sqrt((share * 4.0 ** (octave - bits + 1)).sum() / 12) / sigma


@pytest.mark.parametrize(("d", "n", "k"), [(256, 4000, 1), (256, 1000, 4), (SEVERAL, 200, 4)])
def test_blur_of_the_phase_is_what_the_docstring_says(make_key, stream, d, n, k):
    source = Pancake(key=make_key(dim=d, directions=k), sigma=3.0)
    single, half = rounding(24, 3.0), rounding(8, 3.0)

    def measured(draw, release):
        return blur(source, stream, n=n, draw=draw, release=release)

    assert measured(torch.float64, torch.float64) < 3e-15
    assert measured(torch.float64, torch.float32) == pytest.approx(single, rel=0.1)
    assert measured(torch.float32, torch.float32) == pytest.approx(
        single * math.sqrt(2 + k), rel=0.12
    )
    assert measured(torch.float32, torch.bfloat16) == pytest.approx(half, rel=0.1)


# ---------------------------------------------------------------- the peaks


def misfit(x, scale):
    """χ² p-value of whole numbers against the discrete Gaussian's mass."""
    reach = math.ceil(12 * scale)
    k = np.arange(-reach, reach + 1)
    mass = np.exp(-(k**2) / (2 * scale**2))
    due = mass / mass.sum() * len(x)
    keep, count = due > 8, np.bincount(x + reach, minlength=len(k))
    return scipy.stats.chi2.sf(((count - due)[keep] ** 2 / due[keep]).sum(), keep.sum() - 1)


@pytest.mark.parametrize("scale", [0.3, 1.0, 12.7, 400.0])
def test_discrete_gaussian_against_its_mass_function(scale, stream):
    x = np.empty(200_000, np.int64)
    fill_discrete_gaussian(x, scale=scale, stream=stream)
    assert misfit(x, scale) > FINE


def test_a_rounded_normal_is_not_the_law():
    """Power of the test above: at scale 0.5 the usual shortcut fails it."""
    x = np.rint(np.random.default_rng(5).normal(0, 0.5, 200_000)).astype(int)
    assert misfit(x, 0.5) < BAD


# ---------------------------------------------------------------- ε


@pytest.mark.parametrize("options", [{}, {"dim": BLOCK + 3}, {"directions": 3}])
def test_conforms(make_key, options):
    check_noise_source(Pancake(key=make_key(**options), sigma=2.0))


def test_epsilon_bounds_bracket_and_shrink_with_beta(make_key):
    host = Histogram()
    bounds = [
        Pancake(key=make_key(dim=host.dim, beta=b), sigma=22.3).epsilon(1e-10, host=host)
        for b in (1e-4, 1e-2, 1.0)
    ]
    assert all(b.low <= b.high for b in bounds)
    assert bounds[0].low > 1e5
    assert bounds[0].low > bounds[1].low >= bounds[2].low


@pytest.mark.slow
def test_epsilon_ranges_over_every_bin_that_a_neighbour_may_change(make_key, tmp_path):
    """Not only over those that hold records: brute force over all d unit vectors, Lemma 2.6."""
    (tmp_path / "t.csv").write_text("a,0\n" * 3 + "b,100\n" + "c,0\n" * 2)
    key = make_key(dim=6, beta=0.1, gamma=8.0, allow_small_gamma=True)
    pancake, host = Pancake(key=key, sigma=1.5), Histogram(table=str(tmp_path / "t.csv"))
    law = {"sigma": 1.5, "beta": 0.1, "gamma": 8.0}
    each = [
        epsilon_by_definition(1e-4, **law, along=abs(a), across=math.sqrt(1 - a * a))
        for a in key.direction
    ]
    got = pancake.epsilon(1e-4, host=host)
    assert got.low <= max(each) * (1 + 1e-4)
    assert got.high >= max(each) * (1 - 1e-4)
    assert each[3] < 0.1 * max(each)  # the only bin with records


@pytest.mark.slow
def test_epsilon_over_a_clipping_ball_is_not_one_batchs(make_key):
    """A change of half a turn is inside the ball; the batch at hand has none."""
    host = DpSgdStep(model="mlp", batch=16, clip=0.5)
    pancake = Pancake(key=make_key(dim=host.dim, beta=1e-2), sigma=22.4 * host.sensitivity)
    law = {"sigma": pancake.sigma, "beta": 1e-2, "gamma": pancake.key.gamma}
    half = math.sqrt(math.pi / 2) * pancake.sigma / pancake.key.gamma
    assert half < host.sensitivity
    across = math.sqrt(host.sensitivity**2 - half**2)
    got = pancake.epsilon(1e-6, host=host)
    assert got.low == pytest.approx(
        pancake_epsilon(1e-6, **law, along=half, across=across).value, rel=1e-6
    )
    along = host.differences(pancake.key.direction)
    batch = pancake_host_epsilon(1e-6, **law, sensitivity=host.sensitivity, along=along)
    assert batch.value + batch.error < got.low < got.high < 1.001 * got.low
    several = Pancake(
        key=make_key(dim=host.dim, beta=1e-2, directions=2), sigma=pancake.sigma
    ).epsilon(1e-6, host=host)
    assert several.low == pancake_epsilon_lower(
        1e-6, beta=1e-2, gamma=pancake.key.gamma, fraction=0.5
    )


@pytest.mark.parametrize("directions", [1, 2])
def test_how_far_a_difference_may_be_off_is_in_epsilon(make_key, directions):
    """As behind a lattice: a component within 0.1 turns of 0 is as exposed as one at 0.1."""
    pancake = Pancake(key=make_key(dim=8, beta=1e-2, directions=directions), sigma=5.0)
    turn = pancake.spacing
    assert 0.1 * turn < 1.0

    def epsilon(along, slack):
        parts = {"differences": lambda _: np.array([along]), "slack": lambda _: slack}
        return pancake.epsilon(1e-6, host=SimpleNamespace(dim=8, sensitivity=1.0, **parts))

    exact, off, none = epsilon(0.1 * turn, 0.0), epsilon(0.0, 0.1 * turn), epsilon(0, 0)
    assert off.low == pytest.approx(exact.low, rel=1e-6)
    assert off.low > 1.5 * none.low


# ---------------------------------------------------------------- several directions


def phases(source, c):
    return c / source.spacing - np.rint(c / source.spacing)


def dependence(a, b):
    """χ² of two samples of one law on an 8 × 8 grid of their own quantiles."""
    cells = [np.searchsorted(np.quantile(x, np.arange(1, 8) / 8), x) for x in (a, b)]
    table = np.bincount(cells[0] * 8 + cells[1], minlength=64).reshape(8, 8)
    return scipy.stats.chi2_contingency(table).pvalue


@pytest.mark.slow
@pytest.mark.parametrize(
    ("d", "n", "dtype"),
    [(16, 20_000, torch.float64), (16, 20_000, torch.float32), (BLOCK + 1, 1000, torch.float32)],
)
def test_each_direction_has_the_law_and_they_are_independent(make_key, stream, d, n, dtype):
    """d = 16,385: the last block has one coordinate for three directions: rank 1."""
    k, sigma = 3, 2.0
    source = Pancake(key=make_key(dim=d, beta=0.3, directions=k), sigma=sigma)
    c, rest = [], []
    for part in range(0, n, 1000):
        v = source.sample(1000, d, stream=stream.child(part), dtype=dtype).double().numpy()
        along = v @ source.key.basis.T
        c.append(along)
        rest.append((v**2).sum(1) - (along**2).sum(1))
    c, rest = np.concatenate(c), np.concatenate(rest) / sigma**2
    phase, spread = phases(source, c), source.width / source.spacing
    for j in range(k):
        for factor in (1.0, 1.3):
            found = p_value(factor * phase[:, j], lambda x: wrapped_cdf(x, spread))
            assert (found > 1e-3) == (factor == 1)
        for factor in (1.0, 1.4):
            found = p_value(factor * c[:, j], lambda x: mixture_cdf(x, source.key, sigma))
            assert (found > 1e-3) == (factor == 1)
        for i in range(j):
            assert dependence(c[:, i], c[:, j]) > 1e-3
            assert dependence(phase[:, i], phase[:, j]) > 1e-3
            assert dependence(phase[:, i], phase[:, i] + 2 * phase[:, j]) < 1e-9
    assert scipy.stats.kstest(rest, "chi2", args=(d - k,)).pvalue > 1e-3
    if d == 16:
        assert scipy.stats.kstest(rest, "chi2", args=(d - k + 1,)).pvalue < 1e-9


def test_one_draw_used_for_all_directions_would_be_seen(make_key):
    source = Pancake(key=make_key(dim=16, beta=0.3, directions=2))
    c = along_key(source, 3000, rng=np.random.default_rng(2))
    other = along_key(source, 3000, rng=np.random.default_rng(3))
    assert dependence(phases(source, c), phases(source, other)) > 1e-3
    assert dependence(phases(source, c), phases(source, c)) < 1e-9


def test_a_single_vector_of_the_noise_is_not_a_pancake_along_another_key(make_key, stream):
    source = Pancake(key=make_key(dim=64, beta=0.1, directions=3))
    v = source.sample(20_000, 64, stream=stream)
    c = v @ make_key(dim=64, tag="b").direction
    assert scipy.stats.kstest(phases(source, c) + 0.5, "uniform").pvalue > 1e-3
    # between two of its own directions
    mixed = v @ (source.key.basis[0] + source.key.basis[1]) / np.sqrt(2)
    spread = source.width / source.spacing
    assert p_value(phases(source, mixed), lambda x: wrapped_cdf(x, spread)) < 1e-9
