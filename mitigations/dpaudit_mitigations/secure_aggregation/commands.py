"""``dpaudit serve aggregate`` and ``dpaudit serve contribute``: secure aggregation as processes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from dpaudit.errors import UsageError
from dpaudit.options import Option
from dpaudit_mitigations.transport.commands import say

if TYPE_CHECKING:
    from dpaudit_mitigations.secure_aggregation.terms import RoundTerms

__all__ = ["Aggregation", "Contribution", "aggregate", "contribute"]

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
    with _journal(options.journal, AGGREGATOR_JOURNAL) as kept:
        done = aggregate_round(
            load_identity(options.identity),
            terms=terms,
            address=options.listen,
            journal=kept,
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
    from dpaudit_mitigations.secure_aggregation.network import CONTRIBUTOR_JOURNAL, contribute_round
    from dpaudit_mitigations.transport.certificates import load_identity

    values = _vector(options.source)
    terms = _terms(options, number=options.number, length=values.size)
    with _journal(options.journal, CONTRIBUTOR_JOURNAL) as kept:
        receipt = contribute_round(
            values,
            identity=load_identity(options.identity),
            terms=terms,
            address=options.peer,
            aggregator=options.peer_name,
            journal=kept,
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


def _vector(path: Path) -> Any:
    from dpaudit.results.arrays import read_npy

    values = read_npy(path, name="input")
    if values.dtype.kind not in "iuf" or values.ndim != 1:
        raise UsageError(f"input={path}: not a vector of numbers; numpy.save one of shape (d,)")
    return values
