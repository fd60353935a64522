import json
import os
import stat

import numpy as np
import pytest

from dpaudit.errors import KeyFileError, UsageError
from dpaudit.noise.key import PancakeKey, parse_gamma


def test_a_saved_key_comes_back_and_only_its_owner_can_read_it(tmp_path, make_key):
    os.umask(0o022)
    key, path = make_key(), tmp_path / "key.json"
    key.save(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert PancakeKey.load(path) == key


def test_the_file_holds_no_vector(tmp_path, make_key):
    make_key(dim=100_000).save(tmp_path / "key.json")
    assert (tmp_path / "key.json").stat().st_size < 1000


def test_never_overwritten(tmp_path, make_key):
    path = tmp_path / "key.json"
    make_key(tag="a").save(path)
    with pytest.raises(KeyFileError, match="never overwritten"):
        make_key(tag="b").save(path)
    assert PancakeKey.load(path) == make_key(tag="a")


def test_the_secret_is_not_shown(make_key):
    key = make_key()
    assert key.secret.hex() not in repr(key)
    assert repr(key.secret) not in repr(key)
    assert key.fingerprint not in key.secret.hex()


def test_open_permissions_are_refused(tmp_path, make_key):
    path = tmp_path / "key.json"
    make_key().save(path)
    path.chmod(0o640)
    with pytest.raises(KeyFileError, match=r"mode=0640.*chmod 600"):
        PancakeKey.load(path)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"secret": "zz"}, "secret"),
        ({"secret": 3}, "secret"),
        ({"beta": -1}, "beta=-1"),
        ({"beta": "1e-3"}, "beta"),
        ({"gamma": None}, "gamma"),
        ({"dim": 1}, "dim=1"),
        ({"dim": 2.5}, "dim=2.5"),
        ({"dim": None}, "dim"),
        ({"format": "x"}, "dpaudit-pancake-key"),
        ({"version": 2}, "version"),
        ({"extra": 1}, "extra"),
    ],
)
def test_broken_fields(tmp_path, make_key, change, says):
    path = tmp_path / "key.json"
    make_key().save(path)
    data = {**json.loads(path.read_text()), **change}
    path.write_text(json.dumps(data))
    with pytest.raises(KeyFileError, match=says):
        PancakeKey.load(path)


def test_missing_field_missing_file_and_not_json(tmp_path, make_key):
    path = tmp_path / "key.json"
    make_key().save(path)
    data = json.loads(path.read_text())
    del data["beta"]
    path.write_text(json.dumps(data))
    with pytest.raises(KeyFileError, match="'beta' is missing"):
        PancakeKey.load(path)
    path.write_text("[1")
    with pytest.raises(KeyFileError, match="not JSON"):
        PancakeKey.load(path)
    with pytest.raises(KeyFileError, match="cannot be read"):
        PancakeKey.load(tmp_path / "no.json")


def test_direction_is_uniform_on_the_sphere_and_depends_on_the_secret_only(make_key):
    w = make_key(dim=200_000).direction
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


def test_gamma_rules(make_key):
    assert parse_gamma("20sqrtd", dim=4) == 40
    assert parse_gamma("sqrtd", dim=9) == 3
    for bad in ("2sqrt", "x", "-1", "0", "nan", "inf", "sqrtdd"):
        with pytest.raises(UsageError, match="gamma="):
            parse_gamma(bad, dim=16)
    with pytest.raises(UsageError, match="allow_small_gamma"):
        make_key(gamma=1.0)
    assert make_key(gamma=1.0, allow_small_gamma=True).gamma == 1.0
    for bad in (0.0, -1.0, float("nan"), "x"):
        with pytest.raises(UsageError, match="beta="):
            make_key(beta=bad)


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


def test_another_gamma_has_the_same_limit(make_key):
    with pytest.raises(UsageError, match="below 2√d"):
        make_key().at(beta=0.1, gamma=1.0)
    assert make_key().at(beta=0.1, gamma=1.0, allow_small_gamma=True).gamma == 1.0
