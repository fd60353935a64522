"""Typer's command groups: the outermost one, and one whose commands are plug-ins, imported when one is asked for."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from dpaudit import registry

__all__ = ["AllCommands", "Ended", "group_of"]


class Ended(Exception):
    """Carries ``error`` past typer, which would turn a broken pipe or an end of input into exit 1, and say nothing else."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error


class AllCommands(TyperGroup):
    """The outermost group: whatever else than typer's own a command raises reaches ``main`` as it was."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (OSError, EOFError, KeyboardInterrupt, SystemExit) as error:
            raise Ended(error) from error


def group_of(kind: str) -> type[TyperGroup]:
    """A Typer group class whose commands are the plug-ins of ``kind``: plain functions with Typer's annotations.

    A name that no plug-in has is an ``UnknownNameError``, which says the nearest one.
    """

    class PluginCommands(TyperGroup):
        def list_commands(self, ctx: Any) -> list[str]:
            return [*super().list_commands(ctx), *registry.plugins(kind)]

        def get_command(self, ctx: Any, cmd_name: str) -> Any:
            own = super().get_command(ctx, cmd_name)
            if own is not None:
                return own
            found: Any = registry.load(kind, cmd_name)
            made = typer.Typer(
                rich_markup_mode="rich", pretty_exceptions_enable=False, add_completion=False
            )
            made.command(name=cmd_name)(found)
            return typer.main.get_command(made)

    return PluginCommands
