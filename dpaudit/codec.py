"""Results as JSON values, and back: the one codec."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from datetime import date
from typing import Any, TypeVar

import msgspec
from msgspec import Struct, to_builtins

from dpaudit.results.foreign import RefusedError

__all__ = ["convert_value", "to_dict"]

T = TypeVar("T")


def to_dict(result: Any) -> Any:
    """Turn a result (dataclasses, mappings, sequences, numbers, dates) into JSON-ready values.

    Infinite and undefined floats become the strings ``"inf"``, ``"-inf"`` and ``"nan"``. A field
    whose metadata says ``document: False`` is left out; one with ``document: "if any"`` is left out
    if it is empty. Properties that a class lists in ``in_documents`` are written as well.
    """
    if dataclasses.is_dataclass(result) and not isinstance(result, type):
        public = {
            f.name: getattr(result, f.name)
            for f in dataclasses.fields(result)
            if _is_shown(f, result)
        }
        public |= {name: getattr(result, name) for name in getattr(result, "in_documents", ())}
        return {name: to_dict(value) for name, value in public.items()}
    if isinstance(result, Struct):
        return to_dict(to_builtins(result))
    if isinstance(result, Mapping):
        return {str(k): to_dict(v) for k, v in result.items()}
    if isinstance(result, (list, tuple)):
        return [to_dict(v) for v in result]
    # numpy's and torch's scalars and arrays, which json does not know
    if hasattr(result, "tolist"):
        return to_dict(result.tolist())
    if isinstance(result, float) and not math.isfinite(result):
        return str(result)
    return result.isoformat() if isinstance(result, date) else result


def _is_shown(field: dataclasses.Field[Any], result: Any) -> bool:
    rule = field.metadata.get("document", True)
    return bool(getattr(result, field.name)) if rule == "if any" else rule


def convert_value(value: Any, cls: type[T], *, words: bool = True) -> T:
    """Convert a JSON value to ``cls``, a class of documents or of results.

    With ``words``, numbers may be "inf", "-inf" and "nan".

    Raises:
        RefusedError: a field is missing or has the wrong type; the message names it.
    """
    try:
        return msgspec.convert(value, cls, strict=not words)
    except msgspec.ValidationError as error:
        raise RefusedError(str(error)) from error
    except UnicodeEncodeError as error:
        raise RefusedError("a key, or a word of few, that holds half a surrogate pair") from error
