"""``dpaudit serve``: certificates, the two servers, and secure aggregation as processes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpaudit.errors import UsageError
from dpaudit.options import Option

if TYPE_CHECKING:
    from dpaudit_mitigations.secure_aggregation.terms import RoundTerms

__all__ = ["aggregate", "answer", "contribute", "init", "noise"]


def init(
    out: Annotated[
        Path, typer.Option(help="New folder for the certificates; an existing one must be empty.")
    ],
    party: Annotated[
        list[str] | None,
        typer.Option(help="A party's name; once for each.", show_default="answer and noise"),
    ] = None,
    host: Annotated[
        list[str] | None,
        typer.Option(
            help="A further host name or IP address of the servers.",
            show_default="localhost, 127.0.0.1, ::1",
        ),
    ] = None,
    days: Annotated[int, typer.Option(help="How long the certificates are valid.")] = 365,
) -> None:
    r"""Make a certificate and key for each party of a protocol, signed by a throw-away authority.

    [bold]certificates/NAME/[/bold] holds cert.pem, key.pem (mode 0600) and ca.pem
    for NAME. Move it to that party's machine over a channel you trust, and
    delete it here. Whoever has key.pem is that party.

    The authority's key is not kept: no party can be added later.
    To add or replace one, make new certificates for all.

    [bold]Examples[/bold]

    $ dpaudit serve init --out certificates
    $ dpaudit serve init --out certificates --party aggregator \
        --party alice --party bob --party carol
    """
    from dpaudit_mitigations.transport.certificates import make_authority

    parties = party or ["answer", "noise"]
    make_authority(out, parties, hosts=host or (), days=days)
    for name in parties:
        typer.echo(f"{out / name}: cert.pem, key.pem, ca.pem for {name}, {days} days")
    typer.echo(
        "\nEach party needs only its own folder; this authority cannot sign anything more.",
        err=True,
    )


def say(**facts: Any) -> None:
    """Print one line of JSON."""
    typer.echo(json.dumps(facts))


_DEFAULT = "secure-gaussian"
_Identity = Annotated[Path, Option("This server's folder from dpaudit serve init.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseAdding:
    """How server 2 adds its noise and publishes."""

    identity: _Identity
    journal: Annotated[Path, Option("Its journal folder; made if missing.")]
    sigma: Annotated[float, Option("Noise scale per coordinate.")]
    bound: Annotated[float, Option("Largest |value| of a noisy answer; a public number.")]
    dim: Annotated[int, Option("Values per release.")]
    listen: Annotated[str, Option("HOST:PORT; port 0 takes a free one.")] = "127.0.0.1:0"
    peer: Annotated[str, Option("Name in the answering server's certificate.")] = "answer"
    publish: Annotated[Path | None, Option("Where releases go.", default="JOURNAL/published")] = (
        None
    )
    dtype: Annotated[str, Option("What is published: float32 or float64.")] = "float32"
    idle: Annotated[float, Option("Seconds without data before a peer is cut off.")] = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answering:
    """What server 1 answers, and to whom."""

    identity: _Identity
    peer: Annotated[str, Option("HOST:PORT of the server that adds noise.")]
    query: Annotated[Path, Option("The exact query result: an .npy vector of floats.")]
    sigma: Annotated[float, Option("Scale of our own noise, per coordinate.")]
    release: Annotated[str, Option("Name of this release; never used twice.")]
    journal: Annotated[Path, Option("Our journal folder; made if missing.")]
    number: Annotated[int, Option("Round of the release, if it has several.", flag="--round")] = 0
    source: Annotated[
        str, Option("NAME[:option=value,…] of a noise source; others are for lab use.")
    ] = _DEFAULT
    peer_sigma: Annotated[
        float | None, Option("Scale of the other server's noise.", default="sigma")
    ] = None
    peer_name: Annotated[str, Option("Name in that server's certificate.")] = "noise"
    bound: Annotated[
        float | None, Option("Refuse a server with another bound.", default="accept any")
    ] = None
    patience: Annotated[float, Option("Seconds to keep trying to reach it.")] = 60.0


def noise(options: NoiseAdding) -> None:
    r"""Server 2: add our own noise to another server's noisy answers; publish each exactly once.

    Prints one JSON line with the address and serves until SIGTERM or Ctrl-C. A
    release RELEASE, round N, is published as RELEASE@N.npy, whole or not at
    all. After a crash start it again with the same journal: received answers
    are published, others are sent again. Never share or restore a journal: it
    is what keeps noise from being drawn twice.

    [bold]Examples[/bold]

    $ dpaudit serve noise --identity certificates/noise \
        --journal noise.journal --sigma 2 --bound 1000 --dim 256
    $ dpaudit serve noise --identity certificates/noise \
        --journal noise.journal --sigma 2 --bound 1000 --dim 256 \
        --listen 0.0.0.0:5001 --publish releases
    """
    import signal
    import threading

    from dpaudit_mitigations.transport.certificates import load_identity
    from dpaudit_mitigations.transport.connection import logger
    from dpaudit_mitigations.transport.journal import journal_folder
    from dpaudit_mitigations.transport.server import Limits, serve
    from dpaudit_mitigations.two_servers.agreement import ReleaseTerms
    from dpaudit_mitigations.two_servers.noise_side import NoiseSide

    me = load_identity(options.identity)
    log = logger(me.name)
    folder = journal_folder(options.journal)
    published = options.publish or folder / "published"
    side = NoiseSide(
        terms=ReleaseTerms(dim=options.dim, bound=options.bound, sigma=options.sigma),
        peer=options.peer,
        journal=folder,
        publish=published,
        log=log,
        dtype=options.dtype,
    )
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        with serve(
            side.handlers,
            identity=me,
            address=options.listen,
            peers=[options.peer],
            limits=Limits(idle=options.idle),
            log=log,
        ) as server:
            say(address=server.address, party=me.name, publish=str(published))
            stop.wait()
    finally:
        side.close()


def answer(options: Answering) -> None:
    r"""Server 1: answer one query with our own noise, and exit 0 once server 2 has published it.

    Prints one JSON line with the publication's name and SHA-256. Interrupted,
    killed, or exit 3? Run the same command again: it resumes with the same
    noise, and reports a release that is already published. A name belongs to
    one query, one sigma and one noise for ever; anything else under it is
    refused. Protect the journal as you protect the query: it holds the noise's
    seed until publication, and a digest that confirms a guess of the query.

    [bold]Examples[/bold]

    $ dpaudit serve answer --identity certificates/answer \
        --peer 127.0.0.1:5001 --query counts.npy --sigma 2 \
        --release week-7 --journal answer.journal
    $ dpaudit serve answer --identity certificates/answer \
        --peer 127.0.0.1:5001 --query counts.npy --sigma 2 \
        --release week-7 --round 1 --journal answer.journal
    """
    import numpy as np

    from dpaudit.results.arrays import read_npy
    from dpaudit_mitigations.transport.certificates import load_identity
    from dpaudit_mitigations.transport.connection import logger
    from dpaudit_mitigations.transport.journal import journal_folder
    from dpaudit_mitigations.two_servers.answer_side import AnswerSide, Contact, Question

    me = load_identity(options.identity)
    values = np.ascontiguousarray(read_npy(options.query, name="query"))
    draw = None
    if options.source != _DEFAULT:
        from dpaudit_mitigations.two_servers.agreement import draw_of, named_source

        source = named_source(options.source, sigma=options.sigma, dim=values.size)
        draw = draw_of(source, dim=values.size)
    question = Question(
        values,
        release=options.release,
        round=options.number,
        sigma=options.sigma,
        peer_sigma=options.sigma if options.peer_sigma is None else options.peer_sigma,
        source=options.source,
        bound=options.bound,
    )
    side = AnswerSide(journal=journal_folder(options.journal), log=logger(me.name), draw=draw)
    try:
        contact = Contact(options.peer, options.peer_name, me)
        receipt = side.release(question, contact, patience=options.patience)
    finally:
        side.close()
    say(
        release=options.release,
        round=options.number,
        file=f"{options.release}@{options.number}.npy",
        sha256=receipt.published.hex(),
    )


_Parties = Annotated[str, Option("All contributors' names, with commas; the same for everybody.")]
_Threshold = Annotated[
    int,
    Option("How many must stay to the end: more than (parties + colluding)/2; the same for all."),
]
_Bound = Annotated[
    float, Option("Largest |value| of an input; a public number, nothing is clipped.")
]
_Sigma = Annotated[
    float,
    Option(
        "Noise in the sum that colluders cannot remove (0: none); each contributor adds "
        "sigma/√(threshold − colluding)."
    ),
]
_Colluding = Annotated[
    int,
    Option("Contributors that may work with the aggregator, read the sum or have bad noise."),
]
_Bits = Annotated[int, Option("Of an integer on the wire: 16, 32 or 64.")]
_Law = Annotated[str, Option("discrete-gaussian or skellam.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregation:
    """A round as its aggregator runs it."""

    identity: Annotated[Path, Option("This party's folder from dpaudit serve init.")]
    parties: _Parties
    threshold: _Threshold
    dim: Annotated[int, Option("Values per input.")]
    bound: _Bound
    sigma: _Sigma
    journal: Annotated[Path, Option("Journal folder; made if missing.")]
    out: Annotated[Path, Option("New .npy file for the sum, float64.")]
    number: Annotated[
        str | None,
        Option("Name of the round, never used twice.", flag="--round", default="a random one"),
    ] = None
    listen: Annotated[str, Option("HOST:PORT; port 0 takes a free one.")] = "127.0.0.1:0"
    colluding: _Colluding = 0
    bits: _Bits = 32
    noise: _Law = "discrete-gaussian"
    join_timeout: Annotated[float, Option("Seconds to wait for all contributors to come.")] = 300.0
    stage_timeout: Annotated[
        float, Option("Seconds for each later stage; late contributors are dropped.")
    ] = 60.0

    def __post_init__(self) -> None:
        _check_seconds("join-timeout", self.join_timeout)
        _check_seconds("stage-timeout", self.stage_timeout)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contribution:
    """A round as one of its contributors joins it."""

    identity: Annotated[Path, Option("Our folder from dpaudit serve init.")]
    peer: Annotated[str, Option("HOST:PORT of the aggregator.")]
    source: Annotated[Path, Option("Our vector: an .npy file of numbers.", flag="--input")]
    number: Annotated[str, Option("The round's name, the same for all.", flag="--round")]
    parties: _Parties
    threshold: _Threshold
    bound: _Bound
    sigma: _Sigma
    journal: Annotated[Path, Option("Our journal folder; made if missing.")]
    colluding: _Colluding = 0
    bits: _Bits = 32
    noise: _Law = "discrete-gaussian"
    peer_name: Annotated[str, Option("Name in the aggregator's certificate.")] = "aggregator"
    patience: Annotated[
        float, Option("Seconds to wait for a stage, the other contributors included.")
    ] = 600.0

    def __post_init__(self) -> None:
        _check_seconds("patience", self.patience)


def aggregate(options: Aggregation) -> None:
    r"""Add up the contributors' masked vectors in one round, publish the noisy sum once, and exit.

    Prints a JSON line with address and round, then one with the file, its
    SHA-256 and the parties in the sum. The aggregator sees masked vectors and
    their sum, never an input. A contributor that dies, is late or sends
    something broken is dropped; below the threshold nothing is published (exit
    3). An interrupted round cannot be resumed: take a new name.

    [bold]Examples[/bold]

    $ dpaudit serve init --out certificates --party aggregator \
        --party alice --party bob --party carol
    $ dpaudit serve aggregate --identity certificates/aggregator \
        --parties alice,bob,carol --threshold 2 --dim 256 --bound 1000 \
        --sigma 2 --round week-7 --journal aggregator.journal --out sum.npy
    """
    import secrets

    from dpaudit_mitigations.secure_aggregation.network import AGGREGATOR_JOURNAL, aggregate_round
    from dpaudit_mitigations.transport.certificates import load_identity

    terms = _terms(options, number=options.number or secrets.token_hex(8), length=options.dim)
    with _journal(options.journal, AGGREGATOR_JOURNAL) as rounds:
        done = aggregate_round(
            load_identity(options.identity),
            terms=terms,
            address=options.listen,
            journal=rounds,
            out=options.out,
            join_timeout=options.join_timeout,
            stage_timeout=options.stage_timeout,
            listening=lambda address: say(
                address=address, round=terms.round, granularity=terms.ring.granularity
            ),
        )
    say(round=terms.round, file=str(done.path), sha256=done.sha256, survivors=list(done.survivors))


def contribute(options: Contribution) -> None:
    r"""Add our noise share to our vector, mask it, send it, and stay until the sum is unmasked.

    Prints a JSON line with the parties in the sum and its file's SHA-256. Take
    the terms from people you trust, not from the aggregator: contributors with
    different terms refuse each other. Keys are held in memory only. A
    contributor killed after it joined is a drop-out: its journal makes it
    refuse the same round again, because a second sum over the same vector would
    reveal more than one.

    [bold]Examples[/bold]

    $ dpaudit serve contribute --identity certificates/alice \
        --peer 127.0.0.1:5001 --input counts.npy --round week-7 \
        --parties alice,bob,carol --threshold 2 --bound 1000 --sigma 2 \
        --journal alice.journal
    $ dpaudit serve contribute --identity certificates/bob \
        --peer 127.0.0.1:5001 --input counts.npy --round week-7 \
        --parties alice,bob,carol --threshold 2 --bound 1000 --sigma 2 \
        --journal bob.journal
    """
    from dpaudit.randomness import KeyedStream
    from dpaudit.results.arrays import read_npy
    from dpaudit_mitigations.secure_aggregation.network import CONTRIBUTOR_JOURNAL, contribute_round
    from dpaudit_mitigations.transport.certificates import load_identity

    values = read_npy(options.source, name="input")
    if values.dtype.kind not in "iuf" or values.ndim != 1:
        raise UsageError(
            f"input={options.source}: not a vector of numbers; numpy.save one of shape (d,)"
        )
    terms = _terms(options, number=options.number, length=values.size)
    with _journal(options.journal, CONTRIBUTOR_JOURNAL) as rounds:
        receipt = contribute_round(
            values,
            identity=load_identity(options.identity),
            terms=terms,
            address=options.peer,
            aggregator=options.peer_name,
            journal=rounds,
            stream=KeyedStream.fresh(),
            patience=options.patience,
        )
    say(round=terms.round, sha256=receipt.sha256, survivors=list(receipt.survivors))


def _check_seconds(name: str, value: float) -> None:
    if not 0 < value <= 86_400:
        raise UsageError(f"{name}={value}: takes more than 0 and at most 86,400 seconds")


def _terms(options: Aggregation | Contribution, *, number: str, length: int) -> RoundTerms:
    from dpaudit_mitigations.secure_aggregation.terms import RoundTerms

    law: Any = options.noise  # checked there
    return RoundTerms(
        round=number,
        parties=tuple(filter(None, (name.strip() for name in options.parties.split(",")))),
        threshold=options.threshold,
        length=length,
        bound=options.bound,
        sigma=options.sigma,
        bits=options.bits,
        colluding=options.colluding,
        law=law,
    )


def _journal(folder: Path, kind: str) -> Any:
    from dpaudit_mitigations.transport.journal import Journal, journal_folder

    return Journal(journal_folder(folder) / "rounds.sqlite", kind=kind)
