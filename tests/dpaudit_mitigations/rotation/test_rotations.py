"""All rotations: lattice, lengths, laws, seeds of two parties, and what a key holder is left."""

import math
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import scipy
import scipy.stats
import torch
from support.attacks import possible
from support.keyed_attackers import guesses

from dpaudit import registry
from dpaudit.errors import UsageError
from dpaudit.noise.gaussian import Gaussian
from dpaudit.numeric.lattice import lattice_step
from dpaudit.stats import clopper_pearson
from dpaudit_attacks.floating_point.reach import Reach
from dpaudit_mitigations.none import NoMitigation
from dpaudit_mitigations.rotation.fresh import Randomness, Rotation
from dpaudit_mitigations.rotation.tensors import (
    DenseRotation,
    SharedRotation,
    StructuredRotation,
    haar_matrix,
)

ALL = (
    "rotation",
    "rotation:renorm=chi",
    "rotation:randomness=csprng",
    "shared-rotation",
    "dense-rotation:shared=true",
    "structured-rotation:transform=hadamard",
)
TRIALS = 2000  # a key holder right in 54 % of them is outside the interval below


def make(name):
    return registry.create("mitigations", name)


FINE = ["smoothing:tau=0.05", "smoothing:tau=0.05,own=secure", f"rounding:grid={2.0**-24}"]


@pytest.mark.parametrize("name", [*ALL, *FINE])
def test_releases_lie_on_the_lattice_where_reach_reads_nothing(name, stream):
    query = torch.full((64, 64), 1.0, dtype=torch.float64)
    released = make(name).release(query, Gaussian(), stream=stream).numpy()
    g = lattice_step(1.0)
    assert np.array_equal(np.rint(released / g) * g, released)
    for value in (0.0, 1.0, 3.0):
        assert possible(Reach(dtype="float64"), released, np.full(64, value)).all()
    plain = NoMitigation().release(query, Gaussian(), stream=stream).numpy()
    assert not possible(Reach(dtype="float64"), plain, np.full(64, 3.0)).all()
    nudged = make(name).release(query + 0.49 * g, Gaussian(), stream=stream).numpy()
    assert np.array_equal(nudged, released)  # what is below the lattice is not there


@pytest.mark.parametrize("name", [*ALL, *FINE])
def test_float32_queries_leave_no_candidate_impossible(name, stream):
    """Float32 noise beyond 2^24 steps is even, so an odd step left over rules a candidate out.

    All steps of the query here are odd and below 2^24, so where the release is, too, both are exact
    in float32.
    """
    g, shape = lattice_step(1.0), (16, 500) if "dense" in name else (4, 2048)
    steps = np.random.default_rng(1).integers(-(2**23), 2**23, shape) * 2 + 1
    query = torch.from_numpy(steps * g).float()
    released = make(name).release(query, Gaussian(), stream=stream).double().numpy() / g
    left = released - steps
    told = (np.abs(released) < 2**24) & (np.abs(left) >= 2**24)
    assert told.sum() > 500
    assert 0.4 < (left[told] % 2).mean() < 0.6


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "rotation",
        "rotation:renorm=chi",
        "rotation:randomness=csprng",
        "shared-rotation",
        "dense-rotation",
        "structured-rotation",
    ],
)
def test_the_key_holder_is_back_to_guessing(name, make_key, stream):
    """γ = 20√d: honest noise reveals the shift to at most 50.2 %. Twelve joint 95 % intervals."""
    key, mitigation = make_key(gamma="20sqrtd", beta=1e-3), make(name)
    if name == "rotation":  # the attack that is to fail below
        bare = guesses(partial(NoMitigation().release, stream=stream), key, trials=TRIALS)
        assert min(bare) > TRIALS - 10

    def release(q, source):
        if name != "shared-rotation":
            return mitigation.release(q, source, stream=stream)
        calls = [
            mitigation.release(q[i : i + 1], source, stream=stream.child(i)) for i in range(len(q))
        ]
        return torch.cat(calls)

    for got in guesses(release, key, trials=TRIALS):
        interval = clopper_pearson(got, TRIALS, confidence=1 - 0.05 / 12)
        assert interval.low <= 0.5 <= interval.high


