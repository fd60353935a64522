"""One session of fixed secrets, with any server, verifier and link."""

from __future__ import annotations

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dpaudit.randomness import KeyedStream
from dpaudit_mitigations.joint_seeds.messages import SessionTerms
from dpaudit_mitigations.joint_seeds.mitigation import run_session
from dpaudit_mitigations.joint_seeds.parties import SeedServer, Verifier

ROOT = KeyedStream.from_seed("joint seeds tests")
SERVER, VERIFIER = (
    Ed25519PrivateKey.from_private_bytes(ROOT.child(name).bytes(32))
    for name in ("server", "verifier")
)


class Pair:
    """Both parties before their first message."""

    keys = {"server": SERVER, "verifier": VERIFIER}  # noqa: RUF012

    def __init__(
        self,
        tag=0,
        *,
        candidates=4,
        dim=4,
        steps=None,
        server=SeedServer,
        verifier=Verifier,
        **more,
    ):
        self.terms = SessionTerms(
            candidates=candidates,
            dim=dim,
            scale=2.0**24,
            granularity=2.0**-24,
            server=SERVER.public_key().public_bytes_raw(),
            verifier=VERIFIER.public_key().public_bytes_raw(),
        )
        self.steps = np.arange(dim, dtype=np.int64) << 24 if steps is None else steps
        stream = ROOT.child("session", tag)
        self.server = server(
            self.steps, terms=self.terms, key=SERVER, stream=stream.child("s"), **more
        )
        self.verifier = verifier(terms=self.terms, key=VERIFIER, stream=stream.child("v"))

    def run(self, link=None):
        return run_session(self.server, self.verifier, link=link)


@pytest.fixture
def pair():
    return Pair
