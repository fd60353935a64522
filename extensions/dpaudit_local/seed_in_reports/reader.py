"""The owner of coins that carry their own seed reads what a device's reports were about.

Threat model: the attacker holds the key of the coins (``specimen``), knows the mechanism and the
objects that people may have, and sees the reports of a device as everybody does: one, or a
``series`` about one object. The device stays as it is, and sends nothing else. For each
object the reader undoes what the object would have done to the bits that carry the nonce, finds
nonce and seed, and makes all coins anew: with the right object everything fits.

One copy of the nonce is enough. Where an object's own bit lies among those that carry the nonce,
only a reader who tries that position finds the nonce; so it tries them.

Ours.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit.noise.key import PancakeKey
from dpaudit.noise.seed_in_noise.key import SeedHolder, SeedKey
from dpaudit.noise.seed_in_noise.nonces import KeyedNonces, SealedNonces, Seeds, private_key
from dpaudit.protocols import LocalMechanism, Stream
from dpaudit.stats import clopper_pearson
from dpaudit_local.mechanisms.reports import whole_number
from dpaudit_local.pool_inference.game import DeviceOptions
from dpaudit_local.seed_in_reports.bits import ReportBits, SecondCoins, report_bits
from dpaudit_local.seed_in_reports.specimen import DeviceCoins, SeededCoins, SeedInReports

__all__ = ["ReportReader"]

_TRIES = 64

Bits = npt.NDArray[np.bool_]


@dataclass(kw_only=True, eq=False, repr=False)
class ReportReader(DeviceOptions, SeedHolder):
    """Which objects a device's reports are about: those with which nonce, seed and coins fit.

    Formal guarantee: the right object always fits, if the coins are the specimen's and the head
    leaves at most 64 nonces (all but 3e-5). A wrong object whose own bits differ fits with
    probability 2^-c or so, c the entropy of the coins outside the nonce; where c is near 0, as for
    a single report of one bit, objects with the same own bit cannot be distinguished by anyone.

    Raises:
        UsageError: an option that makes no sense.
        KeyFileError: a key file that is none.
    """

    games = ("population",)
    holds = "the seed-in-noise key"

    key: SeedKey | PancakeKey | str | Path | None = None
    """Of the coins; None: a key from the game's stream."""
    series: int = 1
    """Reports of a device, all about one object."""
    universe: int = 100
    """How many objects there are, each as likely as any other."""
    coins: str = "seeded"
    """``seeded``, or ``honest`` for comparison."""
    second_epsilon: float | None = None
    """Of the second randomisation by the device's owner; None: there is none."""

    def __post_init__(self) -> None:
        if self.coins not in ("seeded", "honest"):
            raise UsageError(f"coins={self.coins}: must be seeded or honest")
        super().__post_init__()
        self.universe = whole_number("universe", self.universe, 2, 1 << 20)

    def read(
        self, reports: Any, *, mechanism: LocalMechanism, objects: npt.NDArray[np.int64]
    ) -> Bits:
        """Which of ``objects`` (u,) fit the reports (n·series,) of each device: (n, u).

        Raises:
            UsageError: no key was given, or a mechanism whose reports hold no such nonce.
        """
        return self._read(self.secret_key(), reports, mechanism, objects)

    def _read(
        self,
        key: SeedKey | PancakeKey,
        reports: Any,
        mechanism: LocalMechanism,
        objects: npt.NDArray[np.int64],
    ) -> Bits:
        seeds = self.seeds_of(key)
        view = report_bits(mechanism)
        coins = SeededCoins(view, size=seeds.size, series=self.series)
        return np.array(
            [
                _fitting_objects(coins, seeds, public, bits, _truth(view, public, objects))
                for public, bits in _devices(view, reports, self.series)
            ]
        )

    def play(self, users: int, *, stream: Stream) -> dict[str, Any]:
        """Each of ``users`` people has a random object, which the device reports ``series`` times.

        In the outcome: ``read``, how often the objects that fit (the likeliest where none does) are
        exactly those which the reports would leave if they had no noise; ``named``, how often the
        object itself is named, by lot among them. ``read_honest`` and ``named_honest``: the same
        from the likeliest objects, which is the best guess without the key. ``named_told``, behind
        a second stage: for someone who knows all coins of the first. ``noiseless``: how often the
        object could be named if there were no noise, on average. ``bound``: the most of
        ``named_honest`` that ε allows.
        """
        mechanism = self.device(self.universe, stream=stream.child("hashes"))
        key = self._secret_key or SeedKey.new(secret=stream.child("key").bytes(32))
        nonces = (
            SealedNonces(private_key(key.secret).public_key().public_bytes_raw().hex())
            if self.public
            else KeyedNonces(key.secret, bits=self.nonce_bits)
        )
        device = SeedInReports(mechanism, nonces=nonces, series=self.series)
        objects = np.arange(self.universe)
        own = stream.child("objects").numpy().integers(0, self.universe, users)
        each = np.repeat(own, self.series)
        coins = device.draw(users, stream=stream.child("devices"))
        if self.coins == "seeded":
            reports = device.reports(coins, each)
        else:
            reports = mechanism.privatize(each, stream=stream.child("devices"))
        second = None
        if self.second_epsilon is not None:
            second = SecondCoins(mechanism, epsilon=self.second_epsilon)
            reports = second.again(reports, stream=stream.child("owner"))
        lot = stream.child("lots").numpy()
        fits = self._read(key, reports, mechanism, objects)
        view = report_bits(mechanism)
        low, high = (view.low, view.high) if second is None else (second.low, second.high)
        right = dict.fromkeys(("read", "named", "read_honest", "named_honest", "named_told"), 0)
        noiseless = 0.0
        for i, (public, bits) in enumerate(_devices(view, reports, self.series)):
            truth = _truth(view, public, objects)
            same = (truth == truth[own[i]]).all(1)
            noiseless += 1 / float(same.sum())
            likeliest = _likeliest(view.log_odds(bits, truth, low, high))
            for who, named in ("_honest", likeliest), ("", fits[i] if fits[i].any() else likeliest):
                right[f"read{who}"] += int((named == same).all())
                right[f"named{who}"] += int(lot.choice(np.flatnonzero(named)) == own[i])
            informed = _likeliest(
                -(_output(view, coins[i], truth) != bits).sum(1).astype(np.float64)
            )
            right["named_told"] += int(lot.choice(np.flatnonzero(informed)) == own[i])
        if second is None or self.coins == "honest":
            del right["named_told"]
        claimed = (mechanism if second is None else second).epsilon * self.series
        return {
            **{name: _share(count, users) for name, count in right.items()},
            "noiseless": noiseless / users,
            "bound": 1 / (1 + (self.universe - 1) * math.exp(-claimed)),
            "epsilon_claimed": claimed,
            "epsilon_vendor": _vendor_epsilon(self.coins, claimed, second, self.series),
            "distance": device.distance,
            "error": 1.0 if second is None else second.error,
        }


