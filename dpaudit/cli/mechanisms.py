"""``dpaudit mechanism``."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from dpaudit.audit.commands import command_line
from dpaudit.audit.epsilon.kept_pair import with_pair_in
from dpaudit.audit.epsilon.one_run_audits import COUNTS, SCORES
from dpaudit.audit.epsilon.question import question_of
from dpaudit.audit.epsilon.run import audit_named
from dpaudit.audit.nothing import nothing_counted
from dpaudit.audit.options import MechanismOptions, PrivacyClaim
from dpaudit.cli.earlier import refuse_another
from dpaudit.cli.formats import formats_of, without_earlier
from dpaudit.cli.options import AuditCommand
from dpaudit.cli.progress import AuditProgress
from dpaudit.cli.verdicts import audited, leave, write_page
from dpaudit.documents import of_result
from dpaudit.errors import UsageError
from dpaudit.samplers.identity import identify
from dpaudit.samplers.sandbox.policy import asking
from dpaudit.types import MechanismResult

__all__ = ["mechanism"]


@dataclasses.dataclass(frozen=True, slots=True)
class DataOptions:
    """Options on data sets, as they were written."""

    dataset: Path | None = None
    adjacency: str | None = None
    bounds: str | None = None
    features: str | None = None


def mechanism(
    name: str,
    *,
    claim: PrivacyClaim,
    neighbours: str | None,
    attack: str | None,
    options: MechanismOptions,
    guesses: int | None,
    data: DataOptions,
    common: AuditCommand,
) -> None:
    """Audit, print, write, and exit with the verdict's code."""
    out, formats = common.out, formats_of(common.also, out=common.out)
    command = command_line(
        "mechanism",
        name,
        options,
        **claim.options,
        neighbours=neighbours,
        attack=attack,
        guesses=guesses,
        **dataclasses.asdict(data),
    )
    refuse_another(out, command)
    asked = question_of(neighbours, **dataclasses.asdict(data))
    formats = without_earlier(formats, out)
    what = identify(name)
    with asking(common.sandbox, visible=common.visible or (), passed=common.pass_env or ()) as held:
        result = audited(
            lambda progress: audit_named(
                name,
                claim=claim,
                neighbours=None if asked is not None else neighbours,
                attack=attack,
                options=options,
                guesses=guesses,
                asked=asked,
                what=what,
                progress=progress,
            ),
            command=command,
            shown=AuditProgress(
                "releases drawn",
                "all releases drawn; learning events and counting them",
                total=2 * options.samples,
            ),
            nothing=lambda reason, seconds: nothing_counted(
                name,
                reason,
                claim=claim,
                attack=attack or "",
                options=options,
                sandbox=held.reached,
                what=what,
                seconds=seconds,
            ),
            out=out,
            also=formats,
            output=common.output,
            held=held,
            releases=not name.startswith((SCORES, COUNTS)),  # which run no program
        )
    if out is not None and {"pair", "search"} <= set(result.details):
        result = _with_files(result, out)
    document = of_result(result)
    if out is not None:
        write_page(document, out, also=formats)
    from dpaudit.report import mechanism_table

    leave(
        document,
        lambda: mechanism_table(result, verbose=common.verbose),
        out=out,
        output=common.output,
    )


def _with_files(result: MechanismResult, out: Path) -> MechanismResult:
    """``result`` with its pair of data sets as two files in ``out``, which its commands name."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        return with_pair_in(result, out)
    except OSError as error:
        raise UsageError(
            f"out={out}: cannot be written ({error.strerror}); choose another --out"
        ) from error
