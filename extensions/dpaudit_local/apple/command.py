"""``dpaudit deployment apple``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dpaudit.options import Option
from dpaudit.report import Described

__all__ = ["deployment_apple"]


def deployment_apple(
    config: Annotated[
        Path, Option("Folder with the four com.apple.dprivacyd.*.plist files.", "DIR")
    ],
    database: Annotated[
        Path | None, Option("The budget database (SQLite); opened read-only.", "FILE")
    ] = None,
    reports: Annotated[
        Path | None, Option("Folder with .dpsub and .json.anon report files.", "DIR")
    ] = None,
    against: Annotated[
        Path | None, Option("An older configuration to compare with.", "DIR")
    ] = None,
    days: Annotated[int, typer.Option(min=1, help="Number of days to add ε up over.")] = 30,
) -> Described:
    r"""Audit Apple's differential privacy from its files: ε per datum, per day and over time.

    The last sentence says what privacy loss the configuration permits per day.
    With --reports it is compared with what was submitted, and with the ε that
    the reports' bits themselves show.

    Exit code 1: a finding against the users whose data it is, such as reports
    whose bits show more ε than is claimed.

    [bold]Examples[/bold]

    $ dpaudit deployment apple --config configuration
    $ dpaudit deployment apple --config configuration \
        --database DPBudget.sqlite --reports Reports --out audit
    """
    from dpaudit_local.apple.audit import audit_device

    return audit_device(config, database=database, reports=reports, against=against, days=days)
