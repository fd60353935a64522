"""Keys of several secret directions: vectors, file, and the law along and across them."""

import json

import numpy as np
import pytest
import scipy.special
import scipy.stats
import torch
from oracles import along_key

from dpaudit.errors import KeyFileError, UsageError
from dpaudit.noise.key import PancakeKey
from dpaudit.noise.pancake import Pancake
from dpaudit.randomness import KeyedStream
from dpaudit.vectors import BLOCK


def test_basis_is_orthonormal_and_spans_the_vectors(make_key):
    key = make_key(dim=70_000, directions=5)
    assert key.basis @ key.basis.T == pytest.approx(np.eye(5), abs=1e-12)
    assert np.array_equal(key.direction, key.basis[0])
    vectors = key.vectors.astype(np.float64)
    across = vectors - (vectors @ key.basis.T) @ key.basis
    assert np.linalg.norm(across) < 1e-10 * np.linalg.norm(vectors)
    lead = np.einsum("ij,ij->i", key.basis, vectors)
    assert (lead > 0).all()  # Gram-Schmidt in order: each keeps its vector's side,
    for j in range(5):  # and is orthogonal to the vectors before it
        assert np.abs(vectors[:j] @ key.basis[j]).max(initial=0) < 1e-9 * np.linalg.norm(vectors[0])


