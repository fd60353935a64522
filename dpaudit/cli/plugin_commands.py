"""Typer's command groups: the outermost one, and one whose commands are plug-ins."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

from dpaudit import registry
from dpaudit.cli.help import App
from dpaudit.cli.options import AlsoOption, FormatOption, OutOption, VerboseOption

__all__ = ["AllCommands", "Ended", "group_of", "with_report"]

_KEYWORD = inspect.Parameter.KEYWORD_ONLY
_SHOWN = {"out": OutOption, "also": AlsoOption, "output": FormatOption, "verbose": VerboseOption}
_DEFAULTS = {"out": None, "also": None, "output": "text", "verbose": False}


class Ended(Exception):
    """Carries ``error`` past typer, which would turn a broken pipe or end of input into exit 1."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error


class AllCommands(TyperGroup):
    """The outermost group: what a command raises reaches ``main`` unchanged."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (OSError, EOFError, KeyboardInterrupt, SystemExit) as error:
            raise Ended(error) from error


def group_of(kind: str) -> type[TyperGroup]:
    """A Typer group class whose commands are the plug-ins of ``kind``, imported when used.

    The plug-ins are plain functions with Typer's annotations. An unknown name is an
    ``UnknownNameError`` with the nearest name.
    """

    class PluginCommands(TyperGroup):
        def list_commands(self, ctx: Any) -> list[str]:
            return [*super().list_commands(ctx), *registry.plugins(kind)]

        def get_command(self, ctx: Any, cmd_name: str) -> Any:
            own = super().get_command(ctx, cmd_name)
            if own is not None:
                return own
            found: Any = registry.load(kind, cmd_name)
            found = with_report(found) if kind == "deployments" else found
            made = App(add_completion=False, no_args_is_help=False)
            made.command(name=cmd_name)(found)
            return typer.main.get_command(made)

    return PluginCommands


def with_report(judge: Callable[..., Any]) -> Callable[..., NoReturn]:
    """A command of ``judge``'s options and of those of every verdict; it shows what it returns."""

    @functools.wraps(judge)
    def command(
        out: Path | None, also: str | None, output: str, verbose: bool, **given: Any
    ) -> NoReturn:
        from dpaudit.cli.formats import formats_of, without_earlier
        from dpaudit.cli.verdicts import exit_with_verdict, write_result
        from dpaudit.describing import describe

        formats = without_earlier(formats_of(also, out=out), out)
        report = describe(judge(**given))
        if out is not None:
            write_result(report, out, also=formats)
        exit_with_verdict(report, out=out, output=output, verbose=verbose)

    own = inspect.signature(judge, eval_str=True).parameters.values()
    shown = [
        inspect.Parameter(name, _KEYWORD, default=_DEFAULTS[name], annotation=option)
        for name, option in _SHOWN.items()
    ]
    parameters = [*(p.replace(kind=_KEYWORD) for p in own), *shown]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    return command
