"""Typer's command groups: the outermost one, and one whose commands are plug-ins."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, ClassVar, NoReturn

import typer
from typer.core import TyperGroup

from dpaudit import registry
from dpaudit.cli.help import App
from dpaudit.cli.options import Output, with_shared_options
from dpaudit.cli.out_folder import prepare_folder
from dpaudit.cli.verdicts import finish
from dpaudit.report import describe

__all__ = ["AllCommands", "Ended", "group_of", "with_report"]


class Ended(Exception):
    """Carries ``error`` past typer, which would turn a broken pipe or end of input into exit 1."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error


class _PluginCommands(TyperGroup):
    """A group whose commands are also the plug-ins of ``kind``, imported when used.

    The plug-ins are plain functions with Typer's annotations, or what ``command_of`` makes such
    functions of. An unknown name is an ``UnknownNameError`` with the nearest name.
    """

    kind: ClassVar[str]
    command_of: ClassVar[Callable[[Callable[..., Any]], Callable[..., Any]] | None] = None

    def list_commands(self, ctx: Any) -> list[str]:
        theirs = registry.plugins(self.kind).values()
        return [*super().list_commands(ctx), *(p.origin.name for p in theirs if p.on_disk)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        own = super().get_command(ctx, cmd_name)
        if own is not None:
            return own
        function: Any = registry.load(self.kind, cmd_name)
        app = App(add_completion=False, no_args_is_help=False)
        command_of = type(self).command_of
        app.command(name=cmd_name)(command_of(function) if command_of else function)
        return typer.main.get_command(app)


class AllCommands(_PluginCommands):
    """The outermost group: what a command raises reaches ``main`` unchanged."""

    kind = "commands"

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        own = TyperGroup.get_command(self, ctx, cmd_name)
        ours = own is not None or cmd_name not in registry.plugins(self.kind)
        return own if ours else super().get_command(ctx, cmd_name)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (OSError, EOFError, KeyboardInterrupt, SystemExit) as error:
            raise Ended(error) from error


def group_of(
    kind: str, command_of: Callable[[Callable[..., Any]], Callable[..., Any]] | None = None
) -> type[TyperGroup]:
    """A group class whose commands are also the plug-ins of ``kind``, made by ``command_of``."""
    factory = staticmethod(command_of) if command_of else None
    return type("PluginCommands", (_PluginCommands,), {"kind": kind, "command_of": factory})


def with_report(judge: Callable[..., Any]) -> Callable[..., None]:
    """A command of ``judge``'s options and of those of every verdict; it shows what it returns."""

    @functools.wraps(judge)
    def command(*, to: Output, **arguments: Any) -> NoReturn:
        formats = prepare_folder(to)
        finish(describe(judge(**arguments)), to, also=formats)

    own = inspect.signature(judge, eval_str=True)
    to = inspect.Parameter("to", inspect.Parameter.KEYWORD_ONLY, annotation=Output)
    command.__signature__ = own.replace(  # type: ignore[attr-defined]
        parameters=[*own.parameters.values(), to]
    )
    return with_shared_options(command)
