"""Typer's command groups: the outermost one, and one whose commands are plug-ins."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from dpaudit import registry
from dpaudit.cli.help import App

__all__ = ["AllCommands", "Ended", "group_of"]


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
            made = App(add_completion=False, no_args_is_help=False)
            made.command(name=cmd_name)(found)
            return typer.main.get_command(made)

    return PluginCommands
