"""Keys: file, vectors, and the directions that they span."""

import json
import os
import stat

import numpy as np
import pytest
import scipy.stats

from dpaudit.errors import KeyFileError, UsageError
from dpaudit.noise.key import PancakeKey, parse_gamma


@pytest.fixture
def path(tmp_path):
    return tmp_path / "key.json"


def changed(path, key, **fields):
    """The key saved with other fields; without one that is ``...``."""
    key.save(path)
    data = {**json.loads(path.read_text()), **fields}
    path.write_text(json.dumps({name: x for name, x in data.items() if x is not ...}))
    return path


def test_a_saved_key_comes_back_and_only_its_owner_can_read_it(path, make_key):
    os.umask(0o022)
    key = make_key(dim=100_000, directions=3)
    key.save(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.stat().st_size < 1000  # no vector in it
    back = PancakeKey.load(path)
    assert back == key != make_key(dim=100_000, directions=2)
    assert back.directions == 3
    assert np.array_equal(back.vectors, key.vectors)
    path.chmod(0o640)
    with pytest.raises(KeyFileError, match=r"mode=0640"):
        PancakeKey.load(path)


def test_never_overwritten(path, make_key):
    make_key(tag="a").save(path)
    with pytest.raises(KeyFileError, match="never overwritten"):
        make_key(tag="b").save(path)
    assert PancakeKey.load(path) == make_key(tag="a")


def test_the_secret_is_not_shown(make_key):
    key = make_key()
    assert key.secret.hex() not in repr(key)
    assert repr(key.secret) not in repr(key)
    assert key.fingerprint not in key.secret.hex()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"secret": "zz"}, "secret"),
        ({"secret": 3}, "secret"),
        ({"beta": -1}, "beta=-1"),
        ({"beta": "1e-3"}, "beta"),
        ({"beta": ...}, "beta"),
        ({"gamma": None}, "gamma"),
        ({"dim": 1}, "dim=1"),
        ({"dim": 2.5}, "dim=2.5"),
        ({"format": "x"}, "dpaudit-pancake-key"),
        ({"version": 2}, "version"),
        ({"extra": 1}, "extra"),
        *(({"directions": k}, "directions=") for k in (0, 33, "1", None, True, 2.0)),
    ],
)
def test_broken_fields(path, make_key, change, says):
    with pytest.raises(KeyFileError, match=says):
        PancakeKey.load(changed(path, make_key(), **change))


def test_a_file_from_before_there_were_directions_has_one(path, make_key):
    assert PancakeKey.load(changed(path, make_key(), directions=...)) == make_key(directions=1)


def test_missing_file_and_not_json(path):
    with pytest.raises(KeyFileError, match="cannot be read"):
        PancakeKey.load(path)
    path.write_text("[1")
    path.chmod(0o600)
    with pytest.raises(KeyFileError, match="not JSON"):
        PancakeKey.load(path)


@pytest.mark.slow
def test_direction_is_uniform_on_the_sphere_and_depends_on_the_secret_only(make_key):
    w = make_key(dim=200_000).direction
    assert w == pytest.approx(make_key(dim=200_000, directions=3).direction, abs=1e-15)
    assert np.isclose(np.linalg.norm(w), 1, atol=1e-12)
    scaled = w * np.sqrt(len(w))
    assert abs(scaled.mean()) < 5 / np.sqrt(len(w))
    assert abs((scaled**4).mean() - 3) < 0.1
    assert np.array_equal(w, make_key(dim=200_000, beta=0.5).direction)
    assert abs(w @ make_key(dim=200_000, tag="b").direction) < 5 / np.sqrt(len(w))


def test_direction_is_made_block_by_block(make_key):
    """A longer key starts with the same unnormalised numbers: none depends on the length."""
    a, b = make_key(dim=70_000).direction, make_key(dim=140_000).direction
    assert np.allclose(a / a[0], b[:70_000] / b[0], rtol=1e-12)


def test_gamma_beta_and_directions_that_are_none(make_key):
    assert parse_gamma("20sqrtd", dim=4) == 40
    assert parse_gamma("sqrtd", dim=9) == 3
    for bad in ("2sqrt", "x", "-1", "0", "nan", "inf", "sqrtdd"):
        with pytest.raises(UsageError, match="gamma="):
            parse_gamma(bad, dim=16)
    for small in (make_key, lambda **options: make_key().at(beta=0.1, **options)):
        with pytest.raises(UsageError, match="allow_small_gamma"):
            small(gamma=1.0)
        assert small(gamma=1.0, allow_small_gamma=True).gamma == 1.0
    for bad in (0.0, -1.0, float("nan"), "x"):
        with pytest.raises(UsageError, match="beta="):
            make_key(beta=bad)
    for bad in (0, -1, 33, True, 1.5, "2", None):
        with pytest.raises(UsageError, match=r"directions=.*1…32"):
            make_key(dim=64, directions=bad)
    with pytest.raises(UsageError, match="1…64"):
        make_key(dim=1000, directions=65)


@pytest.mark.parametrize("directions", [1, 3])
def test_the_same_directions_under_another_beta_and_gamma(make_key, directions):
    key = make_key(dim=40_000, directions=directions)
    other = key.at(beta=0.25, gamma="20sqrtd")
    plain = PancakeKey.new(
        dim=40_000, beta=0.25, gamma="20sqrtd", secret=key.secret, directions=directions
    )
    assert other == plain
    assert other.vectors is key.vectors
    assert other.basis is key.basis
    assert other.block_grams is key.block_grams
    for name in ("vectors", "basis", "block_grams"):
        assert np.array_equal(getattr(other, name), getattr(plain, name))
    assert key.beta != 0.25


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


@pytest.mark.slow
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
    parts = key.gram(0, start) + key.gram(start, stop) + key.gram(stop)
    assert parts.tolist() == key.gram().tolist()
