"""``dpaudit serve answer`` and ``dpaudit serve noise``: the two servers as processes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from dpaudit.options import Option
from dpaudit_mitigations.transport.commands import say

__all__ = ["Answering", "NoiseAdding", "answer", "noise"]

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
    from dpaudit_mitigations.transport.journal import journal_folder
    from dpaudit_mitigations.transport.logs import logger
    from dpaudit_mitigations.transport.server import Limits, serve
    from dpaudit_mitigations.two_servers.noise_side import NoiseSide
    from dpaudit_mitigations.two_servers.words import ReleaseTerms

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
    from dpaudit_mitigations.transport.certificates import load_identity
    from dpaudit_mitigations.transport.journal import journal_folder
    from dpaudit_mitigations.transport.logs import logger
    from dpaudit_mitigations.two_servers.answer_side import AnswerSide, Contact, Question

    me = load_identity(options.identity)
    values = _vector(options.query)
    draw = None
    if options.source != _DEFAULT:
        from dpaudit_mitigations.two_servers.named_noise import draw_of, named_source

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


def _vector(path: Path) -> Any:
    import numpy as np

    from dpaudit.results.arrays import read_npy

    return np.ascontiguousarray(read_npy(path, name="query"))
