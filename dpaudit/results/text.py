"""Make text from outside safe for every output: terminal, HTML, Markdown, XML, JSON, logs.

A sampler, a file, a plug-in or a network peer chooses the text of exceptions, names and fields.
Nothing of it may steer a terminal (``ESC``, OSC, ``CR``, backspace, C1), change the direction or
the line of a display (bidi, line separators), be invisible, or fail to encode (lone surrogates).
HTML, XML and rich markup have characters of their own: their writers escape them in addition.
Standard library only.
"""

from __future__ import annotations

import contextlib
import re
import sys
from typing import Any

__all__ = ["error_text", "harmless", "json_escaped", "one_line", "printable", "tell"]

# printable for Python, but invisible: the rest of Unicode's Default_Ignorable_Code_Point
_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0000-\U000e0fff]"
)
_SPACES = (
    "\t\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u202f\u205f\u3000"
)
_CLASS_NAME = type.__dict__["__name__"]  # not what a metaclass says


def printable(text: object, *, limit: int = 2000) -> str:
    """``text`` with every control, direction, invisible or undecodable character as ``�``.

    At most ``limit`` characters; what is cut ends in ``…``. Line feeds stay, other white space
    becomes a space; :func:`one_line` joins the lines. An object's ``__str__`` may do anything but
    run for ever: whatever it raises is caught, ``SystemExit`` too, except ``KeyboardInterrupt``,
    which may be the user's Ctrl-C.

    >>> printable(chr(27) + "[31mred")
    '�[31mred'
    """
    return harmless(_cut(_text(text, limit + 1), limit))


def one_line(text: object, *, limit: int = 500) -> str:
    """As :func:`printable`, on one line: each run of white space becomes one space.

    >>> one_line("first" + chr(13) + chr(10) + "  second")
    'first second'
    """
    room = 4 * limit
    prefix = _text(text, room + 1)
    line = " ".join(prefix.split())
    return harmless(_cut(line + "…" if len(prefix) > room else line, limit))


def error_text(error: BaseException, *, limit: int = 500) -> str:
    """An exception's class and message on one line; the message is cut to ``limit`` characters.

    >>> error_text(ValueError("too" + chr(27) + " much")), error_text(KeyError())
    ('ValueError: too� much', 'KeyError')
    """
    name, message = one_line(_name(error)), one_line(error, limit=limit)
    return f"{name}: {message}" if message else name


def json_escaped(text: str) -> str:
    r"""The same JSON document, with the characters that :func:`printable` replaces as ``\uXXXX``.

    ``text`` is valid JSON, so these characters are inside its strings. Line feeds stay.

    >>> print(json_escaped('"a' + chr(0x202e) + '"'))
    "a\u202e"
    """
    lines = text.split("\n")
    return "\n".join(s if _is_harmless(s) else "".join(map(_escape, s)) for s in lines)


def harmless(text: str, *, tabs: bool = False) -> str:
    """A whole plain ``str``, with the characters that :func:`printable` replaces as ``�``.

    With ``tabs`` tabs stay.
    """
    if tabs:
        return "\t".join(map(harmless, text.split("\t")))
    lines = text.split("\n")  # most lines of a long text need no look at each character
    return "\n".join(s if _is_harmless(s) else "".join(map(_shown, s)) for s in lines)


def tell(text: object, *, limit: int = 20_000) -> None:
    """Print :func:`printable` ``text`` to stderr; errors in writing are ignored."""
    with contextlib.suppress(OSError, ValueError, AttributeError):  # full, closed, or None
        print(printable(text, limit=limit), file=sys.stderr, flush=True)


def _text(value: object, most: int) -> str:
    """The first ``most`` characters of ``str(value)`` as a plain ``str``, whatever its class."""
    text: Any
    try:  # not isinstance: it asks value.__class__
        text = value if issubclass(type(value), str) else str(value)
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 foreign __str__: it may raise anything
        text = f"<{_name(value)} that cannot be printed>"
    return str.__getitem__(text, slice(most))


def _name(value: object) -> str:
    """The name of its class, cut, as a plain ``str``."""
    return str.__getitem__(_CLASS_NAME.__get__(type(value)), slice(100))


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _is_harmless(text: str) -> bool:
    return text.isprintable() and (text.isascii() or not _INVISIBLE.search(text))


def _shown(character: str) -> str:
    return character if _is_harmless(character) else " " if character in _SPACES else "�"


def _escape(character: str) -> str:
    if _is_harmless(character):
        return character
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))
