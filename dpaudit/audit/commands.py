"""The command line of an audit, from its options."""

from __future__ import annotations

import dataclasses
import shlex
from typing import Any

from dpaudit.audit.options import AuditOptions, MechanismOptions

__all__ = ["apart_from_the_seed", "command_line"]

_OF_NO_ACCOUNT = {"--seed", "--by"}
_NAMED = {"all_values": "--all"}
"""Options that are not called as on the command line."""


def command_line(
    kind: str, target: str, options: AuditOptions | MechanismOptions, **more: Any
) -> str:
    """``dpaudit audit`` or ``mechanism`` on ``target``, with what differs from the defaults.

    ``more`` are options that are not among ``options``; those that are None are left out.

    >>> command_line("audit", "numpy:normal", AuditOptions(seed="1", dim=4), claim=None)
    'dpaudit audit numpy:normal --dim 4 --seed 1'
    >>> command_line("audit", "numpy:normal", AuditOptions(seed="1", all_values=True))
    'dpaudit audit numpy:normal --seed 1 --all'
    """
    default = type(options)(seed="")
    given = {f.name: getattr(options, f.name) for f in dataclasses.fields(options)}
    changed = {name: value for name, value in given.items() if value != getattr(default, name)}
    words = ["dpaudit", kind, target]
    for name, value in (more | changed).items():
        if value is None or value is False:
            continue
        words.append(_NAMED.get(name) or f"--{name.replace('_', '-')}")
        if value is not True:
            words.append(_text(value))
    return shlex.join(words)


def apart_from_the_seed(command: str) -> list[str]:
    """A command's words, without its seed and who ran it: two audits are alike if these are.

    Raises:
        ValueError: an open quote.

    >>> apart_from_the_seed("dpaudit audit x --dim 4 --seed 1")
    ['dpaudit', 'audit', 'x', '--dim', '4']
    """
    words = shlex.split(command)
    left_out = {i for i, word in enumerate(words) if word in _OF_NO_ACCOUNT}
    return [w for i, w in enumerate(words) if i not in left_out and i - 1 not in left_out]


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(value)
    return repr(value).removesuffix(".0") if isinstance(value, float) else str(value)