class Fixed:
    """The rows given to it, whatever is asked for."""

    dim, claim = None, "gaussian:sigma=1"

    def __init__(self, rows, sigma=1.0):
        self.rows, self.sigma = rows, sigma

    def sample(self, n, d, *, dtype=None, **_):
        assert self.rows.shape == (n, d)
        return self.rows.to(dtype or torch.float64)

    def epsilon(self, delta, *, host):
        raise AssertionError("a rotation has nothing to ask here")


class Sparse:
    """All of the length in one coordinate."""

    sigma, dim, claim = 1.0, None, "gaussian:sigma=1"

    def sample(self, n, d, *, stream, dtype=None, device=None):
        rng = stream.numpy()
        out = torch.zeros(n, d, dtype=dtype)
        at = torch.from_numpy(rng.integers(0, d, n))
        out[torch.arange(n), at] = math.sqrt(d) * torch.from_numpy(rng.choice([-1.0, 1.0], n)).to(
            out
        )
        return out


class Repeated:
    """One Gaussian vector for all rows."""

    sigma, dim, claim = 1.0, None, "gaussian:sigma=1"

    def sample(self, n, d, *, stream, dtype=None, device=None):
        return torch.from_numpy(stream.numpy().standard_normal(d)).to(dtype).expand(n, d)


def turned(rows, mitigation, stream):
    return mitigation.release(torch.zeros_like(rows), Fixed(rows), stream=stream)


def rows(n, d, dtype=torch.float64, seed=1):
    return torch.from_numpy(np.random.default_rng(seed).standard_normal((n, d))).to(dtype)


def stretched(before, after):
    """By how much of its length a row was made longer or shorter, at most."""
    lengths = (torch.linalg.vector_norm(x.double(), dim=1) for x in (after, before))
    return float((torch.divide(*lengths) - 1).abs().max())


@pytest.mark.parametrize("randomness", ["stream", "csprng"])
def test_each_norm_is_kept_and_the_direction_is_uniform(randomness, stream):
    straight = torch.zeros(20_000, 8, dtype=torch.float64)
    straight[:, 0] = torch.arange(1.0, 20_001)
    noise = turned(straight, Rotation(randomness=randomness), stream)
    assert stretched(straight, noise) < 1e-7
    for at in (0, 7):
        # Haar: (1 + u)/2 is Beta((d−1)/2, (d−1)/2)
        share = (noise[:, at] / straight[:, 0]).numpy() / 2 + 0.5
        assert scipy.stats.kstest(share, "beta", args=(3.5, 3.5)).pvalue > 1e-3
        assert scipy.stats.kstest(share, "beta", args=(4, 4)).pvalue < 1e-3


def test_float32_norms_are_kept_to_the_lattice(stream):
    """A factor rounded to float32 would be off by up to 6e-8 of the length."""
    v = Gaussian().sample(20, 100_000, stream=stream, dtype=torch.float32)
    v *= torch.logspace(-1, 1, 20)[:, None]
    assert stretched(v, turned(v, Rotation(), stream)) < 2e-9


def test_chi_is_plain_fresh_noise_and_asks_no_source(stream):
    unasked = SimpleNamespace(sigma=1.0, dim=None, claim="gaussian:sigma=1")
    query = torch.zeros(4000, 5, dtype=torch.float64)
    noise = Rotation(renorm="chi").release(query, unasked, stream=stream).numpy()
    assert scipy.stats.kstest(noise.ravel(), "norm").pvalue > 1e-3
    assert scipy.stats.kstest((noise**2).sum(1), "chi2", args=(5,)).pvalue > 1e-3


def test_a_silent_source_stays_silent_and_extreme_scales_work(stream):
    zeros = torch.zeros(2, 6, dtype=torch.float64)
    assert torch.equal(Rotation().release(zeros + 1.25, Fixed(zeros), stream=stream), zeros + 1.25)
    for sigma in (1e-280, 1e280):
        noise = Rotation().release(zeros, Gaussian(sigma=sigma), stream=stream)
        assert 0.2 < float((noise / sigma).std()) < 3


