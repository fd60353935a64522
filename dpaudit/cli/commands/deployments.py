"""Audits of whole systems from their files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dpaudit.cli.options import SeedOption
from dpaudit.describing import Described
from dpaudit.errors import UsageError
from dpaudit.provenance import collect

__all__ = [
    "deployment_apple",
    "deployment_attribution",
    "deployment_census",
]


def _level(alpha: float) -> float:
    if not 0 < alpha < 1:
        raise UsageError(f"alpha={alpha}: must lie strictly between 0 and 1; the default is 0.01")
    return alpha


def deployment_apple(
    config: Annotated[
        Path,
        typer.Option(
            metavar="DIR",
            help="Folder with the four com.apple.dprivacyd.*.plist files.",
            show_default=False,
        ),
    ],
    database: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The budget database (SQLite); opened read-only.",
            show_default=False,
        ),
    ] = None,
    reports: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder with .dpsub and .json.anon report files.",
            show_default=False,
        ),
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="An older configuration to compare with.",
            show_default=False,
        ),
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
    from dpaudit.deployments.apple.audit import audit_device

    return audit_device(config, database=database, reports=reports, against=against, days=days)


def deployment_attribution(
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Source registrations (JSON): one object or a list. The first is the one of "
            "sources that state none; without it, Chromium's default.",
            show_default=False,
        ),
    ] = None,
    events: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Event-level reports (JSON lines), one source per line.",
            show_default=False,
        ),
    ] = None,
    summary: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="A summary report (JSON), one batch; repeatable.",
            show_default=False,
        ),
    ] = None,
    unnoised: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="The same summary report without noise; repeatable, in the order of --summary.",
            show_default=False,
        ),
    ] = None,
    empty: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Buckets without contributions (JSON): there the value is the noise.",
            show_default=False,
        ),
    ] = None,
    reports: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Aggregatable reports (JSON lines), for the contribution budgets.",
            show_default=False,
        ),
    ] = None,
    epsilon: Annotated[
        float, typer.Option(help="ε claimed for a summary report, up to 64.", show_default=True)
    ] = 10.0,
    event_epsilon: Annotated[
        float, typer.Option(help="ε of event-level sources that state none.", show_default=True)
    ] = 14.0,
    alpha: Annotated[
        float,
        typer.Option(
            help="Probability of a finding if the reports are as specified.", callback=_level
        ),
    ] = 0.01,
    seed: SeedOption = None,
) -> Described:
    r"""Audit recorded ad-measurement reports: Attribution Reporting's two mechanisms.

    Event-level reports are tested against the randomised response over all
    output states, where a source's true output is recorded. The noise of summary
    reports is tested against the discrete Laplace law of scale 65,536/ε, where a
    bucket's true value is known. Aggregatable reports are added up against the
    contribution budget of a source. Without files, the laws that registrations
    have. The formats are in docs/reproduce/attribution.md.

    Exit code 1: a finding. Exit code 3: nothing recorded could be tested.

    [bold]Examples[/bold]

    $ dpaudit deployment attribution
    $ dpaudit deployment attribution --events events.jsonl --out audit
    $ dpaudit deployment attribution --summary output.json \
        --unnoised exact.json --epsilon 10
    """
    from dpaudit.audit.options import fresh_seed
    from dpaudit.audit.recorded import audit_values
    from dpaudit.deployments.attribution.run import Files, audit_attribution

    files = Files(
        config=config,
        events=events,
        summaries=summary or (),
        unnoised=unnoised or (),
        empty=empty,
        reports=reports,
    )
    return audit_attribution(
        files,
        epsilon=epsilon,
        event_epsilon=event_epsilon,
        alpha=alpha,
        seed=fresh_seed(seed),
        battery=audit_values,
    )


def deployment_census(
    nmf: Annotated[
        list[str],
        typer.Option(
            metavar="FILES",
            help="Noisy measurement files: a Parquet file, a folder, or a quoted pattern; repeatable.",
            show_default=False,
        ),
    ],
    zeros: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Further structural zeros (TOML), beyond those of the Constraint files.",
            show_default=False,
        ),
    ] = None,
    sums: Annotated[
        bool,
        typer.Option(
            "--sums",
            help="Also compare parents with the sum of their children; the files must have them all.",
        ),
    ] = False,
    alpha: Annotated[
        float,
        typer.Option(help="Probability of a finding if the noise is as stated.", callback=_level),
    ] = 0.01,
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
    from dpaudit.deployments.census.audit import audit_files
    from dpaudit.deployments.census.zeros import read_rules

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
