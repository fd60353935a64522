"""Read untrusted files: plain files of a limited size, and JSON of a limited depth and size."""

from __future__ import annotations

import json
import math
import os
import stat
from io import BufferedReader
from pathlib import Path
from typing import Any, NoReturn

__all__ = [
    "MOST_DEPTH",
    "RefusedError",
    "check_depth",
    "open_plain",
    "quoted",
    "read_json",
    "read_plain",
]

MOST_DEPTH = 64
"""How deep JSON may nest; what dpaudit writes nests less than half as deep."""
_MOST_DIGITS = 300  # of a whole number: any such number fits a float
_DENSE = 500_000  # values of a text; longer texts may have one more every 12 characters
_SHOWN = 80


class RefusedError(Exception):
    """The rule that foreign data breaks. The caller adds which file, and what to do."""


def quoted(value: object, *, limit: int = _SHOWN) -> str:
    """``repr(value)`` for a message, of at most ``limit`` characters, also for huge numbers.

    >>> quoted("abc"), quoted("x" * 100, limit=5), quoted(1 << 20_000)
    ("'abc'", "'xxxx…", 'a number of 20001 bits')
    """
    if isinstance(value, int) and value.bit_length() > 4 * limit:
        return f"a number of {value.bit_length()} bits"
    if isinstance(value, (dict, list, tuple)):
        return f"a {type(value).__name__} of {len(value)}"
    text = repr(value[: limit + 1] if isinstance(value, (str, bytes)) else value)
    return text if len(text) <= limit else f"{text[:limit]}…"


def open_plain(path: str | Path, *, follow: bool = True) -> BufferedReader:
    """The file at ``path``, opened for reading; a pipe, a device or a folder is refused at once.

    Raises:
        RefusedError: it cannot be opened, is not a plain file, or is a symbolic link and ``follow``
            is false.
    """
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)
    try:
        number = os.open(path, flags if follow else flags | getattr(os, "O_NOFOLLOW", 0))
    except (OSError, ValueError) as error:  # ValueError: a name with a NUL
        raise RefusedError(
            f"cannot be read ({getattr(error, 'strerror', None) or error})"
        ) from error
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise RefusedError("not a plain file")
    return os.fdopen(number, "rb")


def read_plain(path: str | Path, *, limit: int, follow: bool = True) -> bytes:
    """The bytes of a plain file of at most ``limit`` bytes.

    Raises:
        RefusedError: as :func:`open_plain`, it cannot be read, or is larger.
    """
    with open_plain(path, follow=follow) as file:
        try:
            size = os.fstat(file.fileno()).st_size
            data = b"" if size > limit else file.read(size + 1)  # read(n) allocates n bytes first
        except OSError as error:
            raise RefusedError(f"cannot be read ({error.strerror})") from error
    if size > limit or len(data) > limit:
        raise RefusedError(f"larger than {limit:,} bytes")
    return data


def read_json(data: bytes | str) -> Any:
    """The value of a JSON text in UTF-8; its numbers are finite and fit a float, its text is UTF-8.

    Lone surrogates become ``?``. Time and memory are linear in the text: it may have 500,000
    values, and one more for every 12 characters.

    Raises:
        RefusedError: not UTF-8, not JSON, nested deeper than :data:`MOST_DEPTH`, too many values,
            NaN, Infinity, a number beyond any float or of more than 300 digits.
    """
    try:
        text = data.decode("utf-8-sig") if isinstance(data, bytes) else data
        containers = text.count("[") + text.count("{")
        if containers + text.count(",") + text.count(":") > _DENSE + len(text) // 12:
            raise RefusedError("more values than any document of its size")
        value = json.loads(text, parse_constant=_constant, parse_int=_whole, parse_float=_finite)
    except RecursionError as error:
        raise RefusedError(f"nested deeper than {MOST_DEPTH}") from error
    except ValueError as error:
        raise RefusedError(f"not JSON ({error})") from error
    if containers > MOST_DEPTH:
        check_depth(value)
    if "\\u" in text:
        return _encodable(value)
    return value


def check_depth(value: Any) -> None:
    """Lists and objects nest at most :data:`MOST_DEPTH` deep.

    Raises:
        RefusedError: they nest deeper.
    """
    level = [value]
    for _ in range(MOST_DEPTH + 1):
        inner = (v for c in level for v in (c.values() if isinstance(c, dict) else c))
        level = [v for v in inner if isinstance(v, (dict, list))]
        if not level:
            return
    raise RefusedError(f"nested deeper than {MOST_DEPTH}")


def _encodable(value: Any) -> Any:
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.loads(text.encode("utf-8", "replace"))
    return value


def _constant(name: str) -> NoReturn:
    raise RefusedError(f"{name} is no JSON number")


def _whole(text: str) -> int:
    if len(text) > _MOST_DIGITS:
        raise RefusedError(f"a number of {len(text)} digits; at most {_MOST_DIGITS}")
    return int(text)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise RefusedError(f"the number {text[:_SHOWN]}, which is beyond any float")
    return number
