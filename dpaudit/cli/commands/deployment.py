"""Audits of whole systems from their files."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpaudit.audit.options import Seed, check_alpha, fresh_seed
from dpaudit.options import Option
from dpaudit.provenance import collect
from dpaudit.report import Described

if TYPE_CHECKING:
    from dpaudit.deployments.attribution.run import Files

__all__ = [
    "AttributionOptions",
    "deployment_apple",
    "deployment_attribution",
    "deployment_census",
]


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
    from dpaudit.deployments.apple.audit import audit_device

    return audit_device(config, database=database, reports=reports, against=against, days=days)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttributionOptions:
    """What was recorded of ad measurement, and what is claimed of it."""

    config: Annotated[
        Path | None,
        Option(
            "Source registrations (JSON): one object or a list. The first is the one of sources that state none; without it, Chromium's default.",
            "FILE",
        ),
    ] = None
    events: Annotated[
        Path | None, Option("Event-level reports (JSON lines), one source per line.", "FILE")
    ] = None
    summary: Annotated[
        list[Path] | None, Option("A summary report (JSON), one batch; repeatable.", "FILE")
    ] = None
    unnoised: Annotated[
        list[Path] | None,
        Option(
            "The same summary report without noise; repeatable, in the order of --summary.", "FILE"
        ),
    ] = None
    empty: Annotated[
        Path | None,
        Option("Buckets without contributions (JSON): there the value is the noise.", "FILE"),
    ] = None
    reports: Annotated[
        Path | None,
        Option("Aggregatable reports (JSON lines), for the contribution budgets.", "FILE"),
    ] = None
    epsilon: Annotated[float, Option("ε claimed for a summary report, up to 64.")] = 10.0
    event_epsilon: Annotated[float, Option("ε of event-level sources that state none.")] = 14.0
    alpha: Annotated[float, Option("Probability of a finding if the reports are as specified.")] = (
        0.01
    )
    seed: Seed = field(default_factory=fresh_seed)

    def __post_init__(self) -> None:
        check_alpha(self.alpha)

    def files(self) -> Files:
        """What to read."""
        from dpaudit.deployments.attribution.run import Files

        return Files(
            config=self.config,
            events=self.events,
            summaries=self.summary or (),
            unnoised=self.unnoised or (),
            empty=self.empty,
            reports=self.reports,
        )


def deployment_attribution(options: AttributionOptions) -> Described:
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
    from dpaudit.audit.recorded import audit_values
    from dpaudit.deployments.attribution.run import audit_attribution

    return audit_attribution(
        options.files(),
        epsilon=options.epsilon,
        event_epsilon=options.event_epsilon,
        alpha=options.alpha,
        seed=options.seed,
        battery=audit_values,
    )


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
        bool,
        Option(
            "Also compare parents with the sum of their children; the files must have them all."
        ),
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
    from dpaudit.deployments.census.audit import audit_files
    from dpaudit.deployments.census.zeros import read_rules

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
