import hashlib
import hmac
import os

import numpy as np
import pytest
import scipy.stats
import torch

from dpaudit.errors import KeyFileError
from dpaudit.noise.gaussian import Gaussian
from dpaudit.vectors.lattice import lattice_step
from dpaudit_mitigations.rotation.fresh import Rotation
from dpaudit_mitigations.rotation.randomness import Randomness
from dpaudit_mitigations.rotation.shared import SharedRotation

CPU = torch.device("cpu")
SHARE = bytes(range(32))


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


def hkdf(secret, *, salt, info):
    """RFC 5869 by hand, one block."""
    key = hmac.new(salt, secret, hashlib.sha256).digest()
    return hmac.new(key, info + b"\x01", hashlib.sha256).digest()


def test_the_seed_is_made_of_both_shares(stream):
    alone, both = Randomness(), Randomness(second_party=SHARE)
    other = Randomness(second_party=SHARE[::-1])
    mine = stream.child("rotation")
    assert alone.own(stream).bytes(32) == mine.bytes(32)
    wanted = hkdf(
        mine.entropy() + SHARE, salt=b"dpaudit rotation", info=b"two parties' seed, version 1"
    )
    assert both.own(stream)._key == wanted
    made = {
        r.own(s).bytes(32) for r in (alone, both, other) for s in (stream, stream.child("next"))
    }
    assert len(made) == 6


@pytest.mark.parametrize("kind", [Rotation, SharedRotation])
def test_a_second_party_changes_the_release(kind, stream, tmp_path):
    path = tmp_path / "share"
    path.touch(mode=0o600)
    path.write_text(SHARE.hex() + "\n")
    query = torch.zeros(2, 10, dtype=torch.float64)
    made = [
        kind(second_party=party).release(query, Gaussian(), stream=stream)
        for party in (None, SHARE, path, SHARE[::-1])
    ]
    assert torch.equal(made[1], made[2])
    assert not torch.isclose(made[0], made[1]).any()
    assert not torch.isclose(made[3], made[1]).any()


def test_bad_share_files(tmp_path):
    path = tmp_path / "share"
    with pytest.raises(KeyFileError, match="cannot be read"):
        Rotation(second_party=path)
    path.touch(mode=0o600)
    for text in ("", "ab" * 31, "AB" * 32, "zz" * 32, "ab" * 33):
        path.write_text(text)
        with pytest.raises(KeyFileError, match="64 lower-case hex digits") as caught:
            Rotation(second_party=str(path))
        assert not text or text not in str(caught.value)
    path.write_text("ab" * 32)
    Rotation(second_party=path)
    os.chmod(path, 0o640)
    with pytest.raises(KeyFileError, match=r"\(0640\)"):
        Rotation(second_party=path)
