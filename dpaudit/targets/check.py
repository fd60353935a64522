"""Checks of every sampler's request and answer."""

from __future__ import annotations

import math
import os
import time
import traceback
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dpaudit.errors import NotNumbersError, SamplerOutputError, UsageError
from dpaudit.results.text import error_text, one_line

if TYPE_CHECKING:  # a worker starts without it
    from dpaudit.protocols import Kind, Request

__all__ = ["MOST", "RELEASES", "TYPES", "check_request", "noise_array", "numbers", "require_finite"]
__all__ += ["plain_f64", "query_result", "raised_at", "release_array", "timed_calls"]

TYPES = {"f64": "<f8", "f32": "<f4"}
"""Number types that bytes from outside may have; little-endian."""
MOST = 1 << 28
"""Numbers in one answer of a mechanism, at most: 2 GiB."""
_LONGEST_VALUE = 4096  # numbers, so that a question is shorter than a pipe holds
_LEAST = 1e-3  # seconds; a draw with less left times out
_EXACT = 1 << 53  # float64 holds all whole numbers up to here
RELEASES = "(release n={} of m={} numbers); return an array of numbers of shape (n,) or (n, k)"
"""What a mechanism was asked for, in messages."""

Array = npt.NDArray[np.float64]


def check_request(
    request: Request, accepts: Collection[Kind], *, timeout: float, name: str, role: str
) -> None:
    """Refuse a request that a target cannot answer; ``role`` is what ``name`` is.

    Raises:
        UsageError: its kind is not one of those that the target ``accepts``, or ``timeout`` is not
            above 0.
    """
    if request.kind not in accepts:
        value = f"value={request.input}: " if request.kind == "noise for a value" else ""
        raise UsageError(
            f"{value}{role} {name} does not answer {request.kind}; "
            f"ask for {' or '.join(sorted(accepts))}"
        )
    if math.isnan(timeout) or timeout <= 0:
        raise UsageError(f"timeout={timeout}: a time limit is above 0; give it in seconds")


def query_result(value: object) -> Array:
    """``value`` as mechanisms get it: float64, shape (m,).

    Raises:
        UsageError: it is not 1 to 4096 finite numbers.
    """
    result = np.asarray(value, dtype=np.float64)
    if result.ndim != 1 or not 0 < result.size <= _LONGEST_VALUE:
        raise UsageError(
            f"value of shape {result.shape}: a query result has 1 to {_LONGEST_VALUE} numbers, "
            "shape (m,)"
        )
    if not np.isfinite(result).all():
        raise UsageError(
            f"value={result[~np.isfinite(result)][0]}: a query result is finite; choose another"
        )
    return result


def timed_calls(
    draw: Callable[[float], Array], request: Request, *, timeout: float
) -> tuple[Array, Array]:
    """One call of ``draw(seconds left)`` for each of the request's: values, and seconds (calls,).

    All of them have ``timeout`` seconds together.

    Raises:
        UsageError, SamplerError: as ``draw`` does.
    """
    deadline, calls = time.monotonic() + timeout, request.calls or 1
    values, seconds = np.empty((calls, request.n, request.dim)), np.empty(calls)
    for i in range(calls):
        started = time.perf_counter()
        values[i] = draw(max(deadline - time.monotonic(), _LEAST))
        seconds[i] = time.perf_counter() - started
    return values.reshape(request.rows, request.dim), seconds


def noise_array(values: Any, n: int, d: int, name: str) -> Array:
    """An answer as a contiguous float64 array (n, d); (n,) is accepted if d = 1.

    Raises:
        SamplerOutputError: not numbers, or another shape.
    """
    call = f"(call n={n}, d={d}); return an array of numbers of shape (n, d)"
    array = numbers(values, f"sampler {name} returned", call)
    if array.shape != (n, d) and not (d == 1 and array.shape == (n,)):
        one = "" if array.shape else "; if it gives one number per call, say --call 'f()'"
        raise SamplerOutputError(
            f"sampler {name} returned shape {array.shape}, wanted (n={n}, d={d}) {call}{one}"
        )
    return np.ascontiguousarray(array, dtype=np.float64).reshape(n, d)