@pytest.mark.slow
def test_haar_matrices(stream):
    """Orthogonal; every entry's law; both determinants; and the signs that a bare QR gets wrong."""
    d = 4
    q = torch.stack([haar_matrix(d, stream=stream.child(i)) for i in range(4000)])
    assert torch.allclose(q @ q.mT, torch.eye(d, dtype=torch.float64).expand_as(q), atol=1e-12)
    for i, j in ((0, 0), (3, 3), (1, 2)):
        share = (q[:, i, j].numpy() + 1) / 2
        assert scipy.stats.kstest(share, "beta", args=(1.5, 1.5)).pvalue > 1e-3, (i, j)
    reflections = int((torch.linalg.det(q) < 0).sum())
    assert scipy.stats.binomtest(reflections, len(q)).pvalue > 1e-3
    # mean 0, variance 1 (Diaconis and Shahshahani 1994)
    trace = torch.diagonal(q, dim1=1, dim2=2).sum(1).numpy()
    assert abs(trace.mean()) < 4 / np.sqrt(len(q))
    assert trace.var() == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("randomness", ["stream", "csprng"])
def test_distances_and_angles_are_kept_to_a_millionth(dtype, randomness, stream):
    v = rows(6, 300_000, dtype)
    v[1] *= 30
    v[2] = v[0] + 0.01 * v[2]  # near: 1 % of the length apart
    v[3] = v[4] - 2 * v[5]  # dependent
    w = turned(v, SharedRotation(randomness=randomness), stream)
    assert w.dtype == dtype
    before, after = (torch.cdist(x.double(), x.double()) for x in (v, w))
    off = ~torch.eye(6, dtype=torch.bool)
    assert float((after / before - 1)[off].abs().max()) < 1e-6
    length = torch.linalg.vector_norm(v.double(), dim=1)
    angles = [(x.double() @ x.double().T) / torch.outer(length, length) for x in (v, w)]
    assert float((angles[0] - angles[1]).abs().max()) < 1e-6
    # and they are somewhere else
    assert float((v.double() * w.double()).sum(1).abs().div(length**2).max()) < 0.02


@pytest.mark.parametrize(("n", "d"), [(1, 1), (1, 9), (9, 9), (12, 5), (40, 1)])
def test_more_rows_than_dimensions(n, d, stream):
    v = rows(n, d)
    w = turned(v, SharedRotation(), stream)
    assert torch.allclose(w @ w.T, v @ v.T, atol=1e-5)
    assert d == 1 or not torch.allclose(w, v, atol=0.01)


def test_zero_repeated_and_nearly_equal_rows(stream):
    v = rows(5, 2000)
    v[1], v[3], v[4] = 0, v[0], v[0]
    v[4, 7] += 1e-3
    w = turned(v, SharedRotation(), stream)
    assert not w[1].any()
    assert float((w[0] - w[3]).abs().max()) < 1e-6
    # the lattice: 2^-24·√2000
    assert float(torch.linalg.vector_norm(w[4] - w[0])) == pytest.approx(1e-3, rel=1e-3)
    assert not turned(torch.zeros(4, 3, dtype=torch.float64), SharedRotation(), stream).any()


V = np.array([[3.0, 0, 0, 0], [2, 1, 0, 0], [0, 1, 1, 2]])


def features(mitigation, stream, times=1200):
    """From many calls on V: one coordinate, a product across rows, one across rows and columns."""
    v = torch.from_numpy(V)
    w = torch.stack([turned(v, mitigation, stream.child(i)) for i in range(times)]).numpy()
    return {
        "coordinate": w[:, 0, 0],
        "across rows": w[:, 0, 1] * w[:, 1, 1],
        "across both": w[:, 0, 0] * w[:, 1, 1] - w[:, 0, 1] * w[:, 1, 0],
        "largest": np.abs(w).max((1, 2)),
    }


