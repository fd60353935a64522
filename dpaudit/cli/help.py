"""How ``--help`` shows a command, and what a user reads after a wrong command line.

Help has types that say something, and examples to copy; a message has the option, its value, the
rule and an example. A command's examples are the lines of its docstring that begin with
``$ dpaudit``; one that ends with a backslash goes on in the next line.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from dpaudit.registry import nearest
from dpaudit.results.text import one_line

__all__ = ["App", "examples", "misuse"]

_RULES = {
    "int": "must be a whole number",
    "float": "must be a number",
    "finite_number": "must be a finite number",
}
_PLACE = re.compile(r"No such command '(\S*[./:]\S*)'\.")  # no command has such a name
_LIMITS = {
    "greater_than_equal": ("at least", "ge"),
    "greater_than": ("above", "gt"),
    "less_than_equal": ("at most", "le"),
    "less_than": ("below", "lt"),
}
_EXAMPLE = re.compile(r"^[ ]*\$ (dpaudit\b(?:[^\n\\]|\\\n|\\)*)", re.MULTILINE)


def examples(text: str | None) -> list[str]:
    r"""The examples in a command's help, each as one line without its ``$``.

    >>> examples("A command.\n\n$ dpaudit demo\n$ dpaudit audit x \\\n    --claim y")
    ['dpaudit demo', 'dpaudit audit x --claim y']
    """
    commands = _EXAMPLE.findall(text or "")
    return [re.sub(r"\s*\\\n\s*", " ", line).strip() for line in commands]


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
            display = type(param).display_type_rich
            param.display_type_rich = functools.partial(_type_of, param, display)
    return params


def _type_of(param: Any, display: Callable[..., str | None], ctx: Any) -> str | None:
    """What stands behind an option's name; None for flags and arguments."""
    if getattr(param, "is_flag", False) or param.param_type_name == "argument":
        return None
    kind = display(param, ctx=ctx) or ""
    return param.metavar or _TYPES.get(kind, kind.strip("<>"))


def misuse(error: Any) -> str:
    """The message of one of typer's usage errors, in dpaudit's words."""
    context = getattr(error, "ctx", None)
    where = getattr(context, "command_path", "dpaudit")
    message = _invalid(error) or error.format_message()
    lines = [one_line(message, limit=2000), "", f"See: {where} --help"]
    command = getattr(context, "command", None)
    example = examples(getattr(command, "help", None))
    if example and type(error).__name__ == "MissingParameter":
        lines.append(f"e.g. {example[0]}")
    if where == "dpaudit" and (named := _PLACE.fullmatch(message)):
        lines.append(f"To audit it: dpaudit audit {one_line(named[1], limit=200)}")
    return "\n".join(lines)


def _invalid(error: Any) -> str:
    """``option=value: rule`` for a value that typer refused; '' for other errors."""
    param, problems = getattr(error, "param", None), getattr(error.__cause__, "errors", None)
    if param is None or not callable(problems):
        return ""
    problem = problems()[0]
    kind, value = str(problem.get("type")), problem.get("input")
    name = max(param.opts, key=len).lstrip("-") if param.opts else str(param.name)
    return f"{name}={value}: {_rule(kind, problem)}"


def _rule(kind: str, problem: Any) -> str:
    if kind in _LIMITS:
        phrase, key = _LIMITS[kind]
        return f"must be {phrase} {problem['ctx'][key]}"
    for begin, rule in _RULES.items():
        if kind.startswith(begin):
            return rule
    message = str(problem.get("msg", "")).removeprefix("Value error, ")
    _, among, choices = message.partition(" is not one of ")
    if not among:
        return message
    names = choices.rstrip(".").replace("'", "").split(", ")
    near = nearest(problem.get("input"), names)
    return f"choose from: {', '.join(names)}{near if 'did you mean' in near else ''}"
