"""Text from outside is made safe here, once, before any format sees it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from msgspec import Struct, structs

from dpaudit.results.text import printable

__all__ = ["safe"]

_LONGEST = 20_000
T = TypeVar("T")


def safe(value: T) -> T:
    """A report, or a part of one, whose texts are printable and of at most 20,000 characters.

    Numbers and everything else stay. ``data`` of a report is left alone: no format shows it, and
    JSON escapes it.
    """
    made: Any = value
    if isinstance(value, str):
        made = (
            value if value.isascii() and value.isprintable() else printable(value, limit=_LONGEST)
        )
        made = made if len(made) <= _LONGEST else printable(made, limit=_LONGEST)
    elif isinstance(value, Struct):
        fields = {n: getattr(value, n) for n in value.__struct_fields__ if n != "data"}
        made = structs.replace(value, **{name: safe(one) for name, one in fields.items()})
    elif isinstance(value, tuple):
        made = tuple(safe(one) for one in value)
    elif isinstance(value, list):
        made = [safe(one) for one in value]
    elif isinstance(value, Mapping):
        made = {safe(name): safe(one) for name, one in value.items()}
    elif hasattr(value, "__dataclass_fields__"):
        import dataclasses

        fields = {f.name: safe(getattr(value, f.name)) for f in dataclasses.fields(made)}
        made = dataclasses.replace(made, **fields)
    return made  # type: ignore[no-any-return]
