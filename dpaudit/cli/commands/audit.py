"""``dpaudit audit``: is this closed noise sampler what it claims to be?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from dpaudit import registry
from dpaudit.audit.options import AuditOptions
from dpaudit.cli.options import Output, Sandbox, with_shared_options
from dpaudit.cli.out_folder import prepare_folder, write_result
from dpaudit.cli.output import note
from dpaudit.cli.verdicts import exit_with_verdict
from dpaudit.options import Argument, Option
from dpaudit.report import describe

__all__ = ["audit"]


@with_shared_options
def audit(
    sampler: Annotated[
        str, Argument("What to audit; see above.", "SAMPLER", completion="samplers")
    ],
    claim: Annotated[
        str | None,
        Option(
            "gaussian:sigma=1 | laplace:scale=1 | discrete-gaussian:sigma=10 | discrete-laplace:scale=10; not needed for a library's mechanism or a registered source.",
            "CLAIM",
            completion="claims",
        ),
    ] = None,
    *,
    options: AuditOptions,
    sandbox: Sandbox,
    to: Output,
) -> None:
    r"""Is this closed noise sampler what it claims to be?

    [bold]SAMPLER[/bold] is one of

    python:MODULE:FUNCTION        f(n, d), f(size=(n, d)), f(n), f(value) or f();
                                  MODULE may be a ./file.py; others: --call
    library:./libnoise.so:SYMBOL  void f(double *out, size_t n, size_t d);
                                  others: --call 'f(1.0) -> double'
    command:'./sampler {n} {d}'   float64 on stdout (--dtype f32, --text)
    http://127.0.0.1:8000/noise   POST {"n", "d"}, raw float64 back
    file:samples.npy              also .npz .csv .parquet .bin, a row per vector
    whitened:'noise.npy;C.npy'    noise correlated over steps (DP-FTRL), and its C
    LIBRARY:MECHANISM             as the library ships it, with options:
                                  numpy:laplace:scale=2 (list mechanisms)
    NAME                          a registered source (list sources)

    Exit code 0: nothing contradicts the claim (the output says what that cannot
    exclude). 1: a finding. 3: the sampler died, did not respond, or returned
    too few values.

    [bold]Examples[/bold]

    $ dpaudit audit library:./libnoise.so:gauss --claim gaussian:sigma=1
    $ dpaudit audit python:./noise.py:draw --claim laplace:scale=2 --samples 1M
    $ dpaudit audit library:./vendor.so:laplace --call 'f(2.0) -> double' \
        --claim laplace:scale=2
    $ dpaudit audit numpy:normal --out report --also junit,sarif
    """
    from dpaudit.targets.resolve import check_sampler

    if to.out is None:  # a wrong name need not wait for numba and scipy
        if claim is not None:
            from dpaudit.claims import Claim

            Claim.parse(claim)
        check_sampler(sampler)
    from dpaudit.audit.request import NoiseRequest
    from dpaudit.audit.run import audit_subject
    from dpaudit.cli.progress import AuditProgress
    from dpaudit.cli.target_audit import audit_target

    out, request = to.out, NoiseRequest(claim=claim, options=options)
    files = (f"{name}.json" for name in registry.plugins("tests"))
    formats = prepare_folder(to, request.command(sampler), others=files)
    result = audit_target(
        sampler,
        request,
        audit_subject,
        sandbox=sandbox,
        display=AuditProgress("values drawn", _search(options), total=options.samples),
        to=to,
        formats=formats,
        tests=options.tests,
    )
    report = describe(result)
    if out is not None:
        write_result(report, out, also=formats)
        for test in result.tests:
            _save(test, out)
    if result.shortened:
        note(f"{result.shortened}; --time-limit gives it more")
    exit_with_verdict(report, to)


def _search(options: AuditOptions) -> str:
    from dpaudit.audit.run import search_seconds

    limit = search_seconds(options)
    within = "until the time limit" if limit is None else f"at most {limit:.2g} s"
    return f"all values drawn; tests, then a search for directions, {within}"


def _save(test: Any, out: Path) -> None:
    """Write what a finding recovered, such as a key, if its test has a ``save``."""
    if not (test.finding and test.details):
        return
    save = getattr(registry.load("tests", test.name), "save", None)
    if save is not None:
        path = out / f"{test.name}.json"
        path.unlink(missing_ok=True)
        save(test.details, path)
        note(f"recovered: {path}")
