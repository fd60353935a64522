"""How ``--help`` shows a command: types that say something, and examples to copy.

A command's examples are the lines of its docstring that begin with ``$ dpaudit``; one that ends
with a backslash goes on in the next line.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

__all__ = ["App", "examples"]

_EXAMPLE = re.compile(r"^[ ]*\$ (dpaudit\b(?:[^\n\\]|\\\n|\\)*)", re.MULTILINE)


def examples(text: str | None) -> list[str]:
    r"""The examples in a command's help, each as one line without its ``$``.

    >>> examples("A command.\n\n$ dpaudit demo\n$ dpaudit audit x \\\n    --claim y")
    ['dpaudit demo', 'dpaudit audit x --claim y']
    """
    found = _EXAMPLE.findall(text or "")
    return [re.sub(r"\s*\\\n\s*", " ", line).strip() for line in found]


class _Command(TyperCommand):
    def get_params(self, ctx: Any) -> list[Any]:
        return _plain(super().get_params(ctx))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [re.sub("[{}]", "", piece) for piece in super().collect_usage_pieces(ctx)]


class _Group(TyperGroup):
    def get_params(self, ctx: Any) -> list[Any]:
        return _plain(super().get_params(ctx))


class App(typer.Typer):
    """Typer with dpaudit's settings: ``-h``, rich markup, no types that say nothing."""

    def __init__(self, *, cls: type[TyperGroup] = TyperGroup, **settings: Any) -> None:
        group = type(cls.__name__, (_Group, cls) if cls is not TyperGroup else (_Group,), {})
        super().__init__(
            cls=group,
            no_args_is_help=settings.pop("no_args_is_help", True),
            pretty_exceptions_enable=False,
            rich_markup_mode="rich",
            context_settings={"help_option_names": ["-h", "--help"]},
            **settings,
        )

    def command(self, name: str | None = None, **settings: Any) -> Callable[[Any], Any]:
        """As Typer's, with this module's help."""
        return super().command(name, cls=_Command, **settings)


_TYPES = {"<str>": "TEXT", "<int>": "N", "<float>": "X", "<path>": "PATH", "<list[str]>": "TEXT"}


def _plain(params: list[Any]) -> list[Any]:
    for param in params:
        if hasattr(param, "display_type_rich"):
            shown = type(param).display_type_rich
            param.display_type_rich = functools.partial(_type_of, param, shown)
    return params


def _type_of(param: Any, shown: Callable[..., str | None], ctx: Any) -> str | None:
    """What stands behind an option's name; None for flags and arguments."""
    if getattr(param, "is_flag", False) or param.param_type_name == "argument":
        return None
    said = shown(param, ctx=ctx) or ""
    return param.metavar or _TYPES.get(said, said.strip("<>"))
