"""Audits of samplers and of whole mechanisms."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from dpaudit.cli import completion
from dpaudit.cli.options import (
    AuditCommand,
    CallOption,
    ClaimOptions,
    DimOption,
    FormatOption,
    with_shared_options,
)

__all__ = ["audit", "explain", "mechanism"]


@with_shared_options
def audit(
    sampler: Annotated[
        str,
        typer.Argument(
            metavar="SAMPLER",
            help="What to audit; see above.",
            show_default=False,
            autocompletion=completion.samplers,
        ),
    ],
    claim: Annotated[
        str | None,
        typer.Option(
            metavar="CLAIM",
            help="gaussian:sigma=1 | laplace:scale=1 | discrete-gaussian:sigma=10 | discrete-laplace:scale=10; not needed for a library's mechanism or a registered source.",
            show_default=False,
            autocompletion=completion.claims,
        ),
    ] = None,
    dim: DimOption = None,
    samples: Annotated[
        str, typer.Option(metavar="N", help="Values to draw in total, e.g. 1M or 1e6.")
    ] = "1e7",
    alpha: Annotated[
        float,
        typer.Option(help="Probability of a false finding, over all tests together."),
    ] = 0.01,
    time_limit: Annotated[
        float | None,
        typer.Option(
            help="Seconds for the whole audit; the search for hidden directions gets what drawing leaves.",
            show_default="600 for drawing, 15 for the search",
        ),
    ] = None,
    tests: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,…",
            help="Run only these tests, e.g. moments,tails; see dpaudit list tests.",
            show_default=False,
            autocompletion=completion.tests,
        ),
    ] = None,
    sequential: Annotated[
        bool,
        typer.Option(
            "--sequential", help="Stop at the first clear finding; valid whenever it stops."
        ),
    ] = False,
    allow_predictable: Annotated[
        bool,
        typer.Option(
            "--allow-predictable",
            help="Noise that can be computed from other noise is advice only: for simulations, where no privacy is claimed.",
        ),
    ] = False,
    all_values: Annotated[
        bool,
        typer.Option(
            "--all",
            help="Draw all values even after a finding is certain, and show every finding.",
        ),
    ] = False,
    bits: Annotated[
        Path | None,
        typer.Option(
            help="Also write 16 uniform bits per value to this file or FIFO, e.g. for PractRand: RNG_test stdin16.",
            show_default=False,
        ),
    ] = None,
    dtype: Annotated[
        Literal["f64", "f32"], typer.Option(help="Number format of command:, http: and .bin.")
    ] = "f64",
    text: Annotated[
        bool, typer.Option("--text", help="The program of command: prints decimal numbers.")
    ] = False,
    mitigation: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Audit a registered source behind this mitigation, e.g. rotation or smoothing:tau=0.05.",
            show_default=False,
            autocompletion=completion.mitigations,
        ),
    ] = None,
    call: CallOption = None,
    *,
    common: AuditCommand,
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
    $ dpaudit audit numpy:normal --out report --also junit,sarif,markdown
    """
    from dpaudit.audit.options import AuditOptions, count_of, fresh_seed
    from dpaudit.claims import Claim
    from dpaudit.cli.options import optional_count
    from dpaudit.samplers.resolve import check_sampler

    options = AuditOptions(
        dim=optional_count(dim, name="dim", what="values per vector", example="64"),
        samples=count_of(samples, what="values", example="1e7"),
        alpha=alpha,
        time_limit=time_limit,
        seed=fresh_seed(common.seed),
        tests=tuple(tests.split(",")) if tests is not None else None,
        sequential=sequential,
        allow_predictable=allow_predictable,
        all_values=all_values,
        bits=bits,
        dtype=dtype,
        text=text,
        mitigation=mitigation,
        call=call,
        by=common.by,
    )
    if common.out is None:  # a wrong name need not wait for numba and scipy
        if claim is not None:
            Claim.parse(claim)
        check_sampler(sampler)
    from dpaudit.cli import audits

    audits.audit(sampler, claim=claim, options=options, common=common)


