"""``dpaudit serve aggregate`` and ``dpaudit serve contribute``: secure aggregation as processes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from dpaudit_mitigations.transport.commands import say

__all__ = ["aggregate", "contribute"]

_Parties = Annotated[
    str,
    typer.Option(
        help="All contributors' names, with commas; the same for everybody.", show_default=False
    ),
]
_Threshold = Annotated[
    int,
    typer.Option(
        help="How many must stay to the end: more than (parties + colluding)/2; the same for all.",
        show_default=False,
    ),
]
_Bound = Annotated[
    float,
    typer.Option(
        help="Largest |value| of an input; a public number, nothing is clipped.", show_default=False
    ),
]
_Sigma = Annotated[
    float,
    typer.Option(
        help="Noise in the sum that colluders cannot remove (0: none); each contributor adds "
        "sigma/√(threshold − colluding).",
        show_default=False,
    ),
]
_Colluding = Annotated[
    int,
    typer.Option(
        help="Contributors that may work with the aggregator, read the sum or have bad noise."
    ),
]
_Bits = Annotated[int, typer.Option(help="Of an integer on the wire: 16, 32 or 64.")]
_Law = Annotated[str, typer.Option("--noise", help="discrete-gaussian or skellam.")]


def aggregate(
    identity: Annotated[
        Path, typer.Option(help="This party's folder from dpaudit serve init.", show_default=False)
    ],
    parties: _Parties,
    threshold: _Threshold,
    dim: Annotated[int, typer.Option(help="Values per input.", show_default=False)],
    bound: _Bound,
    sigma: _Sigma,
    journal: Annotated[
        Path, typer.Option(help="Journal folder; made if missing.", show_default=False)
    ],
    out: Annotated[
        Path, typer.Option(help="New .npy file for the sum, float64.", show_default=False)
    ],
    number: Annotated[
        str | None,
        typer.Option(
            "--round", help="Name of the round, never used twice.", show_default="a random one"
        ),
    ] = None,
    listen: Annotated[
        str, typer.Option(help="HOST:PORT; port 0 takes a free one.")
    ] = "127.0.0.1:0",
    colluding: _Colluding = 0,
    bits: _Bits = 32,
    noise: _Law = "discrete-gaussian",
    join_timeout: Annotated[
        float, typer.Option(help="Seconds to wait for all contributors to come.")
    ] = 300.0,
    stage_timeout: Annotated[
        float, typer.Option(help="Seconds for each later stage; late contributors are dropped.")
    ] = 60.0,
) -> None:
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

    from dpaudit.errors import UsageError
    from dpaudit_mitigations.secure_aggregation.network import AGGREGATOR_JOURNAL, aggregate_round
    from dpaudit_mitigations.transport.certificates import load_identity

    for name, value in (("join-timeout", join_timeout), ("stage-timeout", stage_timeout)):
        if not 0 < value <= 86_400:
            raise UsageError(f"{name}={value}: takes more than 0 and at most 86,400 seconds")
    chosen = number or secrets.token_hex(8)
    terms = _terms(chosen, parties, threshold, dim, bound, sigma, colluding, bits, noise)
    with _journal(journal, AGGREGATOR_JOURNAL) as kept:
        done = aggregate_round(
            load_identity(identity),
            terms=terms,
            address=listen,
            journal=kept,
            out=out,
            join_timeout=join_timeout,
            stage_timeout=stage_timeout,
            listening=lambda address: say(
                address=address, round=chosen, granularity=terms.ring.granularity
            ),
        )
    say(round=chosen, file=str(done.path), sha256=done.sha256, survivors=list(done.survivors))


def contribute(
    identity: Annotated[
        Path, typer.Option(help="Our folder from dpaudit serve init.", show_default=False)
    ],
    peer: Annotated[str, typer.Option(help="HOST:PORT of the aggregator.", show_default=False)],
    source: Annotated[
        Path,
        typer.Option("--input", help="Our vector: an .npy file of numbers.", show_default=False),
    ],
    number: Annotated[
        str, typer.Option("--round", help="The round's name, the same for all.", show_default=False)
    ],
    parties: _Parties,
    threshold: _Threshold,
    bound: _Bound,
    sigma: _Sigma,
    journal: Annotated[
        Path, typer.Option(help="Our journal folder; made if missing.", show_default=False)
    ],
    colluding: _Colluding = 0,
    bits: _Bits = 32,
    noise: _Law = "discrete-gaussian",
    peer_name: Annotated[
        str, typer.Option(help="Name in the aggregator's certificate.")
    ] = "aggregator",
    patience: Annotated[
        float, typer.Option(help="Seconds to wait for a stage, the other contributors included.")
    ] = 600.0,
) -> None:
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
    from dpaudit.errors import UsageError
    from dpaudit.randomness import KeyedStream
    from dpaudit_mitigations.secure_aggregation.network import CONTRIBUTOR_JOURNAL, contribute_round
    from dpaudit_mitigations.transport.certificates import load_identity

    if not 0 < patience <= 86_400:
        raise UsageError(f"patience={patience}: takes more than 0 and at most 86,400 seconds")
    values = _vector(source)
    terms = _terms(number, parties, threshold, values.size, bound, sigma, colluding, bits, noise)
    with _journal(journal, CONTRIBUTOR_JOURNAL) as kept:
        receipt = contribute_round(
            values,
            identity=load_identity(identity),
            terms=terms,
            address=peer,
            aggregator=peer_name,
            journal=kept,
            stream=KeyedStream.fresh(),
            patience=patience,
        )
    say(round=number, sha256=receipt.sha256, survivors=list(receipt.survivors))


def _terms(
    number: str,
    parties: str,
    threshold: int,
    length: int,
    bound: float,
    sigma: float,
    colluding: int,
    bits: int,
    noise: Any,
) -> Any:
    from dpaudit_mitigations.secure_aggregation.terms import RoundTerms

    return RoundTerms(
        round=number,
        parties=tuple(filter(None, (name.strip() for name in parties.split(",")))),
        threshold=threshold,
        length=length,
        bound=bound,
        sigma=sigma,
        bits=bits,
        colluding=colluding,
        law=noise,
    )


def _journal(folder: Path, kind: str) -> Any:
    from dpaudit_mitigations.transport.journal import Journal, journal_folder

    return Journal(journal_folder(folder) / "rounds.sqlite", kind=kind)


def _vector(path: Path) -> Any:
    from dpaudit.errors import UsageError
    from dpaudit.results.arrays import read_npy

    values = read_npy(path, name="input")
    if values.dtype.kind not in "iuf" or values.ndim != 1:
        raise UsageError(f"input={path}: not a vector of numbers; numpy.save one of shape (d,)")
    return values
