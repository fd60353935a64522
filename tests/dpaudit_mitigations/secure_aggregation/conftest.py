"""A round driven by hand, stage by stage, so that tests can come between."""

from __future__ import annotations

import numpy as np
import pytest

from dpaudit.randomness import KeyedStream
from dpaudit_mitigations.secure_aggregation.client import Client
from dpaudit_mitigations.secure_aggregation.keys import new_signing_key, public_bytes
from dpaudit_mitigations.secure_aggregation.plan import Plan, least_threshold
from dpaudit_mitigations.secure_aggregation.server import Aggregator


class Round:
    """n parties a, b, c, …; a stage is a method from who is still there to the server's answer."""

    def __init__(self, n=4, *, threshold=None, length=5, bits=32, colluding=0, tag="round"):
        stream = KeyedStream.from_seed("secagg tests").child(tag)
        self.names = [chr(ord("a") + i) for i in range(n)]
        self.signing = {
            name: new_signing_key(KeyedStream.from_seed("signing").child(name))
            for name in self.names
        }
        self.plan = Plan(
            round=stream.child("id").bytes(16),
            roster={name: public_bytes(key) for name, key in self.signing.items()},
            threshold=threshold or least_threshold(n, colluding=colluding),
            length=length,
            bits=bits,
            colluding=colluding,
        )
        rng = stream.child("vectors").numpy()
        self.vectors = {
            name: rng.integers(0, 2**bits, length, dtype=np.uint64).astype(self.plan.dtype)
            for name in self.names
        }
        self.clients = {
            name: Client(
                self.plan,
                name,
                vector=self.vectors[name].copy(),
                signing_key=self.signing[name],
                stream=stream.child("party", name),
            )
            for name in self.names
        }
        self.server = Aggregator(self.plan)
        self.sent = {}

    def expected(self, names):
        total = np.zeros(self.plan.length, dtype=self.plan.dtype)
        for name in names:
            total += self.vectors[name]
        return total

    def advertise(self, names=None):
        for name in names or self.names:
            self.sent["advert", name] = self.clients[name].step(None)
            self.server.step({name: self.sent["advert", name]})
        self.adverts = self.close_for_all()
        return self.adverts

    def share(self, names=None):
        for name in names or self.server.expected:
            self.sent["shares", name] = self.clients[name].step(self.adverts)
            self.server.step({name: self.sent["shares", name]})
        self.envelopes = self.server.step({})
        return self.envelopes

    def mask(self, names=None):
        self.masked = {}
        for name in names or self.server.expected:
            self.masked[name] = self.clients[name].step(self.envelopes[name])
            self.server.step({name: self.masked[name]})
        self.survivors = self.close_for_all()
        return self.survivors

    def confirm(self, names=None):
        for name in names or self.server.expected:
            self.sent["confirmation", name] = self.clients[name].step(self.survivors)
            self.server.step({name: self.sent["confirmation", name]})
        self.confirmations = self.close_for_all()
        return self.confirmations

    def unmask(self, names=None):
        for name in names or self.server.expected:
            self.sent["unmasking", name] = self.clients[name].step(self.confirmations)
            self.server.step({name: self.sent["unmasking", name]})
        assert self.server.step({}) == {}
        return self.server.release

    def close_for_all(self):
        """The one answer that all get as the stage closes."""
        (answer,) = set(self.server.step({}).values())
        return answer

    def until(self, stage):
        """Everybody there, up to but without ``stage``."""
        for name in ("advertise", "share", "mask", "confirm", "unmask"):
            if name == stage:
                return self
            getattr(self, name)()
        return self


@pytest.fixture
def make_round():
    return Round