def release_array(releases: Any, n: int, m: int, name: str) -> npt.NDArray[Any]:
    """``n`` releases of ``m`` numbers as an array (n, k); (n,) is accepted.

    Raises:
        SamplerOutputError: not numbers, or another shape.
    """
    who, call = f"mechanism {name} returned", RELEASES.format(n, m)
    array = numbers(releases, who, call)
    if array.ndim not in (1, 2) or len(array) != n or not array.size:
        raise SamplerOutputError(f"{who} shape {array.shape} {call}")
    return array.reshape(n, -1)


def numbers(values: Any, who: str, call: str) -> npt.NDArray[Any]:
    """An answer as an array of real numbers that float64 holds exactly.

    ``who`` and ``call`` are for the message.

    Raises:
        NotNumbersError: it is not an array of real numbers.
        SamplerOutputError: rounding them to float64 would
            change them.
    """
    try:
        array = np.asarray(values)
    except (TypeError, ValueError) as error:
        raise NotNumbersError(
            f"{who} type={type(values).__name__}, which is not an array ({error_text(error)}) "
            f"{call}"
        ) from None
    kind = array.dtype.kind
    if kind == "O" and array.size and all(type(x) is int for x in array.flat):
        raise _rounded(who, max(array.flat, key=abs))
    if kind not in "iuf":
        raise NotNumbersError(
            f"{who} type={type(values).__name__}, dtype={array.dtype}, which is not real numbers "
            f"{call}"
        )
    if kind in "iu" and array.itemsize == 8 and array.size:
        for extreme in (int(array.max()), int(array.min())):
            if abs(extreme) > _EXACT:
                raise _rounded(who, extreme)
    if kind == "f" and array.itemsize > 8:
        with np.errstate(over="ignore"):
            changed = array[(array.astype(np.float64) != array) & ~np.isnan(array)]
        if changed.size:
            raise _rounded(who, changed[0])
    return array


def _rounded(who: str, number: Any) -> SamplerOutputError:
    return SamplerOutputError(
        f"{who} {number}, which float64 would round: whole numbers are accepted up to 2^53, others "
        "as float64; choose a smaller value or scale"
    )


def raised_at(error: BaseException) -> str:
    """``FILE, line N``: where third-party code raised this; '' if no code of it is known.

    It is the innermost line outside of Python's and installed packages, if there is one. The name
    of a file has no folder and no control characters.
    """
    import sysconfig  # not at the top: few samplers raise

    paths = sysconfig.get_paths()
    libraries = tuple({paths[key] + os.sep for key in ("stdlib", "purelib", "platlib")})
    ours = (os.path.dirname(__file__) + os.sep, "<frozen importlib")
    frames = [
        (frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)
    ]
    frames = [f for f in frames if not f[0].startswith(ours) and "/importlib/" not in f[0]]
    own = [f for f in frames if not f[0].startswith(libraries)]
    if not frames:
        return ""
    file, line = (own or frames)[-1]
    return f"{one_line(os.path.basename(file), limit=80)}, line {line}"


def require_finite(values: Array, name: str, role: str = "sampler") -> Array:
    """``values`` (n, d), if all of them are finite; ``role`` is what ``name`` is, for the message.

    Raises:
        SamplerOutputError: some are not; it says how many, and where the first one is.
    """
    good = np.isfinite(values)
    if not good.all():
        bad = values.size - int(np.count_nonzero(good))
        row, column = (int(i) for i in np.unravel_index(int(np.argmin(good)), values.shape))
        raise SamplerOutputError(
            f"{role} {name} gave {bad} of {values.size} values that are not finite, the first is "
            f"[{row}, {column}]={values[row, column]}; releases must be finite, fix the {role}"
        )
    return values


def plain_f64(name: str, dtype: str, text_mode: bool) -> None:
    """Refuse number formats for sampler kinds that always give float64.

    Raises:
        UsageError: another ``dtype``, or ``text_mode``.
    """
    if dtype != "f64":
        raise UsageError(
            f"dtype={dtype}: only command:, http: and file:….bin are read as another type; "
            f"leave it out of {name}"
        )
    if text_mode:
        raise UsageError(
            f"text_mode={text_mode}: only command: is read as text; leave it out of {name}"
        )
