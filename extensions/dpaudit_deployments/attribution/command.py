"""``dpaudit deployment attribution``."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from dpaudit.audit.options import Seed, check_alpha, fresh_seed
from dpaudit.options import Option
from dpaudit.report import Described

__all__ = ["AttributionOptions", "deployment_attribution"]


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


def deployment_attribution(options: AttributionOptions) -> Described:
    r"""Audit recorded ad-measurement reports: Attribution Reporting's two mechanisms.

    Event-level reports are tested against the randomised response over all
    output states, where a source's true output is recorded. The noise of summary
    reports is tested against the discrete Laplace law of scale 65,536/ε, where a
    bucket's true value is known. Aggregatable reports are added up against the
    contribution budget of a source. Without files, the laws that registrations
    have. The formats are in docs/studies/attribution.md.

    Exit code 1: a finding. Exit code 3: nothing recorded could be tested.

    [bold]Examples[/bold]

    $ dpaudit deployment attribution
    $ dpaudit deployment attribution --events events.jsonl --out audit
    $ dpaudit deployment attribution --summary output.json \
        --unnoised exact.json --epsilon 10
    """
    from dpaudit_deployments.attribution.run import audit_attribution

    return audit_attribution(options)
