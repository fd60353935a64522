"""LLL and BKZ in segments: the local work by BLASter's core, the rest by numpy in double precision.

The basis is kept as exact whole numbers (the rows k); what is rounded is the triangular factor R of
their images alone, and that is computed afresh from k every few rounds. So precision does not run
out with the number of rows, and no scaling is needed. A round is: LLL, deep LLL or BKZ in all
segments of the diagonal of R (``blaster_core``), then Seysen's reduction between segments.

The method is BLASter's (Ducas, Pulles and Stevens, https://github.com/ludopulles/BLASter, MIT).
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import itertools
import math
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, cast

import numpy as np
import scipy
from threadpoolctl import ThreadpoolController

from dpaudit.errors import MissingExtraError
from dpaudit_attacks.keyless.form import Array, Form, decreasing
from dpaudit_attacks.keyless.reduction.interface import ReductionFailed, Stage, Whole

__all__ = ["BlasterReducer"]

_NAMES = {"SIGINT", "SIGTERM", "SIGHUP", "SIGALRM", "SIGQUIT"}  # Windows lacks some
_STOPS = [number for number in signal.Signals if number.name in _NAMES]
_BLOCKS = (44, 48, 52, 54, 56, 58, 60, 62, 64, 66, 68, 70, 72, 74, 76, 78, 80)  # 80: its limit
_TOURS = 2
_SMALL, _RESTARTS = 80, 8  # a small basis gets stuck: pruned enumeration has missed the vector
_SEGMENT = 64
_BEYOND_BLOCK = 20  # a BKZ segment is this much longer than its blocks, at least
_DEEP = 4
_DELTA = 0.99
_BETA_STEP = 8.0
_AFRESH = 8  # rounds after which R is computed from k again
_LOOKED_AT = 16  # rounds of LLL after which its vectors are looked at
_STALLED = 40  # rounds without progress, after which a reduction counts as complete
_EXACT = 2.0**53
_CANCELS = 2.0**-13  # error of an image that does no harm; vectors have √n
_MIXED = 4  # vectors added to each one, about


class BlasterReducer:
    """LLL and 4-deep LLL for ever smaller β, then progressive BKZ; one thread."""

    name = "blaster"
    most_rows = 1024  # not a limit of precision; a matter of hours

    def stages(
        self, form: Form, *, beta: float, block: int, resume: Stage | None = None
    ) -> Iterator[Stage]:
        """See :class:`~dpaudit_attacks.keyless.reduction.interface.Reducer`."""
        betas = decreasing(beta, _BETA_STEP)
        basis = _Basis(form, beta, None if resume is None else resume.k)
        done = 0

        def step(name: str, rounds: Callable[[], Iterator[None]]) -> Iterator[Stage]:
            nonlocal done
            if resume is None or done >= resume.done:
                for _ in rounds():
                    yield Stage(name, done, basis.vectors())
                yield Stage(name, done + 1, basis.vectors())
            done += 1

        for each in betas:
            yield from step("LLL", functools.partial(basis.lll_at, each))
        yield from step("deep LLL", functools.partial(basis.lll, _DEEP))
        block = min(block, form.n)
        sizes = [b for b in _BLOCKS if b <= block] or [block] * (block > _DEEP)
        for size in sizes:
            for _ in range(_TOURS):
                yield from step(f"BKZ-{size}", functools.partial(basis.tour, size))
        if sizes and form.n <= _SMALL:
            for start in range(_RESTARTS):
                again = functools.partial(basis.tour_from_elsewhere, sizes[-1], start)
                yield from step(f"BKZ-{sizes[-1]}", again)


@functools.cache
def _core() -> Any:
    before = {number: signal.getsignal(number) for number in _STOPS}
    try:
        core = importlib.import_module("blaster_core")
    except ImportError as error:
        raise MissingExtraError(
            f"keyless search: needs blaster-python, which cannot be imported ({error}); "
            "pip install 'dpaudit[blaster]'"
        ) from error
    _handle_as(before)
    core.set_num_cores(1)
    core.set_debug_flag(0)
    return core


def _handle_as(before: Mapping[signal.Signals, Any]) -> None:
    """Undo cysignals' handlers: they jump out of the core, which has no GIL then, and crash."""
    for number, handler in before.items():
        if getattr(handler, "__module__", "").startswith("cysignals"):  # fpylll came first
            handler = signal.default_int_handler
        with contextlib.suppress(ValueError):  # only the main thread may; searches run there
            if handler is not None:
                signal.signal(number, handler)


