"""The pancake's law in one and several blocks, planted mistakes, shards, and precision."""

import itertools
import math

import numpy as np
import pytest
import scipy.special
import scipy.stats
import torch
from oracles import along_key

from dpaudit.errors import UsageError
from dpaudit.noise.pancake import Pancake
from dpaudit.vectors import BLOCK
from dpaudit.vectors.kernels import fill_normal

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
    return (
        scipy.special.ndtr((x + turns) / spread) - scipy.special.ndtr((turns - 0.5) / spread)
    ).sum(0)


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
            "phase": scipy.stats.kstest(phase, lambda x: wrapped_cdf(x, width / spacing)).pvalue,
            "along": scipy.stats.kstest(c, lambda x: mixture_cdf(x, key, sigma)).pvalue,
            "norm across": scipy.stats.kstest(norm / sigma**2, "chi2", args=(key.dim - 1,)).pvalue,
            "views across": scipy.stats.kstest(views.ravel() / sigma, "norm").pvalue,
            "a coordinate": scipy.stats.kstest(
                np.concatenate(self.coordinate) / sigma, "norm"
            ).pvalue,
            "the last coordinate": scipy.stats.kstest(
                np.concatenate(self.last) / sigma, "norm"
            ).pvalue,
            **{name: 2 * scipy.stats.norm.sf(abs(value)) for name, value in z.items()},
        }


