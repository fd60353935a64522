"""Python's own samplers over the operating system's coins."""

from __future__ import annotations

import random
import secrets

COINS = random.SystemRandom()


def choice():
    return secrets.choice([0, 1, 2, 3, 4])


def weighted():
    return COINS.choices([0, 1, 2], weights=[1, 2, 4])[0]


def third():
    return COINS.choices([0, 1, 2])[0]


def shuffled():
    items = [0, 1, 2]
    COINS.shuffle(items)
    return items[0] * 2 + (1 if items[1] > items[2] else 0)


def sampled():
    first, second = COINS.sample([0, 1, 2, 3], 2)
    return 3 * first + second - (second > first)


def triangular():
    return int(COINS.triangular(0, 4))
