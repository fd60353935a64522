"""A closed sampler in this process, for experiments on our own samplers."""

from __future__ import annotations

import numpy as np

from dpaudit.errors import SamplerCrashError, SamplerOutputError
from dpaudit.randomness import KeyedStream
from dpaudit.samplers.check import timed_draws
from dpaudit_studies.zoo.specimen import Array, Draw, Make, Specimen

__all__ = ["InProcessSampler", "specimen_sampler"]


class InProcessSampler:
    """A ``RepeatableSampler`` and ``ValueSampler`` without a sandbox.

    ``again`` starts afresh with the randomness of a next process, as an operating system's seed
    would be another one. Not claimed: any protection from what it draws from. ``timeout`` is not
    enforced: only for samplers known to respond.
    """

    available = None

    def __init__(
        self,
        make: Make,
        *,
        name: str,
        stream: KeyedStream,
        dim: int | None = None,
        takes_value: bool = False,
    ) -> None:
        """``make`` is given a child of ``stream``, a new one for each process."""
        self.name = name
        self.dim = dim
        self.takes_value = takes_value
        self._make, self._stream = make, stream
        self._started = 0  # others started from this one
        self._draw: Draw | None = None

    def __enter__(self) -> InProcessSampler:
        self._draw = self._make(self._stream.child("process"))
        return self

    def __exit__(self, *exc: object) -> None:
        self._draw = None

    def again(self) -> InProcessSampler:
        """The same sampler, started afresh once it is entered."""
        self._started += 1
        return InProcessSampler(
            self._make,
            name=self.name,
            stream=self._stream.child("again", self._started),
            dim=self.dim,
            takes_value=self.takes_value,
        )

    def draw(self, n: int, d: int, *, timeout: float) -> Array:
        """``n`` vectors (n, d).

        Raises:
            SamplerCrashError: it is not open, or does not serve this d.
            SamplerOutputError: it gave another shape, or values that are not finite.
        """
        return self.draw_at(0.0, n, d, timeout=timeout)

    def draw_at(self, value: float, n: int, d: int, *, timeout: float) -> Array:
        """``n`` noise vectors (n, d) made for ``value``, where it is told one.

        Raises:
            SamplerError: as in :meth:`draw`.
        """
        del timeout
        if self._draw is None:
            raise SamplerCrashError(f"{self.name}: drawn from outside its with block")
        if self.dim not in (None, d):
            raise SamplerCrashError(f"{self.name}: d={d}: it only gives vectors of {self.dim}")
        told = {"value": value} if self.takes_value else {}
        out: Array = self._draw(n, d, **told)
        if out.shape != (n, d) or not np.isfinite(out).all():
            raise SamplerOutputError(
                f"{self.name}: gave shape {out.shape} for n={n}, d={d}, or values not finite"
            )
        return out

    def draw_calls(self, calls: int, n: int, d: int, *, timeout: float) -> tuple[Array, Array]:
        """``calls`` calls of ``n`` vectors each: values (calls·n, d) and each call's seconds.

        Raises:
            SamplerError: as in :meth:`draw`.
        """
        return timed_draws(self.draw, calls, n, d, timeout=timeout)


def specimen_sampler(specimen: Specimen, *, stream: KeyedStream) -> InProcessSampler:
    """A specimen of the zoo as a closed sampler."""
    return InProcessSampler(
        specimen.make,
        name=specimen.name,
        stream=stream,
        dim=specimen.dim,
        takes_value=specimen.takes_value,
    )
