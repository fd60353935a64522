"""A command group whose commands are plug-ins: listed by name, imported when one is asked for."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from dpaudit import registry

__all__ = ["group_of"]


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
            made = typer.Typer(rich_markup_mode="rich", pretty_exceptions_enable=False, add_completion=False)
            made.command(name=cmd_name)(found)
            return typer.main.get_command(made)

    return PluginCommands
