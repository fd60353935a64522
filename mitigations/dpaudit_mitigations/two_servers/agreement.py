"""What both servers agree on: all messages but the vector, and the lattice of their numbers.

The lattice is fixed by public numbers, and noise drawn on it by chunk. Sums are made in one
compiled pass over a chunk: query + noise, then + server 2's noise. Server 1's noise may also be a
registry source's, rounded to the lattice: also used for lab specimens.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import numba
import numpy as np
import numpy.typing as npt
from msgspec import Meta

from dpaudit import registry
from dpaudit.errors import UsageError
from dpaudit.numeric.exact_integers import IntegerLaw, draw_integers
from dpaudit.protocols import NoiseSource, Stream
from dpaudit.types import Reference
from dpaudit_mitigations.codec import Message, pack
from dpaudit_mitigations.transport.vectors import MOST_VALUES

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "CHUNK",
    "PUBLISH",
    "REACH",
    "TERMS",
    "VECTOR",
    "Draw",
    "Offer",
    "PublicationReceipt",
    "ReleaseTerms",
    "add_query",
    "add_steps",
    "ahead",
    "check_release",
    "draw_of",
    "granularity",
    "most_steps",
    "named_source",
    "secure_draw",
]

PUBLISH = "publish"
TERMS = "terms"
VECTOR = "noisy-answer"

_RELEASE = r"\A[A-Za-z0-9][A-Za-z0-9_-]{0,63}\Z"
_LAST_ROUND = 2**31 - 1
Positive = Annotated[float, Meta(ge=5e-324, le=1.7976931348623157e308)]
Release = Annotated[str, Meta(pattern=_RELEASE)]
Round = Annotated[int, Meta(ge=0, le=_LAST_ROUND)]
Dimension = Annotated[int, Meta(ge=1, le=MOST_VALUES)]
SHA256 = Annotated[bytes, Meta(min_length=32, max_length=32)]


def check_release(release: str, number: int) -> None:
    """Refuse what cannot name a release.

    Raises:
        UsageError: not 1 to 64 letters, digits, - and _, or a round out of range.
    """
    if not re.search(_RELEASE, release):
        raise UsageError(f"release={release}: takes 1 to 64 letters, digits, - and _")
    if not 0 <= number <= _LAST_ROUND:
        raise UsageError(f"round={number}: must lie in 0 to {_LAST_ROUND}")


class ReleaseTerms(Message, frozen=True, kw_only=True, tag="terms"):
    """What server 2 publishes: vectors within ``bound`` before its noise of scale ``sigma``."""

    bound: Positive
    dim: Dimension
    sigma: Positive


class Offer(Message, frozen=True, kw_only=True, tag="offer"):
    """A release offered by server 1: name, round, its noise's scale, and server 2's terms."""

    bound: Positive
    dim: Dimension
    noise_sigma: Positive
    release: Release
    round: Round
    sigma: Positive

    @property
    def name(self) -> str:
        """The release with its round, as in journals, logs and files."""
        return f"{self.release}@{self.round}"

    @property
    def terms(self) -> ReleaseTerms:
        return ReleaseTerms(dim=self.dim, bound=self.bound, sigma=self.noise_sigma)

    def facts(self) -> dict[str, Any]:
        """What must never change under this name."""
        return {
            "sigma": self.sigma,
            "dim": self.dim,
            "bound": self.bound,
            "noise_sigma": self.noise_sigma,
        }

    @property
    def session(self) -> bytes:
        """Binds every frame of the vector to this offer."""
        return hashlib.sha256(pack(self)).digest()


class PublicationReceipt(Message, frozen=True, kw_only=True, tag="receipt"):
    """Server 2 has published: SHA-256 of what it received (``payload``) and of the file."""

    payload: SHA256
    published: SHA256
    release: Release
    round: Round


T = TypeVar("T")
Steps = npt.NDArray[np.int64]
Draw = Callable[[int, int], Steps]
"""Noise in lattice steps: ``draw(at, count)`` gives ``count`` from ``at`` on, always the same."""

CHUNK = 1 << 18  # coordinates per message; a draw's numbers depend on it
REACH = 16  # standard deviations that no honest noise leaves: P < exp(−127) per coordinate

_BITS = 30
_WHOLE = 2.0**53  # below it in magnitude every integer is a double
_FEWEST = 2.0**10  # steps per standard deviation


def granularity(bound: float, *, sigma: float) -> float:
    """The lattice's step g: the least power of two that is ≥ ``bound``, over 2^30.

    So a noisy answer within ``bound`` is at most 2^30 steps, which an int32 holds. The step depends
    on the bound alone, so the two servers compute it independently; ``sigma`` is the smaller noise
    to be drawn on it.

    Raises:
        UsageError: bound or sigma not a finite number > 0, bound not above 16·sigma, or so far
            above it that sigma has fewer than 2^10 steps.
    """
    for name, value in (("bound", bound), ("sigma", sigma)):
        if not (value > 0 and math.isfinite(value)):
            raise UsageError(f"{name}={value}: must be a finite number > 0")
    if bound <= REACH * sigma:
        raise UsageError(f"bound={bound}: must exceed {REACH}·sigma={REACH * sigma}; raise it")
    fraction, exponent = math.frexp(bound)
    power = exponent - (fraction == 0.5) - _BITS
    if not -1000 <= power <= 900:
        raise UsageError(f"bound={bound}: outside a lattice of doubles; change the query's unit")
    g = math.ldexp(1.0, power)
    if sigma / g < _FEWEST:
        raise UsageError(
            f"bound={bound}: more than 2^20·sigma={sigma}; clip the query to less, or rescale it"
        )
    return g


def most_steps(bound: float, *, step: float) -> int:
    """How many steps a value within ``bound`` has, at most."""
    return math.floor(bound / step)


def to_steps(values: npt.NDArray[np.floating], *, step: float) -> Steps:
    """The nearest whole numbers of steps; the quotient is exact, since ``step`` is a power of two.

    Raises:
        UsageError: a value that is not finite, or of 2^53 steps or more.
    """
    steps = np.rint(values.astype(np.float64) / step)
    if not (np.abs(steps) < _WHOLE).all():  # refuses NaN too
        raise UsageError("noise: a value that is not finite, or beyond the lattice")
    return steps.astype(np.int64)


def chunks(dim: int) -> Iterator[tuple[int, int]]:
    """(start, count) of the chunks of ``dim`` coordinates."""
    for at in range(0, dim, CHUNK):
        yield at, min(CHUNK, dim - at)


def secure_draw(*, sigma: float, step: float, stream: Stream) -> Draw:
    """Exact discrete Gaussian steps of scale ``sigma``/``step``, each chunk from its own child."""
    law = IntegerLaw.gaussian(sigma / step)
    return lambda at, count: draw_integers(count, law, stream=stream.child("chunk", at))


def ahead(
    work: Callable[[int, int], T], dim: int, *, threads: int = 2
) -> Iterator[tuple[int, int, T]]:
    """(start, count, ``work(start, count)``) of every chunk in order, computed ahead by threads."""
    pool = ThreadPoolExecutor(threads, thread_name_prefix="noise")
    waiting: deque[tuple[int, int, Future[T]]] = deque()
    try:
        for at, count in chunks(dim):
            waiting.append((at, count, pool.submit(work, at, count)))
            if len(waiting) > 2 * threads:
                start, size, future = waiting.popleft()
                yield start, size, future.result()
        while waiting:
            start, size, future = waiting.popleft()
            yield start, size, future.result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


_LARGEST = np.int64(2**63 - 1)

jit: Any = numba.njit(nogil=True, cache=True, boundscheck=False)


@jit
def add_query(noise, values, per_step, out):  # type: ignore[no-untyped-def]
    """``out`` = nearest integers to ``values``·``per_step`` + ``noise``; returns the largest |sum|.

    ``per_step`` is a power of two: exact in float64. The largest |sum| is 2^63 − 1 for −2^63, which
    has none; only where it is below 2^31 does the int32 ``out`` hold the sums.
    """
    most = np.int64(0)
    for i in range(noise.size):
        total = np.int64(np.rint(np.float64(values[i]) * per_step)) + noise[i]
        size = abs(total)
        most = max(most, size if size >= 0 else _LARGEST)
        out[i] = np.int32(total)
    return most


@jit
def add_steps(noise, steps, step, out):  # type: ignore[no-untyped-def]
    """``out`` = ``step``·(``steps`` + ``noise``), exact in float64 below 2^53 steps.

    It is rounded if ``out`` is float32.
    """
    for i in range(noise.size):
        out[i] = np.float64(steps[i] + noise[i]) * step


def named_source(text: str, *, sigma: float, dim: int) -> NoiseSource:
    """The source ``NAME[:option=value,…]`` with noise of scale ``sigma``, for vectors of ``dim``.

    Raises:
        UsageError: no such source, or one of another scale or dimension.
    """
    source: NoiseSource = registry.create(
        "sources", registry.with_known_options("sources", Reference.parse(text), sigma=sigma)
    )
    if source.sigma != sigma:
        raise UsageError(f"source={text}: has scale {source.sigma}; must be sigma={sigma}")
    if source.dim not in (None, dim):
        raise UsageError(f"source={text}: serves {source.dim} values, the query has {dim}")
    return source


def draw_of(
    source: NoiseSource, *, dim: int, times: float = 1.0
) -> Callable[[float, Stream], Draw]:
    """``times`` the source's noise in lattice steps, as ``AnswerSide`` and ``NoiseSide`` take it.

    The source is asked for noise alone and never gets the query.
    """

    def make(step: float, stream: Stream) -> Draw:
        noise = source.sample(1, dim, stream=stream)[0]
        steps: Steps = to_steps(noise * times if times != 1 else noise, step=step)
        return lambda at, count: np.array(steps[at : at + count])

    return make
