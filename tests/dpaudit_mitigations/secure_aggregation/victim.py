"""Contributor processes that stop before one stage, or in their vector, for the tests to kill."""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from pathlib import Path

import numpy as np

from dpaudit.randomness import KeyedStream
from dpaudit_mitigations.secure_aggregation import network
from dpaudit_mitigations.secure_aggregation.terms import RoundTerms
from dpaudit_mitigations.transport.certificates import load_identity
from dpaudit_mitigations.transport.journal import Journal


def stop(where: str) -> None:
    print(f"{where} {os.getpid()}\n", end="", flush=True)
    time.sleep(120)


def amid(frames):
    yield from itertools.islice(frames, 2)
    stop("amid")


def contribute(where: str, identity: str, address: str, folder: str, terms: dict) -> None:
    real = network.ask

    def ask(address, method, messages, **options):
        if method == where:
            stop(where)
        return real(
            address,
            method,
            amid(messages) if (where, method) == ("amid", "mask") else messages,
            **options,
        )

    network.ask = ask
    with Journal(Path(folder) / "victim.sqlite", kind=network.CONTRIBUTOR_JOURNAL) as journal:
        network.contribute_round(
            np.ones(terms["length"]),
            identity=load_identity(Path(identity)),
            terms=RoundTerms(**{**terms, "parties": tuple(terms["parties"])}),
            address=address,
            aggregator="aggregator",
            journal=journal,
            stream=KeyedStream.fresh(),
            patience=60,
        )


def main() -> None:
    """One child per case, all forked after the slow imports and before gRPC has threads."""
    children = []
    for case in json.loads(sys.argv[1]):
        child = os.fork()
        if not child:
            contribute(**case)
            os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
