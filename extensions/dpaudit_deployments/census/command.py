"""``dpaudit deployment census``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from dpaudit.audit.options import check_alpha
from dpaudit.options import Option
from dpaudit.provenance import collect
from dpaudit.report import Described

__all__ = ["deployment_census"]


def deployment_census(
    nmf: Annotated[
        list[str],
        Option(
            "Noisy measurement files: a Parquet file, a folder, or a quoted pattern; repeatable.",
            "FILES",
        ),
    ],
    zeros: Annotated[
        Path | None,
        Option("Further structural zeros (TOML), beyond those of the Constraint files.", "FILE"),
    ] = None,
    sums: Annotated[
        bool, Option("Compare parents with the sum of their children too; needs all children.")
    ] = False,
    alpha: Annotated[float, Option("Probability of a finding if the noise is as stated.")] = 0.01,
) -> Described:
    r"""Audit a census's noisy measurement files: is the noise what they state?

    Reads the files in the layout of the 2020 census (LEVEL.parquet/DPQuery and
    LEVEL.parquet/Constraint). Where the true count is known, the measurement
    shows the noise itself: in structural zeros, in sums with an exact total, and
    with --sums in parents minus their children. Level by level and query by
    query this noise is tested against the discrete Gaussian of the stated
    variance. Needs pyarrow: pip install 'dpaudit\[parquet]'.

    Exit code 1: a finding. Exit code 3: no cell's true count is known.

    [bold]Examples[/bold]

    $ dpaudit deployment census --nmf US_Person_PL_PROD --out audit
    $ dpaudit deployment census --nmf 'PR_*_PROD' --zeros zeros.toml
    """
    from dpaudit.cli.progress import AuditProgress
    from dpaudit_deployments.census.audit import audit_files
    from dpaudit_deployments.census.noise import read_rules

    check_alpha(alpha)
    rules = () if zeros is None else read_rules(zeros)
    with AuditProgress("files read", "computing the tests", total=0) as progress:
        return audit_files(
            nmf,
            alpha=alpha,
            provenance=collect(seed="none", plugins=()),
            rules=rules,
            sums=sums,
            progress=progress,
        )
