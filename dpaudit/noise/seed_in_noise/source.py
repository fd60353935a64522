"""LAB SPECIMEN: noise of any law that carries its own seed. Never a default."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit.noise.key import PancakeKey
from dpaudit.noise.seed_in_noise.codes import Code, code_of
from dpaudit.noise.seed_in_noise.key import SeedKey, load_key
from dpaudit.noise.seed_in_noise.laws import Law, SeedStream, law_of
from dpaudit.noise.seed_in_noise.nonces import KeyedNonces, Nonces, SealedNonces
from dpaudit.numeric.arrays import cast_to, is_floating
from dpaudit.numeric.lattice import in_dtype
from dpaudit.numeric.normal import check_shape
from dpaudit.protocols import Array, DType, Host, Stream
from dpaudit.results.foreign import quoted
from dpaudit.types import EpsilonBounds

if TYPE_CHECKING:
    import torch

__all__ = ["Rows", "SeedInNoise", "nonces_of"]

_SPARE = 64.0


class SeedInNoise:
    """LAB SPECIMEN. Noise whose first values hide a fresh nonce, and whose rest follows from it.

    Each row draws a nonce of ``nonce_bits`` from the stream. The seed is HMAC-SHA256(key, nonce);
    AES-256 in counter mode makes all the rest of the row from the seed. The first values carry the
    nonce, so its owner computes the whole row from a few values: ``seed-reader``. It claims to be
    honest noise of its law. It keeps no state.

    ``code`` says where the nonce travels. ``fraction`` (default for continuous laws): the
    fractional parts of the first values, a byte each; whoever knows only that the query is of whole
    numbers reads it, and then the whole query. ``head``: the leading byte of the uniform number
    that each value is the quantile of, for who knows the candidates. ``signs`` (default, and the
    only one, for integers): a bit per value, which mostly survives an unknown query that is small,
    or added noise that is.

    Hiding, to its owner's good. *Given the pseudorandom function*: with random functions in place
    of HMAC and AES, and nonces that do not repeat, all rows are independent with independent values
    of the law, up to a total variation distance per row of nonce bytes·2^-44 for ``head``, that
    times 1 + scale/8 for ``fraction`` (``rows.code.distance``), and 0 for ``signs``: in real
    arithmetic, and beyond that of the loops that draw the other values, which are as exact as the
    honest sources'. Proof: the nonce is uniform and independent of the rest, so the first values
    are quantiles of independent uniform numbers (``fraction``: a fraction by its law and the whole
    part by its law given the fraction); a symmetric law's size and sign are independent. Rounding:
    all values are numbers with 53 random digits times the scale. *Nonces
    repeat* among n rows with probability n²·2^-(nonce_bits + 1) at most, and a repeated one gives a
    row twice: 24 bits show after a few thousand rows, 128 never. So with 128 bits no black-box test
    of any sample size finds it unless HMAC-SHA256 or AES-256 is broken.

    Errors in ``signs`` are corrected by trying the likeliest ones, not by redundancy, which costs
    no secrecy: a rate of errors that vanishes as nonces grow. No code that looks random and
    corrects a constant rate can rest on a pseudorandom function as a black box (Garg, Gunn and Wang
    2025, arXiv 2506.01854); one from sparse parities rests on another assumption (Christ and Gunn
    2024, arXiv 2402.09370), and is not built here.

    With ``public_key`` instead of ``key`` a sampler holds no secret: see
    :class:`~dpaudit.noise.seed_in_noise.nonces.SealedNonces`. Nonces then have 256 bits, and a row
    costs a millisecond more. What it leaves of privacy towards its owner: :meth:`epsilon`.
    Source: ours; its parts are algorithm-substitution attacks (Bellare, Paterson and Rogaway 2014)
    and kleptography (Young and Yung 1997).
    """

    dim = None
    needs_only_a_secret = True
    owner_knows = ("law", "code", "nonce_bits", "scale")
    """Options that its owner knows besides the key, and an attack of the owner's is told."""

    def __init__(
        self,
        *,
        key: SeedKey | PancakeKey | str | Path | None = None,
        public_key: str = "",
        law: str = "gaussian",
        sigma: float | None = None,
        scale: float | None = None,
        nonce_bits: int | None = None,
        code: str | None = None,
    ) -> None:
        """Noise of ``law`` under a key (its file, or of a pancake's only the secret).

        Laws: gaussian and discrete-gaussian with ``sigma``, laplace and discrete-laplace with
        ``scale``; 1 if left out, 10 for the discrete ones. ``nonce_bits`` is 128 if left out.

        Raises:
            UsageError: no key, or both; a law, scale, code or number of bits that does not fit.
            KeyFileError: not a key file.
        """
        self.key, self._nonces = nonces_of(key, public_key, nonce_bits)
        self.rows = Rows.of(law, code, sigma=sigma, scale=scale, size=self._nonces.size)

    @property
    def claim(self) -> str:
        family, scale = self.rows.law.claim.family, self.rows.law.claim.scale
        return f"{family}:{'sigma' if family.endswith('gaussian') else 'scale'}={scale!r}"

    @property
    def sigma(self) -> float:
        """Standard deviation of one value."""
        return self.rows.law.claim.standard_deviation

    @property
    def nonce_bits(self) -> int:
        """Bits of a nonce."""
        return 8 * self._nonces.size

    def sample(
        self,
        n: int,
        d: int,
        *,
        stream: Stream,
        dtype: DType | None = None,
        device: torch.device | None = None,
    ) -> Array:
        """``n`` vectors, shape (n, d), each with a nonce of its own, drawn on the CPU in float64.

        Where d is smaller than what a nonce takes, its first part is sent, and nobody reads it.

        Raises:
            UsageError: n or d below 1, or values that ``dtype`` cannot hold.
        """
        check_shape(n, d)
        whole = self.rows.law.claim.discrete
        if not whole and not is_floating(dtype):
            raise UsageError(f"dtype={dtype}: law={self.claim} has no integers; take a float type")
        pairs = [self._nonces.fresh(stream) for _ in range(n)]
        out = self.rows.draw([nonce for nonce, _ in pairs], [seed for _, seed in pairs], d)
        return in_dtype(out, dtype, device) if whole else cast_to(out, dtype, device)

    def epsilon(self, delta: float, *, host: Host) -> EpsilonBounds:
        """Towards the key holder: infinite where a row is long enough, otherwise unknown.

        Given the key a row is one of 2^bits vectors of R^d. A release from q less q is one of them;
        less a neighbour q′ it is only if two of them differ by q − q′. There are 2^(2·bits) pairs,
        and for a random function in place of the PRF each does so with probability at most 2^-h, h
        the entropy (of 32 bits per value for continuous laws, −log2 max P for discrete ones) of
        the values that carry no nonce. With h ≥ 2·bits + 64 all keys but a share of 2^-64 have no
        such pair. Then "release − q is one of them" has probability 1 from q and 0 from q′, and no
        finite ε holds at any δ < 1. That needs a release rounded much finer than its noise.
        """
        code = self.rows.code
        bits = self.nonce_bits
        spread = (host.dim - code.symbols) * self.rows.law.bits
        if delta < 1 and spread >= 2 * bits + _SPARE:
            statement = "infinite: with the key a release less its query is one of 2^bits vectors"
            return EpsilonBounds(low=math.inf, high=math.inf, says=statement)
        return EpsilonBounds(low=0.0, high=math.inf, says="unknown: too few values for the nonce")


