"""``dpaudit serve answer`` and ``dpaudit serve noise``: the two servers as processes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from dpaudit_mitigations.transport.commands import say

__all__ = ["answer", "noise"]

_DEFAULT = "secure-gaussian"


def noise(
    identity: Annotated[
        Path, typer.Option(help="This server's folder from dpaudit serve init.", show_default=False)
    ],
    journal: Annotated[
        Path, typer.Option(help="Its journal folder; made if missing.", show_default=False)
    ],
    sigma: Annotated[float, typer.Option(help="Noise scale per coordinate.", show_default=False)],
    bound: Annotated[
        float,
        typer.Option(
            help="Largest |value| of a noisy answer; a public number.", show_default=False
        ),
    ],
    dim: Annotated[int, typer.Option(help="Values per release.", show_default=False)],
    listen: Annotated[
        str, typer.Option(help="HOST:PORT; port 0 takes a free one.")
    ] = "127.0.0.1:0",
    peer: Annotated[
        str, typer.Option(help="Name in the answering server's certificate.")
    ] = "answer",
    publish: Annotated[
        Path | None, typer.Option(help="Where releases go.", show_default="JOURNAL/published")
    ] = None,
    dtype: Annotated[str, typer.Option(help="What is published: float32 or float64.")] = "float32",
    idle: Annotated[
        float, typer.Option(help="Seconds without data before a peer is cut off.")
    ] = 10.0,
) -> None:
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

    me = load_identity(identity)
    log = logger(me.name)
    folder = journal_folder(journal)
    published = publish or folder / "published"
    side = NoiseSide(
        terms=ReleaseTerms(dim=dim, bound=bound, sigma=sigma),
        peer=peer,
        journal=folder,
        publish=published,
        log=log,
        dtype=dtype,
    )
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        with serve(
            side.handlers,
            identity=me,
            address=listen,
            peers=[peer],
            limits=Limits(idle=idle),
            log=log,
        ) as server:
            say(address=server.address, party=me.name, publish=str(published))
            stop.wait()
    finally:
        side.close()


def answer(
    identity: Annotated[
        Path, typer.Option(help="This server's folder from dpaudit serve init.", show_default=False)
    ],
    peer: Annotated[
        str, typer.Option(help="HOST:PORT of the server that adds noise.", show_default=False)
    ],
    query: Annotated[
        Path,
        typer.Option(help="The exact query result: an .npy vector of floats.", show_default=False),
    ],
    sigma: Annotated[
        float, typer.Option(help="Scale of our own noise, per coordinate.", show_default=False)
    ],
    release: Annotated[
        str, typer.Option(help="Name of this release; never used twice.", show_default=False)
    ],
    journal: Annotated[
        Path, typer.Option(help="Our journal folder; made if missing.", show_default=False)
    ],
    number: Annotated[
        int, typer.Option("--round", help="Round of the release, if it has several.")
    ] = 0,
    source: Annotated[
        str, typer.Option(help="NAME[:option=value,…] of a noise source; others are for lab use.")
    ] = _DEFAULT,
    peer_sigma: Annotated[
        float | None, typer.Option(help="Scale of the other server's noise.", show_default="sigma")
    ] = None,
    peer_name: Annotated[str, typer.Option(help="Name in that server's certificate.")] = "noise",
    bound: Annotated[
        float | None,
        typer.Option(help="Refuse a server with another bound.", show_default="accept any"),
    ] = None,
    patience: Annotated[float, typer.Option(help="Seconds to keep trying to reach it.")] = 60.0,
) -> None:
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

    me = load_identity(identity)
    values = _vector(query)
    draw = None
    if source != _DEFAULT:
        from dpaudit_mitigations.two_servers.named_noise import draw_of, named_source

        draw = draw_of(named_source(source, sigma=sigma, dim=values.size), dim=values.size)
    question = Question(
        values,
        release=release,
        round=number,
        sigma=sigma,
        peer_sigma=sigma if peer_sigma is None else peer_sigma,
        source=source,
        bound=bound,
    )
    side = AnswerSide(journal=journal_folder(journal), log=logger(me.name), draw=draw)
    try:
        receipt = side.release(question, Contact(peer, peer_name, me), patience=patience)
    finally:
        side.close()
    say(
        release=release,
        round=number,
        file=f"{release}@{number}.npy",
        sha256=receipt.published.hex(),
    )


def _vector(path: Path) -> Any:
    import numpy as np

    from dpaudit.results.arrays import read_npy

    return np.ascontiguousarray(read_npy(path, name="query"))
