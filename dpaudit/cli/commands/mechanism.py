"""``dpaudit mechanism``: is this whole mechanism as private as it claims to be?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from dpaudit.audit.options import ClaimOptions, DataOptions, MechanismOptions
from dpaudit.cli.options import Output, Sandbox, with_shared_options
from dpaudit.cli.out_folder import prepare_folder, writing
from dpaudit.cli.verdicts import finish
from dpaudit.options import Argument, Option
from dpaudit.report import describe

if TYPE_CHECKING:
    from dpaudit.audit.result import MechanismResult

__all__ = ["mechanism"]


@with_shared_options
def mechanism(
    name: Annotated[
        str, Argument("What to audit; see above.", "MECHANISM", completion="mechanisms")
    ],
    claimed: ClaimOptions,
    data: DataOptions,
    attack: Annotated[
        str | None,
        Option(
            "Attack the releases with NAME or NAME:opt=value,…; see above.",
            "NAME",
            completion="attacks",
        ),
    ] = None,
    *,
    options: MechanismOptions,
    sandbox: Sandbox,
    to: Output,
) -> None:
    r"""Is this whole mechanism as private as it claims to be?

    Draws releases at two neighbouring query results, learns from one half which
    events tell them apart, and counts these in the other half: a lower bound
    for ε at δ that holds with confidence 1 − α. Anything that tells them apart
    counts, including the low bits of a release. With [bold]--sequential[/bold] it bets on
    each release before it comes and stops as soon as the claim is refuted, or
    hardly can be any more: often after hundreds of releases.

    [bold]MECHANISM[/bold] is one of

    LIBRARY:MECHANISM       a library's own, with options: opendp:laplace:scale=1
                            (dpaudit list mechanisms)
    NAME                    a registered source, which releases the value or is
                            added to it: secure-gaussian:sigma=1
    python:MODULE:FUNCTION  f(value, n) gives n releases, f(value) one;
                            others: --call
    library:./m.so:SYMBOL   void f(const double *value, size_t m, double *out,
                            size_t n); others: --call 'f(value) -> double'
    command:'./mechanism --value={value} {n}'
                            n releases as float64 on stdout
    http://127.0.0.1:8000/release
                            POST {"value", "n"}, n releases as raw float64 back
    python:MODULE:FUNCTION  with two data sets: f(dataset) or f(dataset, n), and
                            a release may be anything: text, a dict, None …
    command:'./mechanism {dataset} {n}'
                            with two data sets: gets a file, .csv or .json, and
                            writes n lines, each a release as JSON
    http://127.0.0.1:8000/release
                            with two data sets: POST {"dataset", "n"}, a JSON
                            array of n releases back
    'file:at-0.npy;at-1.npy'
                            releases recorded at the two neighbours; also .npz
                            .csv .parquet .bin (--neighbours is optional)
    scores:FILE             canary scores from one training run: .csv or .npz
                            with score and member (0 or 1, fair coin flips);
                            several runs: 'scores:a.npz;b.npz'
    counts:TP,FN,FP,TN      how often an attack named a canary's coin: in and
                            guessed in, in and guessed out, out and guessed in,
                            out and guessed out

    [bold]--attack[/bold] is one of

    reach, laplace-support, pair-inversion
                            computes which neighbours can have led to a release,
                            to the last bit; all releases are counted
    bit-features, timing    learns from one half of the releases what tells the
                            neighbours apart (timing: one call per release)
    sensitivity             chooses the neighbours itself (no --neighbours)

    Exit code 0: nothing contradicts the claim. 1: a finding. 3: the mechanism
    died, did not respond, or returned too few values.

    [bold]Examples[/bold]

    $ dpaudit mechanism numpy:laplace --neighbours 0,1 --claim-epsilon 1
    $ dpaudit mechanism opendp:gaussian:scale=4 --neighbours 0,1 \
        --claim-epsilon 1 --claim-delta 1e-5
    $ dpaudit mechanism numpy:normal:scale=2 --neighbours 0,1 --claim-mu 0.5
    $ dpaudit mechanism python:./release.py:mean --claim-epsilon 1 \
        --dataset people.csv --neighbours search --out found
    $ dpaudit mechanism numpy:normal:scale=2 --neighbours 0,1 --claim-rho 0.125
    $ dpaudit mechanism python:./slow.py:release --neighbours 0,1 \
        --claim-epsilon 1 --sequential --resume slow.npz
    $ dpaudit mechanism numpy:legacy-normal --neighbours '0,0;1,1' \
        --claim-epsilon 1 --claim-delta 1e-5 \
        --attack pair-inversion:sampler=numpy-legacy
    """
    from dpaudit.audit.mechanism.one_run_audits import COUNTS, SCORES
    from dpaudit.audit.mechanism.request import MechanismRequest
    from dpaudit.audit.mechanism.run import audit_subject
    from dpaudit.cli.progress import AuditProgress
    from dpaudit.cli.target_audit import audit_target

    request = MechanismRequest(claim=claimed.claim(), data=data, attack=attack, options=options)
    out, formats = to.out, prepare_folder(to, request.command(name))
    result = audit_target(
        name,
        request,
        audit_subject,
        sandbox=sandbox,
        display=AuditProgress(
            "releases drawn",
            "all releases drawn"
            + ("" if options.sequential else "; learning events and counting them"),
            total=2 * options.samples,
            kept=options.resume,
        ),
        to=to,
        formats=formats,
        releases=not name.startswith((SCORES, COUNTS)),  # which run no program
    )
    if out is not None and {"pair", "search"} <= set(result.details):
        result = _with_files(result, out)
    finish(describe(result), to, also=formats)


def _with_files(result: MechanismResult, out: Path) -> MechanismResult:
    """``result`` with its pair of data sets as two files in ``out``, which its commands name."""
    from dpaudit.audit.mechanism.question import with_pair_in

    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
        return with_pair_in(result, out)