@pytest.mark.parametrize("dim", [4, 128])
def test_basis_of_as_many_directions_as_allowed(make_key, dim):
    key = make_key(dim=dim, directions=dim // 2)
    assert key.basis @ key.basis.T == pytest.approx(np.eye(dim // 2), abs=1e-12)


def test_vectors_are_whole_read_only_and_do_not_depend_on_how_many(make_key):
    key = make_key(dim=70_000, directions=3)
    assert key.vectors.dtype == np.int16
    assert key.vectors.shape == (3, 70_000)
    for array in (key.vectors, key.basis):
        with pytest.raises(ValueError, match="read-only"):
            array[0, 0] = 1
    assert np.array_equal(make_key(dim=70_000).vectors, key.vectors[:1])
    assert np.array_equal(make_key(dim=66_000, directions=2).vectors, key.vectors[:2, :66_000])


def rounded_normal(values, rng):
    """p-value of whole numbers against round(4096·N(0, 1)), spread over their cells."""
    spread = (values + rng.uniform(-0.5, 0.5, len(values))) / 4096
    return scipy.stats.kstest(spread, "norm").pvalue


def test_vectors_are_rounded_normals_and_independent(make_key):
    rng = np.random.default_rng(1)
    vectors = make_key(dim=150_000, directions=3).vectors.astype(np.float64)
    for row in vectors:
        assert rounded_normal(row, rng) > 1e-3
        assert rounded_normal(row * 1.03, rng) < 1e-3
    for row in range(3):
        for other in range(row):
            assert abs(np.corrcoef(vectors[row], vectors[other])[0, 1]) < 4 / np.sqrt(150_000)
    assert abs(np.corrcoef(vectors[0, :65_536], vectors[0, 65_536:131_072])[0, 1]) < 4 / 256


def test_gram_is_exact(make_key):
    key = make_key(dim=140_000, directions=3)
    start, stop = 65_000, 131_500  # over two of the key's own block borders
    rows = [[int(x) for x in row[start:stop]] for row in key.vectors]
    exact = [[sum(x * y for x, y in zip(a, b, strict=True)) for b in rows] for a in rows]
    assert key.gram(start, stop).tolist() == exact
    assert (
        key.gram(0, start) + key.gram(start, stop) + key.gram(stop)
    ).tolist() == key.gram().tolist()


# ---------------------------------------------------------------- the law


def phases(source, c):
    return c / source.spacing - np.rint(c / source.spacing)


def ks_phase(source, phase):
    """Against the exact law: N(0, (s/P)²) wrapped around the circle."""
    spread = source.width / source.spacing
    turns = np.arange(-3, 4)

    def cdf(x):
        upper = scipy.special.ndtr((np.asarray(x)[..., None] + turns) / spread)
        return (upper - scipy.special.ndtr((turns - 0.5) / spread)).sum(-1)

    return scipy.stats.kstest(phase, cdf).pvalue


def ks_envelope(source, c):
    """Against the mixture of Lemma 2.6; few enough peaks to write it out."""
    key = source.key
    k = np.arange(-2000, 2001)
    weight = np.exp(-np.pi * k**2 / (key.beta**2 + key.gamma**2))
    centre = k * np.sqrt(2 * np.pi) * source.sigma * key.gamma / (key.beta**2 + key.gamma**2)
    width = source.sigma * key.beta / np.hypot(key.beta, key.gamma)
    below = np.concatenate([[0], np.cumsum(weight / weight.sum())])
    x = np.sort(c)
    first, last = np.searchsorted(centre, x - 9 * width), np.searchsorted(centre, x + 9 * width)
    cdf = below[first]
    # only the peaks within 9 widths are neither 0 nor 1
    for step in range(int((last - first).max(initial=0))):
        i = np.minimum(first + step, len(k) - 1)
        part = np.diff(below)[i] * scipy.special.ndtr((x - centre[i]) / width)
        cdf = cdf + np.where(first + step < last, part, 0)
    grid = np.arange(len(x) + 1) / len(x)
    distance = max((grid[1:] - cdf).max(), (cdf - grid[:-1]).max())
    return scipy.stats.kstwo.sf(distance, len(x))


def dependence(a, b):
    """χ² of two samples of one law on an 8 × 8 grid of their own quantiles."""
    cells = [np.searchsorted(np.quantile(x, np.arange(1, 8) / 8), x) for x in (a, b)]
    table = np.bincount(cells[0] * 8 + cells[1], minlength=64).reshape(8, 8)
    return scipy.stats.chi2_contingency(table).pvalue


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
    phase = phases(source, c)
    for j in range(k):
        assert ks_phase(source, phase[:, j]) > 1e-3
        assert ks_phase(source, 1.3 * phase[:, j]) < 1e-3
        assert ks_envelope(source, c[:, j]) > 1e-3
        assert ks_envelope(source, 1.4 * c[:, j]) < 1e-3
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
    assert ks_phase(source, phases(source, mixed)) < 1e-9


# ---------------------------------------------------------------- the key's file


@pytest.mark.parametrize("directions", [0, -1, 33, 65, True, 1.5, "2", None])
def test_bad_directions(make_key, directions):
    with pytest.raises(UsageError, match=r"directions=.*1…32"):
        make_key(dim=64, directions=directions)
    with pytest.raises(UsageError, match="1…64"):
        make_key(dim=1000, directions=65)


def test_directions_come_back_from_the_file(tmp_path, make_key):
    key, path = make_key(directions=3), tmp_path / "key.json"
    key.save(path)
    back = PancakeKey.load(path)
    assert back == key
    assert back.directions == 3
    assert np.array_equal(back.vectors, key.vectors)
    assert back != make_key(directions=2)


def test_a_file_from_before_there_were_directions_has_one(tmp_path, make_key):
    path = tmp_path / "key.json"
    make_key().save(path)
    data = json.loads(path.read_text())
    del data["directions"]
    path.write_text(json.dumps(data))
    assert PancakeKey.load(path) == make_key(directions=1)


@pytest.mark.parametrize("directions", [0, 33, "1", None, True, 2.0])
def test_a_file_with_broken_directions(tmp_path, make_key, directions):
    path = tmp_path / "key.json"
    make_key().save(path)
    path.write_text(json.dumps({**json.loads(path.read_text()), "directions": directions}))
    with pytest.raises(KeyFileError, match="directions="):
        PancakeKey.load(path)


def test_the_first_direction_is_what_one_direction_alone_would_be():
    secret = KeyedStream.from_seed("tests").child("d").bytes(32)
    one, three = (PancakeKey.new(dim=64, beta=0.1, secret=secret, directions=k) for k in (1, 3))
    assert one.direction == pytest.approx(three.direction, abs=1e-15)