class _Basis:
    """Columns ``_k`` of whole numbers, and R of their images."""

    def __init__(self, form: Form, beta: float, rows: Whole | None) -> None:
        self._core = _core()
        self._form = form
        n = form.n
        self._k: Whole = np.eye(n, dtype=np.int64) if rows is None else rows.T.copy()
        self._segment = min(_SEGMENT, n)
        self._offset = 0
        self._images = form.images(beta).T
        self._afresh()

    def vectors(self) -> Whole:
        return np.ascontiguousarray(self._k.T)

    def _afresh(self) -> None:
        with _one_thread():
            images = _images_of(self._images, self._k.astype(np.float64))
            self._r: Array = np.ascontiguousarray(np.linalg.qr(images, mode="r"))
        self._age = 0

    def lll_at(self, beta: float) -> Iterator[None]:
        self._images = self._form.images(beta).T
        self._afresh()
        yield from self.lll(0)

    def lll(self, depth: int) -> Iterator[None]:
        """Rounds of (deep) LLL until R is weakly reduced; yields now and then."""
        least, stalled, rounds = math.inf, 0, 0
        while True:
            self._offset = self._segment // 2 if self._offset == 0 else 0
            if depth:
                local = functools.partial(self._core.block_deep_lll, depth)
            else:
                local = self._core.block_lll
            self._round(local, self._offset, self._segment)
            rounds += 1
            if self._reduced():
                return
            left = float(np.log(np.abs(np.diag(self._r))) @ np.arange(self._form.n, 0, -1))
            stalled = 0 if left < least - 1e-6 else stalled + 1
            least = min(least, left)
            if stalled >= _STALLED:
                return
            if rounds % _LOOKED_AT == 0:
                yield

    def tour(self, block: int) -> Iterator[None]:
        """One sweep of BKZ segments over the basis; yields after each of its moves."""
        n, front = self._form.n, 0
        length = min(n, max(self._segment, block + _BEYOND_BLOCK))
        local = functools.partial(self._core.block_bkz, block)
        while True:
            self._round(local, front % block, length)
            yield from self.lll(_DEEP)
            if front + block > n:
                return
            yield
            front += length - block + 1

    def tour_from_elsewhere(self, block: int, start: int) -> Iterator[None]:
        """A tour of another basis of the lattice: this one times a random unimodular matrix."""
        rng = np.random.default_rng(start)
        n = self._form.n
        move = np.triu(rng.integers(-1, 2, (n, n)) * (rng.random((n, n)) < _MIXED / n), 1)
        self._k = _product(self._k, (move + np.eye(n))[:, rng.permutation(n)])
        self._afresh()
        yield from self.lll(0)
        yield from self.tour(block)

    def _round(self, local: Callable[..., None], offset: int, length: int) -> None:
        if self._age >= _AFRESH:
            self._afresh()
        self._age += 1
        with _one_thread():
            self._move(local, offset, length)

    def _move(self, local: Callable[..., None], offset: int, length: int) -> None:
        n, r = self._form.n, self._r
        turned = np.eye(n, dtype=np.int64)
        local(r, np.zeros((1, n), np.int64), turned, _DELTA, offset, length)
        edges = sorted({0, *range(offset, n, length), n})
        for a, b in itertools.pairwise(edges):
            turn = turned[a:b, a:b].astype(np.float64)
            r[:b, a:b] = r[:b, a:b] @ turn
            q, r[a:b, a:b] = np.linalg.qr(r[a:b, a:b])
            r[a:b, b:] = q.T @ r[a:b, b:]
            self._k[:, a:b] = _product(self._k[:, a:b], turn)
        self._k = _product(self._k, _seysen(r, edges))

    def _reduced(self) -> bool:
        """Whether each two neighbours fulfil Lovász's condition."""
        length = np.abs(np.diag(self._r))
        first, second = length[:-1], length[1:]
        beside = (np.diag(self._r, 1) + first / 2) % first - first / 2
        return bool((beside**2 + second**2 > _DELTA * first**2).all())


@functools.cache
def _threads() -> ThreadpoolController:
    importlib.import_module("scipy.linalg")  # brings a BLAS of its own
    return ThreadpoolController()


def _one_thread() -> AbstractContextManager[object]:
    """More threads make matrices of this size slower: they wait for each other."""
    return cast("AbstractContextManager[object]", _threads().limit(limits=1))


def _images_of(images: Array, k: Array) -> Array:
    """``images`` times whole numbers k, as precise as the result, however much cancels.

    Above 500 rows, k of 10^8 have images of 10^7 times that, which cancel to a millionth. So the
    images are cut into parts of so few bits that their products are exact.
    """
    largest, spread = float(np.abs(images).max()), float(np.abs(k).max()) * len(k)
    if largest * spread < _CANCELS * _EXACT:
        return np.asarray(images @ k)
    bits = 52 - math.ceil(math.log2(spread))
    if bits < 1:
        raise ReductionFailed(f"blaster: numbers of {spread:.3g} in a basis of {len(k)} rows")
    grid = 2.0 ** (math.ceil(math.log2(largest)) - bits)
    product, left = np.zeros_like(images), images
    while grid * spread > _CANCELS:
        part = np.rint(left / grid) * grid
        product, left = product + part @ k, left - part
        grid *= 2.0**-bits
    return np.asarray(product + left @ k)


def _product(k: Whole, by: Array) -> Whole:
    """``k`` times the whole numbers ``by``, exactly."""
    bound = float(np.abs(k).max()) * float(np.abs(by).max()) * len(by)
    about = k.astype(np.float64) @ by
    if bound < _EXACT:
        return np.ascontiguousarray(about.astype(np.int64))
    if bound < 2.0**100 and np.abs(by).max() < _EXACT and np.abs(about).max() < 2.0**62:
        return np.ascontiguousarray(k @ by.astype(np.int64))  # modulo 2^64, so exact
    raise ReductionFailed(f"blaster: numbers of {bound:.3g} in a basis of {len(k)} rows")


def _seysen(r: Array, edges: list[int]) -> Array:
    """Seysen's reduction of R between segments with these edges: the transformation; R in place."""
    u = np.eye(len(r))

    def reduce(low: int, high: int) -> None:
        if high - low < 2:
            return
        middle = (low + high) // 2
        reduce(low, middle)
        reduce(middle, high)
        a, b, c = edges[low], edges[middle], edges[high]
        beside = r[a:b, b:c] @ u[b:c, b:c]
        move = np.rint(scipy.linalg.solve_triangular(r[a:b, a:b], -beside, check_finite=False))
        r[a:b, b:c] = beside + r[a:b, a:b] @ move
        u[a:b, b:c] = u[a:b, a:b] @ move

    reduce(0, len(edges) - 1)
    return u