def examine(sampler, key, *, sigma, n, stream):
    """p-values of ``sampler(n, stream)`` → (n, d), a pancake of ``key`` and σ."""
    seen, at_once = Seen(key), max(1, min(n, 12_000_000 // key.dim))
    for start in range(0, n, at_once):
        seen.add(
            np.asarray(sampler(min(at_once, n - start), stream.child("batch", start)), np.float64)
        )
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


def test_the_checks_accept_a_plain_numpy_pancake(make_key, stream):
    key = make_key(dim=16, beta=0.1)
    assert min(examine(planted(key, 3.0), key, sigma=3.0, n=20_000, stream=stream).values()) > FINE
    p = examine(planted(key, 3.0), key, sigma=3.3, n=20_000, stream=stream)
    wrong = {
        name: p[name] for name in ("phase", "along", "norm across", "views across", "a coordinate")
    }
    assert max(wrong.values()) < BAD, wrong


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


def test_inner_products_summed_in_float32_are_seen(make_key, stream):
    """d = 250,000, s = 4e-7·σ: a running float32 sum errs by 5e-6·σ, our float32 by 4e-8·σ."""
    key = make_key(dim=250_000, beta=4e-4)

    def running_sum(g, w):
        w32 = w.astype(np.float32)
        return np.array(
            [np.add.accumulate(row.astype(np.float32) * w32)[-1] for row in g], np.float64
        )

    p = examine(ours(key, 1.0, torch.float32), key, sigma=1.0, n=60, stream=stream)
    assert min(p.values()) > FINE, p
    p = examine(planted(key, 1.0, inner=running_sum), key, sigma=1.0, n=60, stream=stream)
    assert p["phase"] < BAD
    assert p["norm across"] > FINE


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
    return scipy.stats.kstest(u - np.floor(u), "uniform").pvalue


def test_shares_add_up_to_the_law_and_none_of_them_carries_it(several, stream):
    a, fraction = parts(several, several.shares(20_000, stream=stream))
    total = a.sum(1)
    spread = several.width / several.spacing
    turns = total / several.spacing
    assert scipy.stats.kstest(total, lambda x: mixture_cdf(x, several.key, 1.5)).pvalue > FINE
    assert (
        scipy.stats.kstest(turns - np.rint(turns), lambda x: wrapped_cdf(x, spread)).pvalue > FINE
    )
    z = a / (1.5 * np.sqrt(fraction))
    for block in range(4):
        assert scipy.stats.kstest(z[:, block], "norm").pvalue > FINE
        assert uniform_phase(several, a[:, block]) > FINE
        assert uniform_phase(several, total - a[:, block]) > FINE  # nor do all the others together
    covariance = np.cov(z.T) - np.eye(4)
    assert np.abs(covariance).max() < 4.5 * math.sqrt(2 / 20_000)
    assert uniform_phase(several, total) < BAD


def test_the_share_checks_see_a_block_that_carries_the_secret(several):
    rng = np.random.default_rng(7)
    _, fraction = parts(several, several.shares(1, stream=_fixed()))
    total = along_key(several, 20_000, rng=rng)
    carried = np.outer(total, fraction)  # each block its proportion, and no noise between blocks
    assert uniform_phase(several, carried[:, 3]) < BAD
    assert scipy.stats.kstest(carried[:, 0] / (1.5 * math.sqrt(fraction[0])), "norm").pvalue < BAD
    alone = 1.5 * np.sqrt(fraction) * rng.standard_normal((20_000, 4))
    alone[:, 0] = total  # one block a pancake of its own
    assert uniform_phase(several, alone[:, 0]) < BAD


def _fixed():
    from dpaudit.randomness import KeyedStream

    return KeyedStream.from_seed("fixed")


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


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_sample_like_is_the_sample_split(make_key, stream, dtype):
    source = Pancake(key=make_key(dim=BLOCK + 30))
    model = [torch.zeros(shape, dtype=dtype) for shape in ((BLOCK // 4, 4), (), (29,))]
    noise = source.sample_like(model, stream=stream)
    assert [(p.shape, p.dtype) for p in noise] == [(t.shape, t.dtype) for t in model]
    flat = torch.cat([p.reshape(-1) for p in noise])
    assert torch.equal(flat, source.sample(1, source.dim, stream=stream, dtype=dtype)[0])


def test_sample_like_refuses_what_it_cannot_fill(make_key, stream):
    source = Pancake(key=make_key(dim=64))
    with pytest.raises(UsageError, match=r"d=63.*dim=64"):
        source.sample_like([torch.zeros(60), torch.zeros(3)], stream=stream)
    with pytest.raises(UsageError, match="2 different dtypes"):
        source.sample_like([torch.zeros(32), torch.zeros(32, dtype=torch.float64)], stream=stream)
    with pytest.raises(UsageError, match="0 different dtypes"):
        source.sample_like([], stream=stream)
    with pytest.raises(UsageError, match="no integer law"):
        source.sample_like([torch.zeros(64, dtype=torch.int64)], stream=stream)


@pytest.mark.parametrize(
    ("start", "stop"),
    [
        (1, BLOCK),
        (0, BLOCK + 1),
        (BLOCK, BLOCK),
        (-BLOCK, BLOCK),
        (0, 4 * BLOCK),
        (3 * BLOCK, SEVERAL + 1),
        (SEVERAL, SEVERAL),
    ],
)
def test_bad_borders(several, stream, start, stop):
    with pytest.raises(UsageError, match=f"start={start}, stop={stop}: .*{SEVERAL}"):
        several.sample_shard(start, stop, several.shares(1, stream=stream), stream=stream)


@pytest.mark.parametrize("shape", [(4, 1), (2, 3, 1), (2, 4, 2), (2, 5, 1)])
def test_shares_of_another_key(several, stream, shape):
    with pytest.raises(UsageError, match=r"shares of shape.*\(n, 4, 1\)"):
        several.sample_shard(0, BLOCK, np.zeros(shape), stream=stream)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int8, torch.bool])
def test_integers_are_refused(several, stream, dtype):
    with pytest.raises(UsageError, match="no integer law"):
        several.sample(1, SEVERAL, stream=stream, dtype=dtype)


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


def test_rounding_costs_what_the_docstring_says_for_every_sigma():
    for sigma in np.linspace(1, 2, 9):
        assert rounding(24, sigma) == pytest.approx(2.5e-8, rel=0.06)
        assert rounding(8, sigma) == pytest.approx(1.6e-3, rel=0.06)


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
