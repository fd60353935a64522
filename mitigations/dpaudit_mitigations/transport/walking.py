"""A walk over msgpack bytes that builds nothing: is every declared length there, is it shallow, are there few items?

msgpack allocates a list of the declared length before its items come, once for each level of nesting; a few kilobytes of
headers can so claim gigabytes. After this walk every declared length is known to be true.
"""

from __future__ import annotations

from dpaudit.errors import MessageError

__all__ = ["DEEPEST", "MOST_ITEMS", "walk"]

DEEPEST = 6
"""Levels of nesting, at most."""
MOST_ITEMS = 1 << 16
"""Values in one message, keys and containers counted, at most."""

_FIXED = (
    {0xC0: 0, 0xC2: 0, 0xC3: 0, 0xCA: 4, 0xCB: 8}
    | {0xCC + i: 1 << i for i in range(4)}
    | {0xD0 + i: 1 << i for i in range(4)}
)
_SIZED = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}  # bin and str: how many bytes their length has
_LISTS = {0xDC: 2, 0xDD: 4}
_MAPS = {0xDE: 2, 0xDF: 4}


def walk(data: bytes, what: str) -> None:
    """Pass if ``data`` is exactly one msgpack value within the limits, without extension types.

    Raises:
        MessageError: it is not.
    """
    size, at, items = len(data), 0, 0
    open_: list[int] = [1]  # values still to come, level by level
    while open_:
        if open_[-1] == 0:
            open_.pop()
            continue
        open_[-1] -= 1
        items += 1
        if items > MOST_ITEMS:
            raise MessageError(f"{what}: more than {MOST_ITEMS:,} values")
        if at >= size:
            raise MessageError(f"{what}: cut short")
        tag = data[at]
        at += 1
        inner = -1
        if tag <= 0x7F or tag >= 0xE0:
            continue
        if tag <= 0x8F:
            inner = 2 * (tag & 0x0F)
        elif tag <= 0x9F:
            inner = tag & 0x0F
        elif tag <= 0xBF:
            at += tag & 0x1F
        elif tag in _FIXED:
            at += _FIXED[tag]
        elif tag in _SIZED:
            end = at + _SIZED[tag]
            at = end + int.from_bytes(data[at:end], "big")
        elif tag in _LISTS or tag in _MAPS:
            end = at + (_LISTS.get(tag) or _MAPS[tag])
            inner = int.from_bytes(data[at:end], "big") * (2 if tag in _MAPS else 1)
            at = end
        else:
            raise MessageError(f"{what}: not a message (an extension type or a reserved byte)")
        if at > size or inner > size - at:
            raise MessageError(f"{what}: cut short, or a declared length is not true")
        if inner >= 0:
            open_.append(inner)
            if len(open_) > DEEPEST + 1:
                raise MessageError(f"{what}: nested more than {DEEPEST} deep")
    if at != size:
        raise MessageError(f"{what}: {size - at:,} bytes too many at its end")