@pytest.mark.slow
def test_the_law_is_that_of_a_dense_rotation_of_all_rows(stream):
    ours = features(SharedRotation(), stream.child("ours"))
    oracle = features(DenseRotation(shared=True), stream.child("oracle"))
    for name in ours:
        assert scipy.stats.ks_2samp(ours[name], oracle[name]).pvalue > 1e-3, name
    fresh = features(Rotation(), stream.child("fresh"))
    assert scipy.stats.ks_2samp(fresh["coordinate"], oracle["coordinate"]).pvalue > 1e-3
    assert scipy.stats.ks_2samp(fresh["across rows"], oracle["across rows"]).pvalue < 1e-6
    each = features(DenseRotation(), stream.child("each"))
    for name in fresh:
        assert scipy.stats.ks_2samp(fresh[name], each[name]).pvalue > 1e-3, name


def test_two_releases_under_one_rotation_give_away_what_fresh_ones_hide(stream):
    """A source that says the same twice: y₁ − y₂ is q₁ − q₂, whatever the rotation is."""
    query = torch.zeros(2, 500, dtype=torch.float64)
    query[1, 137] = 1.0
    seen = SharedRotation().release(query, Repeated(), stream=stream)
    assert torch.allclose(seen[1] - seen[0], query[1], atol=1e-6)
    hidden = Rotation().release(query, Repeated(), stream=stream)
    assert float((hidden[1] - hidden[0]).std()) > 1


@pytest.mark.parametrize("transform", ["dct", "hadamard"])
@pytest.mark.parametrize("rounds", [1, 3])
def test_it_is_one_orthogonal_map(transform, rounds, stream):
    m = StructuredRotation(rounds=rounds, transform=transform)
    one = torch.eye(32, dtype=torch.float64)
    matrix = torch.stack([turned(one[[j]], m, stream)[0] for j in range(32)], dim=1)
    assert torch.allclose(matrix @ matrix.T, one, atol=1e-5)
    v = torch.linspace(-1, 2, 32, dtype=torch.float64)[None]
    assert torch.allclose(turned(v, m, stream), v @ matrix.T, atol=1e-5)


ORACLES = {
    "hadamard": scipy.linalg.hadamard(64) / 8,
    "dct": scipy.fft.dct(np.eye(64), axis=0, norm="ortho"),
}


@pytest.mark.parametrize("transform", ORACLES)
def test_one_round_is_what_scipy_says(transform, stream):
    v = torch.linspace(1, 2, 64, dtype=torch.float64)[None]
    noise = turned(v, StructuredRotation(rounds=1, transform=transform), stream)
    undone = np.linalg.solve(ORACLES[transform], noise[0].numpy())
    signs = np.sign(undone)
    assert np.allclose(undone, signs * v[0].numpy(), atol=1e-5)
    assert 12 < (signs > 0).sum() < 52


@pytest.mark.parametrize("d", [1, 7, 100_003, 1 << 17])
def test_norms_are_kept(d, stream):
    for dtype, tolerance in ((torch.float64, 1e-7), (torch.float32, 1e-6)):
        v = rows(2, d, dtype)
        for transform in ("dct", "hadamard") if d & (d - 1) == 0 else ("dct",):
            w = turned(v, StructuredRotation(transform=transform), stream)
            assert stretched(v, w) < tolerance


def test_hadamard_rounds_map_a_sparse_vector_to_few_magnitudes(stream):
    """One round: all equal. Two, three: multiples of 1/8, 1/128. A Haar rotation: all different."""
    sparse = torch.eye(256, dtype=torch.float64)[[3]] * 16
    rounds = [StructuredRotation(rounds=r, transform="hadamard") for r in (1, 2, 3)]
    found = [
        len(torch.unique(turned(sparse, m, stream).abs().round(decimals=4)))
        for m in (*rounds, Rotation())
    ]
    assert found[0] == 1
    assert found[1] < 30
    assert found[2] < 60
    assert found[3] > 240


def sparse_success(mitigation, stream, score, *, trials=2000, d=64):
    """How often the reader of sparse noise is right; ``score`` is high for the source's noise."""
    query = torch.zeros(trials, 2, d, dtype=torch.float64)
    query[:, 1, 0] = 0.04
    truth = torch.arange(trials) % 2
    y = mitigation.release(query[torch.arange(trials), truth], Sparse(), stream=stream)
    return int((score((y[:, None] - query).numpy()).argmax(1) == truth.numpy()).sum())


