"""What a user reads after a wrong command line: the option, its value, the rule, an example."""

from __future__ import annotations

import re
from typing import Any

from dpaudit.cli.help import examples
from dpaudit.registry import nearest
from dpaudit.results.text import one_line

__all__ = ["misuse"]

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


def misuse(error: Any) -> str:
    """The message of one of typer's usage errors, in dpaudit's words."""
    context = getattr(error, "ctx", None)
    where = getattr(context, "command_path", "dpaudit")
    message = _invalid(error) or error.format_message()
    lines = [one_line(message, limit=2000), "", f"See: {where} --help"]
    command = getattr(context, "command", None)
    shown = examples(getattr(command, "help", None))
    if shown and type(error).__name__ == "MissingParameter":
        lines.append(f"e.g. {shown[0]}")
    if where == "dpaudit" and (named := _PLACE.fullmatch(message)):
        lines.append(f"To audit it: dpaudit audit {one_line(named[1], limit=200)}")
    return "\n".join(lines)


def _invalid(error: Any) -> str:
    """``option=value: rule`` for a value that typer refused; '' for other errors."""
    param, problems = getattr(error, "param", None), getattr(error.__cause__, "errors", None)
    if param is None or not callable(problems):
        return ""
    problem = problems()[0]
    kind, given = str(problem.get("type")), problem.get("input")
    name = max(param.opts, key=len).lstrip("-") if param.opts else str(param.name)
    return f"{name}={given}: {_rule(kind, problem)}"


def _rule(kind: str, problem: Any) -> str:
    if kind in _LIMITS:
        words, key = _LIMITS[kind]
        return f"must be {words} {problem['ctx'][key]}"
    for begin, rule in _RULES.items():
        if kind.startswith(begin):
            return rule
    said = str(problem.get("msg", "")).removeprefix("Value error, ")
    _, among, choices = said.partition(" is not one of ")
    if not among:
        return said
    names = choices.rstrip(".").replace("'", "").split(", ")
    near = nearest(problem.get("input"), names)
    return f"choose from: {', '.join(names)}{near if 'did you mean' in near else ''}"