def _vendor_epsilon(coins: str, claimed: float, second: SecondCoins | None, series: int) -> float:
    """ε to the key holder: infinite if the key reveals the noise, which rules objects out."""
    if coins == "honest":
        return claimed
    return math.inf if second is None else second.second_epsilon * series


def _share(count: int, users: int) -> dict[str, float]:
    interval = clopper_pearson(count, users)
    return {"value": count / users, "low": interval.low, "high": interval.high}


def _likeliest(scores: npt.NDArray[np.float64]) -> Bits:
    return np.asarray(scores >= scores.max() - 1e-9)


def _devices(
    view: ReportBits, reports: Any, series: int
) -> Iterator[tuple[npt.NDArray[np.int64], Bits]]:
    """Public coins (series,) and bits (series·bits,) of each device."""
    public, bits = view.parts(reports)
    for at in range(0, len(public), series):
        yield public[at : at + series], bits[at : at + series].ravel()


def _truth(view: ReportBits, public: npt.NDArray[np.int64], objects: npt.NDArray[np.int64]) -> Bits:
    """The own bits of each object in a device's reports, (u, series·bits)."""
    pairs = np.tile(public, len(objects)), np.repeat(objects, len(public))
    return view.truth(*pairs).reshape(len(objects), -1)


def _output(view: ReportBits, coins: DeviceCoins, truth: Bits) -> Bits:
    """The bits that a device with these coins reports for each object, (u, series·bits)."""
    return view.noisy(coins.first.ravel(), coins.second.ravel(), truth)


def _fitting_objects(
    coins: SeededCoins, seeds: Seeds, public: npt.NDArray[np.int64], bits: Bits, truth: Bits
) -> Bits:
    """Which objects, with own bits ``truth`` (u, series·bits), fit one device's reports."""
    out: Bits = np.zeros(len(truth), dtype=bool)
    heads, group = np.unique(truth[:, : coins.bits], axis=0, return_inverse=True)
    for number, head in enumerate(heads):
        mine = np.flatnonzero(group.ravel() == number)
        for first in _first_coins(coins.view, bits[: coins.bits], head):
            for device in _candidates(coins, seeds, public, first):
                out[mine] |= (_output(coins.view, device, truth[mine]) == bits).all(1)
    return out


def _first_coins(view: ReportBits, bits: Bits, own: Bits) -> Iterator[Bits]:
    """The first coins that may have led to these bits of an object with these own ones."""
    doubtful = np.flatnonzero(np.zeros_like(own) if view.flips else bits & own)
    for second in product((False, True), repeat=len(doubtful)):
        first = bits ^ own
        first[doubtful] = second  # a 1 that the second coin kept
        yield first


def _candidates(
    coins: SeededCoins, seeds: Seeds, public: npt.NDArray[np.int64], first: Bits
) -> Iterator[DeviceCoins]:
    """All coins of the nonces that agree with the head's coins, and with the other public ones."""
    low, high = coins.interval(public, first)
    for nonce in coins.nonces(low, high, limit=_TRIES):
        device = coins.tail(nonce, seeds.seed(nonce), low, high, first)
        if device is not None and (device.public[coins.coins :] == public[coins.coins :]).all():
            yield device