@with_shared_options
def mechanism(
    name: Annotated[
        str,
        typer.Argument(
            metavar="MECHANISM",
            help="What to audit; see above.",
            show_default=False,
            autocompletion=completion.mechanisms,
        ),
    ],
    claimed: ClaimOptions,
    neighbours: Annotated[
        str | None,
        typer.Option(
            metavar="Q,Q",
            help="Two neighbouring query results: 0,1 or '0,0,0;1,0,0' or 'a.npy;b.npy'; or two data sets, 'a.csv;b.csv'; or search.",
            show_default=False,
        ),
    ] = None,
    dataset: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="--neighbours search begins with this data set: .csv .parquet .json .npy.",
            show_default=False,
        ),
    ] = None,
    adjacency: Annotated[
        str | None,
        typer.Option(
            metavar="HOW",
            help="Neighbours found differ by add-remove (one record more or less; the default) or replace.",
            show_default=False,
        ),
    ] = None,
    bounds: Annotated[
        str | None,
        typer.Option(
            metavar="FIELD=LOW:HIGH;…",
            help="What values a record may have: 'age=0:120;city=Bonn|Graz' or 0:1; otherwise just past those of --dataset.",
            show_default=False,
        ),
    ] = None,
    features: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:FUNCTION",
            help="python: a function that turns one release into numbers.",
            show_default=False,
        ),
    ] = None,
    attack: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Attack the releases with NAME or NAME:opt=value,…; see above.",
            show_default=False,
            autocompletion=completion.attacks,
        ),
    ] = None,
    samples: Annotated[
        str, typer.Option(metavar="N", help="Releases to draw per neighbour, e.g. 50k or 2e5.")
    ] = "2e5",
    alpha: Annotated[
        float, typer.Option(help="Probability of a false finding or of any wrong bound.")
    ] = 0.01,
    time_limit: Annotated[float, typer.Option(help="Seconds for the whole audit.")] = 600,
    real_numbers: Annotated[
        bool,
        typer.Option(
            "--real-numbers",
            help="Report what the low bits of releases show, but do not count it as a finding.",
        ),
    ] = False,
    guesses: Annotated[
        str | None,
        typer.Option(
            metavar="N",
            help="scores: number of guesses, fixed beforehand; by default several numbers are tried.",
            show_default=False,
        ),
    ] = None,
    call: CallOption = None,
    calls: Annotated[
        int,
        typer.Option(
            metavar="K",
            help="python: makes sessions; a release is K calls of one. The claim is of one call.",
        ),
    ] = 1,
    sessions: Annotated[
        int,
        typer.Option(
            metavar="S",
            help="python: makes what S sessions share; a release is K calls of each, in turn.",
        ),
    ] = 1,
    adversary: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:FUNCTION",
            help="A function of the answers so far that gives the next input of a session.",
            show_default=False,
        ),
    ] = None,
    together: Annotated[
        bool, typer.Option("--together", help="The claim is of all calls together, not of one.")
    ] = False,
    *,
    common: AuditCommand,
) -> None:
    r"""Is this whole mechanism as private as it claims to be?

    Draws releases at two neighbouring query results, learns from one half which
    events tell them apart, and counts these in the other half: a lower bound
    for ε at δ that holds with confidence 1 − α. Anything that tells them apart
    counts, including the low bits of a release.

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
    $ dpaudit mechanism numpy:legacy-normal --neighbours '0,0;1,1' \
        --claim-epsilon 1 --claim-delta 1e-5 \
        --attack pair-inversion:sampler=numpy-legacy
    """
    from dpaudit.audit.options import MechanismOptions, count_of, fresh_seed
    from dpaudit.cli import mechanisms
    from dpaudit.cli.options import optional_count

    claim = claimed.claim()
    options = MechanismOptions(
        samples=count_of(samples, what="releases", example="2e5"),
        alpha=alpha,
        time_limit=time_limit,
        seed=fresh_seed(common.seed),
        real_numbers=real_numbers,
        call=call,
        calls=calls,
        sessions=sessions,
        adversary=adversary,
        together=together,
        by=common.by,
    )
    mechanisms.mechanism(
        name,
        claim=claim,
        neighbours=neighbours,
        attack=attack,
        options=options,
        guesses=optional_count(guesses, name="guesses", what="guesses", example="100"),
        data=mechanisms.DataOptions(dataset, adjacency, bounds, features),
        common=common,
    )


def explain(
    test: Annotated[
        str | None,
        typer.Argument(
            metavar="TEST",
            help="A test's name as a finding prints it; without one, all pages are listed.",
            show_default=False,
            autocompletion=completion.explained,
        ),
    ] = None,
    output: FormatOption = "text",
) -> None:
    """Explain a test: what it looks at, what a finding means, and what to do.

    Also says what typically causes a finding, what the test cannot see, and
    where it comes from.

    [bold]Examples[/bold]

    $ dpaudit explain moments
    $ dpaudit explain low-bits --format json
    """
    from dpaudit.cli import explaining

    explaining.show(test, output)
