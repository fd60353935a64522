import importlib
import math

import numpy as np
import pytest
import torch
from support.several_directions import draw, key_of

from dpaudit.errors import MissingExtraError
from dpaudit_attacks import reconstruction
from dpaudit_attacks.reconstruction import PhaseReader

SIGMA = 6.4  # ε = 1 at δ = 1e-10, one record


def outcomes(k, *, beta, m, dim=64, bound=1000, releases=1, sigma=SIGMA, trials=10, spoil=None):
    """Reconstructions of random histograms' random bins, each with whether it is right."""
    pytest.importorskip("fpylll")
    key, rng = key_of(k, dim=dim, beta=beta, gamma=2 * math.sqrt(dim)), np.random.default_rng(7)
    reader, out = PhaseReader(key=key, sigma=sigma), []
    for _ in range(trials):
        q = rng.integers(0, bound, dim).astype(float)
        index = rng.choice(dim, m, replace=False)
        known = q.copy()
        known[index] = 0
        y = q + draw(key, sigma, releases, rng)
        if spoil is not None:
            spoil(known, index)
        found = reader.reconstruct_counts(
            torch.from_numpy(y), torch.from_numpy(known), torch.from_numpy(index), bound=bound
        )
        out.append((found, bool((found.counts.numpy() == q[index]).all())))
    return out


@pytest.mark.parametrize(("beta", "releases"), [(1e-3, 1), (1e-3, 100), (0.5, 100)])
def test_phases_are_the_query_modulo_the_spacing(beta, releases):
    """60 queries: averaged phases err by the claimed standard error, in every direction."""
    key, rng = key_of(3, dim=64, beta=beta, gamma=16.0), np.random.default_rng(1)
    reader = PhaseReader(key=key, sigma=SIGMA)
    errors = []
    for _ in range(60):
        q = rng.integers(0, 1000, 64).astype(float)
        y = torch.from_numpy(q + draw(key, SIGMA, releases, rng))
        assert reader.phases(y).shape == (releases, 3)
        read = reader._average(reader.phases(y))
        gap = read.value.numpy() - key.basis @ q
        errors.append((gap - np.rint(gap / read.modulus) * read.modulus) / read.standard_error)
    assert np.std(errors) == pytest.approx(1, abs=5 / math.sqrt(2 * 180))
    assert abs(np.mean(errors)) < 5 / math.sqrt(180)
    if beta < 0.01:
        assert read.standard_error == pytest.approx(
            reader.source.width / math.sqrt(releases), rel=1e-3
        )
        assert read.bits == pytest.approx(
            math.log2(math.sqrt(releases) / (beta * math.sqrt(math.e))), abs=0.01
        )


@pytest.mark.parametrize(
    ("k", "options"),
    [
        (1, {"beta": 1e-6, "m": 2}),
        (4, {"beta": 1e-3, "m": 5}),
        (4, {"beta": 1e-3, "m": 9, "releases": 16}),
        (8, {"beta": 1e-5, "m": 20, "dim": 256}),
    ],
)
def test_recovers_counts_inside_the_limit(k, options):
    results = outcomes(k, **options)
    found = results[0][0]
    assert found.bits_needed < found.bits_available - 5
    assert sum(ok for _, ok in results) >= 9
    assert sum(r.trusted for r, _ in results) >= 8
    assert all(ok for r, ok in results if r.trusted)
    assert 0.75 < math.sqrt(np.mean([r.residual**2 for r, _ in results])) < 1.25


@pytest.mark.parametrize(
    ("k", "options", "most"),
    [
        (4, {"beta": 1e-3, "m": 9}, 6),
        (4, {"beta": 1e-3, "m": 30}, 6),
        # large σ, few bins of two values: ⟨q,u⟩ varies by less than P, so phases hold fewer bits
        (2, {"beta": 0.01, "m": 10, "dim": 256, "bound": 2, "sigma": 50.0}, 10),
    ],
)
def test_beyond_the_limit_it_fails_and_says_so(k, options, most):
    results = outcomes(k, **options)
    assert results[0][0].bits_needed > results[0][0].bits_available
    assert sum(ok for _, ok in results) <= most
    assert not any(r.trusted for r, _ in results)


@pytest.mark.slow
@pytest.mark.parametrize(("k", "m", "bound"), [(4, 7, 1000), (4, 8, 1000), (2, 3, 8)])
def test_confidence_is_calibrated_near_the_limit(k, m, bound):
    """Listed by the lattice (first two) or completely (the last): as often right as claimed."""
    results = outcomes(k, beta=1e-3, m=m, bound=bound, trials=80)
    confidence = np.array([r.confidence for r, _ in results])
    spread = math.sqrt((confidence * (1 - confidence)).sum()) + 0.5
    assert abs(sum(ok for _, ok in results) - confidence.sum()) < 3.5 * spread


def test_a_wrong_known_count_is_a_misfit():
    def spoil(known, index):
        known[next(i for i in range(64) if i not in index)] += 5

    results = outcomes(8, beta=1e-4, m=4, spoil=spoil)
    assert results[0][0].bits_needed < results[0][0].bits_available - 30
    assert not any(r.trusted for r, _ in results)


def test_prior_range_replaces_the_bound():
    """Known to ±3 far from 0: six bins from two directions; negative values are allowed."""
    key, rng = key_of(2, dim=64, beta=1e-5, gamma=16.0), np.random.default_rng(3)
    q = rng.integers(-5000, 5000, 64).astype(float)
    index = torch.arange(6)
    y = torch.from_numpy(q + draw(key, SIGMA, 1, rng))
    guess = torch.from_numpy(q[:6] + rng.integers(-3, 4, 6))
    known = torch.from_numpy(q)
    found = PhaseReader(key=key, sigma=SIGMA).reconstruct_counts(
        y, known, index, bound=7, lowest=guess - 3
    )
    assert found.trusted
    assert found.counts.tolist() == q[:6].astype(int).tolist()


def test_without_fpylll(monkeypatch):
    real = importlib.import_module

    def missing(name, *rest):
        if name == "fpylll":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(importlib, "import_module", missing)
    reader = PhaseReader(key=key_of(2, dim=64, beta=1e-3, gamma=16.0), sigma=1.0)
    ask = torch.zeros(1, 64), torch.zeros(64), torch.arange(3)
    with pytest.raises(MissingExtraError, match=r"dpaudit\[lattice\]"):
        reader.reconstruct_counts(*ask, bound=1000)
    assert reader.reconstruct_counts(*ask, bound=4).counts.shape == (3,)  # listed, no lattice


def test_confidence_counts_what_the_search_did_not_list(monkeypatch):
    """The posterior from 64 listed counts against the one from all 32768 (about 1000 fit)."""
    pytest.importorskip("fpylll")
    monkeypatch.setattr(reconstruction, "_MOST", 64)
    key, rng = key_of(1, dim=64, beta=0.02, gamma=16.0), np.random.default_rng(7)
    reader, ratio = PhaseReader(key=key, sigma=20.0), []
    for _ in range(8):
        q = rng.integers(0, 32, 64).astype(float)
        y, confidence = torch.from_numpy(q + draw(key, 20.0, 1, rng)), []
        for weighed in (1, 1 << 15):
            monkeypatch.setattr(reconstruction, "_ALL", weighed)
            found = reader.reconstruct_counts(y, torch.from_numpy(q), torch.arange(3), bound=32)
            confidence.append(found.confidence)
        ratio.append(confidence[0] / confidence[1])
    assert abs(np.log(ratio).mean()) < math.log(1.7)  # about 6 if the others were not counted