def nonces_of(
    key: SeedKey | PancakeKey | str | Path | None, public_key: str, bits: int | None
) -> tuple[SeedKey | PancakeKey | None, Nonces]:
    """The key, if a specimen holds one, and where it takes nonces from.

    Raises:
        UsageError: no key, or both; a number of bits that does not fit.
        KeyFileError: not a key file.
    """
    if (key is None) == (public_key == ""):
        raise UsageError(
            f"key={'none' if key is None else 'given'}, public_key={quoted(public_key)}: needs one "
            "of both; make a key with dpaudit key new --kind seed-in-noise"
        )
    if key is not None:
        loaded = load_key(key)
        return loaded, KeyedNonces(loaded.secret, bits=128 if bits is None else bits)
    if bits not in (None, 256):
        raise UsageError(f"nonce_bits={quoted(bits)}: with public_key it is 256; leave it out")
    return None, SealedNonces(public_key)


@dataclass(frozen=True)
class Rows:
    """A law, and the code that writes a nonce into it."""

    law: Law
    code: Code

    @classmethod
    def of(
        cls, law: str, code: str | None, *, sigma: float | None, scale: float | None, size: int
    ) -> Rows:
        """By the names of both, for nonces of ``size`` bytes; see ``law_of`` and ``code_of``."""
        chosen = law_of(law, sigma=sigma, scale=scale)
        return cls(chosen, code_of(code, chosen, size=size))

    def draw(
        self, nonces: Sequence[bytes], seeds: Sequence[bytes], d: int
    ) -> npt.NDArray[np.float64]:
        """One row per nonce, shape (n, d): a function of nonce and seed.

        A row of fewer values is the beginning of a longer one.
        """
        out = np.empty((len(nonces), d))
        rest = np.empty((len(nonces), self.code.symbols, 3), np.uint64)
        for row, own, seed in zip(out, rest, seeds, strict=True):
            stream = SeedStream(seed)
            own[:] = stream.words(own.size).reshape(own.shape)
            self.law.fill(row, stream)
        size = len(nonces[0])
        spelled = np.frombuffer(b"".join(nonces), np.uint8).reshape(len(nonces), size)
        self.code.place(out, spelled, rest)
        return out
