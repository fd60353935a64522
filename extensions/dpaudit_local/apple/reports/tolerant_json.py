"""JSON from untrusted files: strict, except for a few errors that cannot change the meaning."""

from __future__ import annotations

import json
import re
from typing import Any

__all__ = ["RefusedJsonError", "read_documents"]

MOST_CONTAINERS = 1_000_000
"""The most brackets or colons in one text: an empty list of two bytes takes 56 of memory."""
MOST_DOCUMENTS = 10_000

_STRING_OR_COMMA = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|,(?=\s*[\]}])', re.DOTALL)
_BETWEEN = re.compile(r"[\s,]*")


class RefusedJsonError(Exception):
    """Why a text is refused."""


def read_documents(text: str) -> tuple[list[Any], list[str]]:
    """The JSON documents in ``text``, in order, and each tolerated error in words.

    Tolerated: a byte order mark, several documents in a row (separated by white space or commas), a
    comma before a closing bracket, and control characters in strings. Refused: a duplicate key in
    one object, NaN and Infinity, nesting that the parser does not follow, more than a million
    brackets or colons, and everything else that is not JSON. Memory is at most about twenty times
    the text's.

    Raises:
        RefusedJsonError: refused, or empty.
    """
    errors = []
    if text.startswith("\ufeff"):
        text = text[1:]
        errors.append("starts with a byte order mark")
    if text.count("[") + text.count("{") > MOST_CONTAINERS or text.count(":") > MOST_CONTAINERS:
        raise RefusedJsonError(
            f"more than {MOST_CONTAINERS} brackets or colons; no report has so many"
        )
    try:
        documents, between = _documents(text, strict=True)
    except RefusedJsonError:
        repaired, commas = _without_commas(text)
        documents, between = _documents(repaired, strict=False)
        if commas:
            many = f"{commas} commas" if commas > 1 else "a comma"
            errors.append(f"{many} before a closing bracket")
        if _fails(repaired):
            errors.append("control characters, such as line breaks, inside strings")
    if len(documents) > 1:
        errors.append(f"{len(documents)} JSON documents one after the other")
    if between:
        errors.append("commas outside any document")
    return documents, errors


def _fails(text: str) -> bool:
    try:
        _documents(text, strict=True)
    except RefusedJsonError:
        return True
    return False


def _documents(text: str, *, strict: bool) -> tuple[list[Any], bool]:
    decoder = json.JSONDecoder(strict=strict, object_pairs_hook=_once, parse_constant=_constant)
    documents: list[Any] = []
    commas = False
    place = _after(text, 0)
    try:
        while place < len(text):
            if len(documents) == MOST_DOCUMENTS:
                raise RefusedJsonError(f"more than {MOST_DOCUMENTS} JSON documents")
            document, end = decoder.raw_decode(text, place)
            documents.append(document)
            place = _after(text, end)
            commas = commas or "," in text[end:place]
    except RecursionError:
        raise RefusedJsonError("nested too deep") from None
    except ValueError as error:
        raise RefusedJsonError(f"not JSON: {error}") from None
    if not documents:
        raise RefusedJsonError("empty")
    return documents, commas


def _after(text: str, place: int) -> int:
    found = _BETWEEN.match(text, place)
    return place if found is None else found.end()


def _without_commas(text: str) -> tuple[str, int]:
    commas = 0

    def replaced(found: re.Match[str]) -> str:
        nonlocal commas
        if found.group() != ",":
            return found.group()
        commas += 1
        return " "

    return _STRING_OR_COMMA.sub(replaced, text), commas


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        raise RefusedJsonError("a duplicate key in one object; readers would disagree about it")
    return result


def _constant(name: str) -> Any:
    raise RefusedJsonError(f"{name} is not a JSON number")
