"""The law of a program by running Python on every coin string: slow, simple, and independent."""

from __future__ import annotations

import os
import random
import secrets
from fractions import Fraction
from unittest import mock

from dpaudit_prove.exploration.law import canonical_output


class _NeedMore(BaseException):
    def __init__(self, count):
        super().__init__()
        self.count = count


class EveryCoin(random.Random):
    """Reads given coins; asks for one more where they end."""

    def __new__(cls, tape):
        return super().__new__(cls)

    def __init__(self, tape):
        self.tape, self.at = tape, 0

    def seed(self, *args, **kwargs):
        pass

    def below(self, count):
        if count == 1:
            return 0
        if self.at == len(self.tape):
            raise _NeedMore(count)
        self.at += 1
        return self.tape[self.at - 1]

    def getrandbits(self, k):
        return self.below(1 << k)

    def _randbelow(self, n):
        return self.below(n)

    def random(self):
        return self.below(1 << 53) * 2.0**-53

    def randbytes(self, n):
        return self.below(1 << 8 * n).to_bytes(n, "big")


def law(function, *args, coins="rng", least=Fraction(1, 10**6)):
    """Output → probability, and the probability of coin strings less likely than `least`."""
    found, cut = {}, Fraction(0)
    source = EveryCoin(())
    passed = {coins: source} if coins else {}
    todo = [((), Fraction(1))]
    with (
        mock.patch.object(os, "urandom", source.randbytes),
        mock.patch.object(secrets, "randbits", source.getrandbits),
        mock.patch.object(secrets, "choice", source.choice),
        mock.patch.object(secrets, "randbelow", source._randbelow),
    ):
        while todo:
            source.tape, share = todo.pop()
            source.at = 0
            if share < least:
                cut += share
                continue
            try:
                value = canonical_output(function(*args, **passed))
            except _NeedMore as more:
                todo += [((*source.tape, v), share / more.count) for v in range(more.count)]
                continue
            except Exception as error:  # noqa: BLE001
                value = ("raises", type(error).__name__)
            found[value] = found.get(value, 0) + share
    return found, cut
