"""Options, each declared once: a field of a frozen class, with an :class:`Option` in its type.

The command line, Python keywords, tests and experiments read the same classes, and the command
that repeats an audit is written from them.
"""

from __future__ import annotations

import dataclasses
import functools
import shlex
import typing
from collections.abc import Callable, Collection, Mapping
from decimal import Decimal
from typing import Annotated, Any, TypeVar

from dpaudit.errors import UsageError
from dpaudit.results.text import one_line

__all__ = [
    "Argument",
    "Option",
    "OptionField",
    "arguments_of",
    "command_of",
    "count_of",
    "field_of",
    "fields_of",
    "from_keywords",
    "keywords_of",
    "split_keywords",
    "takes",
]

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


@dataclasses.dataclass(frozen=True, slots=True)
class Option:
    """What people read of an option, and how its value is read: ``Annotated[int, Option(…)]``.

    Without ``help`` it is not on the command line. ``flag`` is its name there, by default that of
    the field. ``default`` says the default in words, or as people write it where ``read`` reads it.
    ``completion`` names a function of ``dpaudit.cli.completion``. ``read`` turns text, or a number,
    into the value.
    """

    help: str = ""
    metavar: str | None = None
    flag: str = ""
    default: str = ""
    completion: str = ""
    read: Callable[[Any], Any] | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Argument(Option):
    """The same of what a command takes without a flag."""


@dataclasses.dataclass(frozen=True, slots=True)
class OptionField:
    """A field of a class of options; ``default`` is None if each instance makes its own.

    ``hint`` is its type with everything that annotates it. ``required``: there is no default.
    """

    name: str
    type: Any
    default: Any
    option: Option
    hint: Any
    required: bool = False

    @property
    def flag(self) -> str:
        """Its name on the command line, e.g. ``--time-limit``."""
        return self.option.flag or f"--{self.name.replace('_', '-')}"


def fields_of(cls: Any) -> tuple[OptionField, ...]:
    """The options of a class, in its order."""
    return _fields_of(cls)


@functools.cache
def _fields_of(cls: type) -> tuple[OptionField, ...]:
    hints = typing.get_type_hints(cls, include_extras=True)
    missing = dataclasses.MISSING
    return tuple(
        field_of(
            f.name,
            hints[f.name],
            default=None if f.default is missing else f.default,
            required=missing is f.default is f.default_factory,
        )
        for f in dataclasses.fields(cls)
    )


def field_of(name: str, hint: Any, *, default: Any, required: bool) -> OptionField:
    """An option of that name and annotated type."""
    own = typing.get_args(hint) if typing.get_origin(hint) is Annotated else (hint,)
    option = next((part for part in own[1:] if isinstance(part, Option)), Option())
    return OptionField(name, own[0], default, option, hint, required)


def from_keywords(
    cls: type[T], keywords: Mapping[str, Any], base: T | None = None, /, **defaults: Any
) -> T:
    """An instance of ``cls`` from keywords as people write them; None stands for the default.

    The defaults are ``base``'s values, if it is there, and ``defaults`` before them.

    Raises:
        UsageError: a name that is none of its options, or a value that does not fit.
    """
    (keywords,) = split_keywords(keywords, cls)
    readers = {f.name: f.option.read for f in fields_of(cls)}
    values = defaults | {name: value for name, value in keywords.items() if value is not None}
    for name, value in values.items():
        reader = readers[name]
        values[name] = value if reader is None else reader(value)
    return cls(**values) if base is None else dataclasses.replace(base, **values)  # type: ignore[type-var]


def split_keywords(keywords: Mapping[str, Any], *classes: type) -> list[dict[str, Any]]:
    """Keywords, sorted by the class whose options they are.

    Raises:
        UsageError: a name that belongs to no class.
    """
    names = [[f.name for f in fields_of(cls)] for cls in classes]
    options = [name for some in names for name in some]
    if unknown := set(keywords) - set(options):
        raise UsageError(f"{min(unknown)}: no such option; there are: {', '.join(options)}")
    return [{name: keywords[name] for name in some if name in keywords} for some in names]


def takes(*classes: type) -> Callable[[F], F]:
    """Say in the help of a function that its further keywords are the options of ``classes``."""

    def described(function: F) -> F:
        options = [field for cls in classes for field in fields_of(cls) if field.option.help]
        lines = "".join(f"        {field.name}: {field.option.help}\n" for field in options)
        function.__doc__ = f"{(function.__doc__ or '').rstrip()}\n\n    Keyword Args:\n{lines}    "
        return function

    return described


def command_of(kind: str, target: str, *options: Any, **more: Any) -> str:
    """``dpaudit KIND TARGET`` with what differs from the defaults, and ``more``, where not None."""
    extra = {name: value for name, value in more.items() if value is not None}
    arguments = [word for name, value in extra.items() for word in (f"--{name}", _text(value))]
    return shlex.join(["dpaudit", kind, target, *arguments, *arguments_of(*options)])


def arguments_of(*options: Any, only: Collection[str] = ()) -> list[str]:
    """The words of a command line for what differs from the defaults, in the fields' order.

    ``only``: the fields that count; all, if empty.
    """
    arguments: list[str] = []
    for field, value in _changed(options):
        if field.option.help and (not only or field.name in only):
            arguments += [field.flag] if value is True else [field.flag, _text(value)]
    return arguments


def keywords_of(*options: Any) -> list[str]:
    """What differs from the defaults, as keywords of Python, e.g. ``alpha=0.05``."""
    return [f"{field.name}={value!r}" for field, value in _changed(options)]


def _changed(options: tuple[Any, ...]) -> list[tuple[OptionField, Any]]:
    pairs = [(field, getattr(one, field.name)) for one in options for field in fields_of(type(one))]
    return [(field, value) for field, value in pairs if not _is_default(value, field.default)]


def _is_default(value: Any, default: Any) -> bool:
    if value is None or value is False or (isinstance(value, str) and not value):
        return True
    return default is not None and bool(value == default)


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(map(_text, value))
    return repr(value).removesuffix(".0") if isinstance(value, float) else str(value)


_UNITS = {"k": 10**3, "m": 10**6, "g": 10**9}
_MOST = 10**15


def count_of(value: float | str, *, unit: str, example: str, name: str = "samples") -> int:
    """A count as users write it: ``200000``, ``200k``, ``1M``, ``2e5``, ``1_000_000``.

    Raises:
        UsageError: not a whole number from 1 to 1e15, with the ways to write one.

    >>> [count_of(text, unit="values", example="1e7") for text in ("200k", "1.5M", "2e5", 1e3)]
    [200000, 1500000, 200000, 1000]
    """
    text = str(value).strip().lower()
    factor = _UNITS.get(text[-1:], 1)
    try:
        number = Decimal(text[:-1] if factor > 1 else text) * factor
    except ArithmeticError:
        number = Decimal(0)
    if not (number.is_finite() and 1 <= number <= _MOST and number == int(number)):
        raise UsageError(
            f"{name}={one_line(value)}: must be a whole number of {unit}, "
            f"written like {example}, 200k, 1M or 1_000_000"
        )
    return int(number)