def sparse_under(transform):
    """How sparse noise is once one round of the transform is undone."""

    def score(left):
        undone = np.abs(left @ ORACLES[transform])
        return undone.max(-1) / np.sqrt((undone**2).sum(-1))

    return score


def on_the_grid(left):
    """√d·e_j after r Hadamard rounds has coordinates in 2·d^−((r−1)/2)·Z; here for r = 3."""
    steps = left * (64 / 2)
    return -np.abs(steps - np.rint(steps)).max(-1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rounds", "transform", "reader"),
    [
        (1, "dct", sparse_under("dct")),
        (1, "hadamard", sparse_under("hadamard")),
        (3, "hadamard", on_the_grid),
    ],
)
def test_a_source_made_for_it_is_read_with_certainty_and_not_behind_a_haar_rotation(
    rounds, transform, reader, stream
):
    broken = StructuredRotation(rounds=rounds, transform=transform)
    assert sparse_success(broken, stream, reader) == 2000
    interval = clopper_pearson(
        sparse_success(Rotation(), stream, reader), 2000, confidence=1 - 0.05 / 3
    )
    assert interval.low <= 0.5 <= interval.high


CPU = torch.device("cpu")


def normals(stream, n, d, dtype=torch.float64, **options):
    return Randomness(kind="csprng").normal(n, d, stream=stream, dtype=dtype, device=CPU, **options)


def test_csprng_normals_are_chacha20_through_the_quantile_function(stream):
    x = normals(stream, 3, 50_000, sigma=2.0).numpy()
    assert scipy.stats.kstest(x.ravel(), "norm", args=(0, 2)).pvalue > 1e-3
    word = int.from_bytes(stream.child("part", 1).bytes(8), "little")
    below = 2 * scipy.stats.norm.ppf(((word >> 1) + 0.5) / 2**64)
    assert x.ravel()[1 << 16] == pytest.approx(-below if word & 1 else below, rel=1e-12)
    assert np.array_equal(
        normals(stream, 3, 50_000, torch.float32, sigma=2.0).numpy(), x.astype(np.float32)
    )


class Words:
    """A stream of these 64-bit words."""

    def __init__(self, *words):
        self._left = b"".join(w.to_bytes(8, "little") for w in words)

    def child(self, *_):
        return self

    def bytes(self, n):
        taken, self._left = self._left[:n], self._left[n:]
        assert len(taken) == n
        return taken


def test_csprng_normals_lie_closer_together_than_the_lattice_in_the_tails_too():
    """Neighbours 6 to 7.5 deviations out, both sides; 52 bits would leave gaps of 14 steps."""
    for z in (6.0, 6.5, 7.5):
        word = int(scipy.stats.norm.sf(z) * 2**64) << 1
        near = [
            normals(Words(w, m), 1, 1).item()
            for w in (word, word + 1)
            for m in (0, 1 << 62, (1 << 64) - 1)
        ]
        assert near[0] == pytest.approx(-z, rel=1e-3)
        assert near[3] == -near[0]
        assert 0 <= near[1] - near[0] <= near[2] - near[0] < lattice_step(1.0) * 20
        fine = [normals(Words(word, m), 1, 1).item() for m in range(1 << 40, 1 << 46, 1 << 44)]
        assert np.abs(np.diff(fine)).max() < lattice_step(1.0) / 1000
    assert normals(Words(0, 0), 1, 1).item() > -14  # finite


def test_csprng_normals_do_not_depend_on_threads(stream):
    before, made = torch.get_num_threads(), []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            made.append(normals(stream, 1, 600_000))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*made)


def test_dimensions_that_cannot_be(stream):
    for bad, d in ((DenseRotation(), 2001), (StructuredRotation(transform="hadamard"), 12)):
        with pytest.raises(UsageError, match=f"d={d}"):
            bad.release(torch.zeros(1, d), Gaussian(), stream=stream)
