"""What a specimen of the zoo is: a flaw with a name, and a sampler in this process that has it.

And honest samplers of N(0, 1) from five makers, which an audit must not accuse. All return what
their makers return, in float64; float32 noise stays on the float32 grid, as in practice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, TypeVar

import numpy as np
import numpy.typing as npt
import scipy

from dpaudit.errors import SamplerCrashError, SamplerOutputError, UnknownNameError
from dpaudit.protocols import Facts, Kind, Reply, Request
from dpaudit.randomness import KeyedStream
from dpaudit.registry import nearest
from dpaudit.targets.check import timed_calls

__all__ = [
    "GAUSSIAN",
    "HONEST",
    "RECOVERABLE",
    "Array",
    "Draw",
    "InProcessSampler",
    "Make",
    "Series",
    "Specimen",
    "carried",
    "each",
    "flat",
    "honest",
    "placed",
    "specimen_sampler",
]

GAUSSIAN = "gaussian:sigma=1"

Array = npt.NDArray[np.float64]
Draw = Callable[..., Array]
"""``draw(n, d)``: the next ``n`` vectors, shape (n, d); some also take ``value=``."""
Make = Callable[[KeyedStream], Draw]
"""Starts a sampler with the stream's randomness: one process of it."""
Series = Callable[[int], Array]
"""``following(m)``: the next ``m`` values, shape (m,), however they are cut into calls."""
Kept = TypeVar("Kept")


@dataclass(frozen=True, slots=True)
class Specimen:
    """A flawed sampler, its claim, and whether an audit of 10^7 values can be expected to find it.

    ``expected`` is "found"; "borderline" where chance decides; "missed", where no battery of this
    size at this α can see it, or nobody could; or "passed", of a right sampler. ``why`` gives the
    numbers, where it is not plainly "found". It was written before the zoo was first run.
    """

    name: str
    says: str
    make: Make
    why: str = ""
    dim: int | None = None
    family: str = field(kw_only=True)
    claim: str = GAUSSIAN
    expected: Literal["found", "borderline", "missed", "passed"] = "found"
    takes_value: bool = False


def each(change: Callable[[np.random.Generator, Array], Array]) -> Make:
    """A sampler that changes honest blocks of N(0, 1), without memory from call to call."""

    def make(stream: KeyedStream) -> Draw:
        rng = stream.numpy()
        return lambda n, d: change(rng, rng.standard_normal((n, d)))

    return make


def flat(begin: Callable[[np.random.Generator], Series]) -> Make:
    """A sampler that deals out one endless series row by row, across calls."""

    def make(stream: KeyedStream) -> Draw:
        following = begin(stream.numpy())
        return lambda n, d: following(n * d).reshape(n, d)

    return make


def carried(
    start: Callable[[np.random.Generator], Kept],
    step: Callable[[np.random.Generator, Kept, int], tuple[Array, Kept]],
) -> Make:
    """An endless series: ``step(rng, kept, m)`` gives ``m`` values, and what is kept for the next.

    ``start`` makes what is kept first.
    """

    def begin(rng: np.random.Generator) -> Series:
        kept = start(rng)

        def following(m: int) -> Array:
            nonlocal kept
            values, kept = step(rng, kept, m)
            return values

        return following

    return flat(begin)


def placed(change: Callable[[Array, int], Array | None]) -> Make:
    """Honest values in draw order; ``change(z, at)`` has those with ``at`` values before them.

    It returns other values, or changes these in place.
    """

    def step(rng: np.random.Generator, at: int, m: int) -> tuple[Array, int]:
        z = rng.standard_normal(m)
        other = change(z, at)
        return z if other is None else other, at + m

    return carried(lambda _: 0, step)


