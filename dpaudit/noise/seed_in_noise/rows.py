"""Rows of noise from nonces and their seeds: the part that sampler and reader share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dpaudit.noise.seed_in_noise.codes import Code, code_of
from dpaudit.noise.seed_in_noise.laws import Law, SeedStream, law_of

__all__ = ["Rows"]


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
        found = law_of(law, sigma=sigma, scale=scale)
        return cls(found, code_of(code, found, size=size))

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