class InProcessSampler:
    """A target without a sandbox, and its session: noise, repeatable, for a value where told one.

    ``again`` starts afresh with the randomness of a next process, as an operating system's seed
    would be another one. Not claimed: any protection from what it draws from. ``timeout`` is not
    enforced: only for samplers known to respond.
    """

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
        kinds: set[Kind] = {"noise", "noise in calls"}
        self.facts = Facts(kinds | {"noise for a value"} if takes_value else kinds, dim=dim)
        self._takes_value = takes_value
        self._make, self._stream = make, stream
        self._started = 0  # others started from this one
        self._draw: Draw | None = None

    @contextmanager
    def open(self, *, timeout: float) -> Iterator[InProcessSampler]:
        """Start it at once."""
        del timeout
        self._draw = self._make(self._stream.child("process"))
        try:
            yield self
        finally:
            self._draw = None

    def again(self) -> InProcessSampler:
        """The same sampler, started afresh once it is entered."""
        self._started += 1
        return InProcessSampler(
            self._make,
            name=self.name,
            stream=self._stream.child("again", self._started),
            dim=self.facts.dim,
            takes_value=self._takes_value,
        )

    def ask(self, request: Request, *, timeout: float) -> Reply:
        """Noise, made for the request's value where it is told one.

        Raises:
            SamplerCrashError: it is not open, or does not serve this dim.
            SamplerOutputError: it gave another shape, or values that are not finite.
        """
        if request.calls is not None:
            return Reply(*timed_calls(lambda _: self._noise(request), request, timeout=timeout))
        return Reply(self._noise(request))

    def _noise(self, request: Request) -> Array:
        n, d = request.n, request.dim
        if self._draw is None:
            raise SamplerCrashError(f"{self.name}: drawn from outside its with block")
        if self.facts.dim not in (None, d):
            raise SamplerCrashError(
                f"{self.name}: d={d}: it only gives vectors of {self.facts.dim}"
            )
        options = {"value": request.input or 0.0} if self._takes_value else {}
        out: Array = self._draw(n, d, **options)
        if out.shape != (n, d) or not np.isfinite(out).all():
            raise SamplerOutputError(
                f"{self.name}: gave shape {out.shape} for n={n}, d={d}, or values not finite"
            )
        return out


def specimen_sampler(specimen: Specimen, *, stream: KeyedStream) -> InProcessSampler:
    """A specimen of the zoo as a closed sampler."""
    return InProcessSampler(
        specimen.make,
        name=specimen.name,
        stream=stream,
        dim=specimen.dim,
        takes_value=specimen.takes_value,
    )


RECOVERABLE = frozenset({"numpy-legacy", "torch-float32", "torch-float64"})
"""Right laws from a Mersenne Twister, whose state an audit recovers."""


def _numpy(stream: KeyedStream) -> Draw:
    rng = np.random.Generator(np.random.PCG64(int.from_bytes(stream.entropy(), "big")))
    return lambda n, d: rng.standard_normal((n, d))


def _numpy_legacy(stream: KeyedStream) -> Draw:
    words = np.frombuffer(stream.entropy(), "<u4")
    rng = np.random.RandomState(words)
    return lambda n, d: np.asarray(rng.standard_normal((n, d)))


def _torch(dtype: str) -> Make:
    def make(stream: KeyedStream) -> Draw:
        import torch

        generator = torch.Generator().manual_seed(int.from_bytes(stream.entropy()[:8], "big") >> 1)
        kind = getattr(torch, dtype)
        return lambda n, d: np.asarray(
            torch.randn((n, d), dtype=kind, generator=generator).double().numpy()
        )

    return make


def _product(stream: KeyedStream) -> Draw:
    """The source ``gaussian`` of this package: a ziggurat keyed from ChaCha20, afresh per call."""
    from dpaudit.noise.gaussian import Gaussian

    source, call = Gaussian(), 0

    def draw(n: int, d: int) -> Array:
        nonlocal call
        call += 1
        return np.asarray(source.sample(n, d, stream=stream.child("call", call)))

    return draw


def _csprng(stream: KeyedStream) -> Draw:
    """ChaCha20 through Φ⁻¹: 52 bits for the tail's depth, one for the sign; tails equally fine."""

    def draw(n: int, d: int) -> Array:
        signs = np.unpackbits(np.frombuffer(stream.bytes((n * d + 7) // 8), np.uint8))[: n * d]
        z: Array = np.copysign(scipy.special.ndtri(stream.uniform(n * d) / 2), signs - 0.5)
        return z.reshape(n, d)

    return draw


HONEST: Mapping[str, Make] = {
    "numpy-generator": _numpy,
    "numpy-legacy": _numpy_legacy,
    "torch-float32": _torch("float32"),
    "torch-float64": _torch("float64"),
    "dpaudit-gaussian": _product,
    "chacha20-inverse-cdf": _csprng,
}


def honest(name: str) -> Make:
    """The honest sampler of that name.

    Raises:
        UnknownNameError: there is none, with the nearest match.
    """
    if name not in HONEST:
        raise UnknownNameError(f"sampler={name}: not among the honest ones{nearest(name, HONEST)}")
    return HONEST[name]
