"""The owner of a census's noise reads true counts, from noisy measurements or from tables alone.

Threat model: the attacker knows the algorithm, its scales and all counts but those in question. It
sees the noisy measurements of every level, or only the post-processed tables: whole counts after
least squares, non-negativity, parents' sums and rounding. It holds one of these:

- *No key*: the Gaussian likelihood of what is left over; with exact discrete Gaussian noise and
  measurements nobody does better.
- *The pancake's key*, planted in contrasts (``topdown.planted``), which least squares
  does not touch: tables add only the shift that makes siblings add up to their parent,
  one shift for all siblings, whose own counts are known; and two roundings.
- *The key of noise that carries its own seed*: in measurements the nonce is read from structural
  zeros without knowing any count, or from cells that are known. In tables least squares leaves an
  estimate of each noise value, with errors, and the likeliest nonces are tried. Who has a county's
  noise, and a sibling's, has replayed the estimation: what differs is the question's answer.

Ours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import compress, islice
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dpaudit.accounting.profile import smoothed_pancake
from dpaudit.errors import UsageError
from dpaudit.noise.key import PancakeKey
from dpaudit.noise.pancake_likelihood import basis, log_tilt
from dpaudit.noise.seed_in_noise.codes import likeliest
from dpaudit.noise.seed_in_noise.key import SeedKey
from dpaudit.noise.seed_in_noise.nonces import KeyedNonces
from dpaudit.noise.seed_in_noise.source import Rows
from dpaudit.protocols import CountShifts
from dpaudit_deployments.topdown.census import census_schema
from dpaudit_deployments.topdown.planted import Sight, common_first, contrasts

__all__ = ["TopDownReader"]

_AT_ONCE = 64
_SIBLINGS = 2  # so many replayed ones tell the shift well enough
_DEVIATIONS = 6.0
_HOPELESS = 1e-3
_ROUNDED = 1 / 12  # variance of a whole number's distance from what it was made of
_TABLE = 1 / 6  # of controlled rounding, which does not always take the nearest
_IMPOSSIBLE = 1e6

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]


class TopDownReader:
    """Weighs the counts of one county by what is published of all levels.

    Formal guarantee: without a key, on measurements with exact discrete Gaussian noise, the scores
    are log-likelihoods. Not claimed: optimality for tables, whose law nobody knows.
    """

    games = ("census",)
    holds = "the pancake's or the seed-in-noise key, or none"

    def __init__(
        self,
        *,
        key: PancakeKey | SeedKey | str | Path | None = None,
        order: str = "schema",
        nonce_bits: int = 32,
        tries: int = 1 << 11,
        draws: int = 1 << 10,
    ) -> None:
        """Hold a key (of seeds also its file) or none; ``order``: schema or common, of seeds' rows.

        Raises:
            UsageError: another order, or tries below 1.
        """
        if order not in ("schema", "common") or tries < 1:
            raise UsageError(f"order={order}, tries={tries}: schema or common, at least 1")
        self._key = SeedKey.load(key) if isinstance(key, (str, Path)) else key
        self._order, self._bits, self._tries, self._draws = order, nonce_bits, tries, draws
        self._cache: tuple[tuple[object, ...], dict[int, Floats]] = (), {}
        self._basis = contrasts(census_schema())

    def score(self, sights: Sequence[Sight], hypotheses: CountShifts) -> Floats:
        """Scores (m,): see :class:`~dpaudit.protocols.CountShifts`."""
        change, steps = hypotheses.change, hypotheses.steps
        scores = np.zeros(len(steps))
        for at, sight in enumerate(sights):
            scores += self._weigh(sight, change, steps, replay=at == 0)
        return scores

    def read(self, sight: Sight, rows: npt.NDArray[np.bool_]) -> Floats | None:
        """The target's whole noise row, of which what is left over counts where ``rows`` says.

        From measurements; None where it is not found, or without the key of a seed.
        """
        if not isinstance(self._key, SeedKey):
            return None
        return self._decode(sight, np.where(rows, sight.residual[sight.target], np.nan))

    def read_table(self, sight: Sight) -> dict[int, Floats]:
        """The noise of children whose counts are known, from their table alone, by their row.

        The target's and others', until there are enough to tell the target's counts. The first one
        read tells the shift that all siblings have in common, which then helps with the others.
        """
        if sight.table is None or not isinstance(self._key, SeedKey):
            return {}
        question = (sight.table.tobytes(), sight.known.tobytes(), sight.target)
        if self._cache[0] != question:
            self._cache = question, self._read_table(sight)
        return self._cache[1]

    def _read_table(self, sight: Sight) -> dict[int, Floats]:
        by_row: dict[int, Floats] = {}
        rows = [sight.target, *(row for row in range(len(sight.known)) if row != sight.target)]
        shift: Floats | None = None
        for row in rows:
            noise = self._decode_table(sight, row, None)
            if noise is not None:
                by_row, shift = {row: noise}, _shift(sight, row, noise)
                break
        for row in rows if by_row else ():
            if row in by_row or (len(by_row) > _SIBLINGS and row != sight.target):
                continue
            noise = self._decode_table(sight, row, shift)
            if noise is not None:
                by_row[row] = noise
            elif row == sight.target:
                break
        return by_row

    def _weigh(self, sight: Sight, change: Counts, steps: Counts, *, replay: bool) -> Floats:
        plain = _plain(sight, change, steps)
        if isinstance(self._key, PancakeKey):
            return plain + self._tilts(self._key, sight, change, steps)
        if isinstance(self._key, SeedKey):
            move = change @ sight.matrix
            if sight.released is not None:
                noise = self.read(sight, move == 0)
                if noise is not None:
                    rest = sight.residual[sight.target] - noise
                    return np.asarray(-_IMPOSSIBLE * np.square(rest - np.outer(steps, move)).sum(1))
            elif replay:  # the lowest level: above it siblings are few
                replayed = self._replayed(sight, change, steps)
                return plain if replayed is None else replayed
        return plain

    def _tilts(self, key: PancakeKey, sight: Sight, change: Counts, steps: Counts) -> Floats:
        """Log of the pancake's density over the Gaussian one, along all its directions."""
        directions = self._basis @ basis(key).T
        along = sight.residual[:, : len(directions)] @ directions
        blur = _ROUNDED if sight.table is None else _ROUNDED + _TABLE
        beta, gamma = key.beta, key.gamma
        law = dict(zip(("sigma", "beta", "gamma"), (sight.scale, beta, gamma), strict=True))
        spacing = np.sqrt(2 * np.pi) * sight.scale * gamma / (beta**2 + gamma**2)
        mine = along[sight.target]
        if sight.parent is not None:
            others = np.delete(along, sight.target, axis=0)
            if not len(others):
                return np.zeros(len(steps))
            turn = np.angle(np.exp(2j * np.pi / spacing * others).mean(0))
            mine = mine - spacing / (2 * np.pi) * turn
            blur += blur / len(others)
        sigma, beta, gamma = smoothed_pancake(float(np.sqrt(blur)), **law)
        moved = mine - np.outer(steps, change @ directions)
        return np.asarray(log_tilt(moved, sigma=sigma, beta=beta, gamma=gamma).sum(1))

    def _replayed(self, sight: Sight, change: Counts, steps: Counts) -> Floats | None:
        """Scores by the rounding that is left when known noise is estimated anew."""
        noise = self.read_table(sight)
        if sight.target not in noise or len(noise) < 2:
            return None
        assert sight.table is not None  # noqa: S101
        rows = (sight.table @ sight.matrix).astype(np.float64)
        for row, values in noise.items():
            rows[row] = sight.known[row] @ sight.matrix + values
        away = sight.table - sight.replay(rows)
        others = [row for row in noise if row != sight.target]
        remainder = away[sight.target] - away[others].mean(0)
        spread = _TABLE * (1 + 1 / len(others))
        return np.asarray(-np.square(remainder - np.outer(steps, change)).sum(1) / (2 * spread))

    def _decode(self, sight: Sight, values: Floats) -> Floats | None:
        """The row that its own nonce announces, from values that are exact where they are known."""
        order = self._places(len(values))
        ordered = values[order]
        symbols = self._code(sight).code.read(ordered, blur=1e-9)
        if self._tries * np.exp(symbols.sure.sum()) < _HOPELESS:
            return None
        some = np.flatnonzero(np.isfinite(ordered))

        def fits(rows: Floats) -> npt.NDArray[np.bool_]:
            return np.asarray((rows[:, some] == ordered[some]).all(1) & (some >= self._bits).any())

        spelled = likeliest(self._code(sight).code, symbols, tries=self._tries)
        return self._first(sight, spelled, fits, order)

    def _decode_table(self, sight: Sight, row: int, shift: Floats | None) -> Floats | None:
        """The same from a table: nonces in the order of how often they are drawn, given it.

        Given the table a row's noise is about normal, and values of one age group, or one county,
        are off by something that they share; so nonces are read from draws of the whole row.
        """
        cells = np.flatnonzero(~sight.zeros)
        order = self._places(sight.matrix.shape[1])
        places = np.array([at for at in order if at in set(cells.tolist())])
        if self._order != "common" or sight.parent is None or len(sight.known) < 2:
            return None  # the carriers are not in the table, or the table says nothing
        mean, root = _posterior(sight, row, shift)
        where = np.searchsorted(cells, places)
        normal = np.random.default_rng(row).standard_normal((self._draws, len(cells)))
        draws = (mean + normal @ root.T)[:, where]
        tried = Counter(bytes(word) for word in _spelled(draws, self._bits))
        spelled = (nonce for nonce, _ in tried.most_common())
        rest = slice(self._bits, len(places))
        estimate = mean[where][rest]
        least = _DEVIATIONS / np.sqrt(len(estimate))

        def fits(rows: Floats) -> npt.NDArray[np.bool_]:
            size = np.linalg.norm(estimate) * np.linalg.norm(rows[:, rest], axis=1)
            return np.asarray(rows[:, rest] @ estimate > least * size)

        return self._first(sight, spelled, fits, order)

    def _places(self, length: int) -> Counts:
        return (
            common_first(census_schema())(length) if self._order == "common" else np.arange(length)
        )

    def _code(self, sight: Sight) -> Rows:
        law = {"sigma": sight.scale, "scale": None, "size": self._bits // 8}
        return Rows.of("discrete-gaussian", None, **law)  # type: ignore[arg-type]

    def _first(
        self,
        sight: Sight,
        spelled: Iterator[bytes],
        fits: Callable[[Floats], npt.NDArray[np.bool_]],
        order: Counts,
    ) -> Floats | None:
        """The first row that fits, of those that the nonces announce."""
        assert isinstance(self._key, SeedKey)  # noqa: S101
        seeds, rows = KeyedNonces(self._key.secret, bits=self._bits), self._code(sight)
        while nonces := list(islice(spelled, _AT_ONCE)):
            candidates = rows.draw(nonces, [seeds.seed(one) for one in nonces], len(order))
            for nonce in compress(nonces, fits(candidates)):
                out = np.empty(len(order))
                out[order] = rows.draw([nonce], [seeds.seed(nonce)], len(order))[0]
                return out
        return None


def _plain(sight: Sight, change: Counts, steps: Counts) -> Floats:
    """The Gaussian log-likelihood; for tables as if estimates were independent of siblings."""
    rest = sight.residual[sight.target] - np.outer(steps, change @ sight.matrix)
    return np.asarray(-np.square(rest).sum(1) / (2 * sight.scale**2))


def _spelled(draws: Floats, bits: int) -> npt.NDArray[np.uint8]:
    """The nonces in signs of noise (n, values): bit i in the first of i, i + bits, … not 0."""
    out = np.zeros((len(draws), bits), dtype=np.bool_)
    free = np.ones(out.shape, dtype=bool)
    for at in range(0, draws.shape[1], bits):
        part = draws[:, at : at + bits]
        here = free[:, : part.shape[1]] & (np.abs(part) >= 0.5)
        out[:, : part.shape[1]][here] = part[here] < 0
        free[:, : part.shape[1]] &= ~here
    return np.packbits(out, axis=1, bitorder="little")


def _excess(sight: Sight) -> Floats:
    """What each child's table has too much, in possible cells (n, free)."""
    assert sight.table is not None  # noqa: S101
    return np.asarray((sight.table - sight.known)[:, ~sight.zeros], dtype=np.float64)


def _shift(sight: Sight, row: int, noise: Floats) -> Floats:
    """What least squares made of a child's noise less what its table has too much (free,)."""
    a = sight.matrix[~sight.zeros]
    return np.asarray(np.linalg.solve(a @ a.T, a @ noise) - _excess(sight)[row])


def _posterior(sight: Sight, row: int, shift: Floats | None) -> tuple[Floats, Floats]:
    """Mean (free,) of a child's noise in possible cells given its table, a root of the variance.

    Where nothing is cut off at 0, a child's table has too much by z·M less the shift that all
    siblings share, with z its noise, M = Aᵀ(AAᵀ)⁻¹; rounding is on top. Where the shift is not
    known, it is that of the parent less the siblings' mean noise.
    """
    a, n = sight.matrix[~sight.zeros], len(sight.known)
    y = _excess(sight)[row]
    if shift is None:
        assert sight.parent is not None  # noqa: S101
        y = y - (sight.parent - sight.known.sum(0))[~sight.zeros] / n
    else:
        y = y + shift
    inverse = np.linalg.inv(a @ a.T)
    blur = _TABLE if shift is None else 2 * _TABLE
    gain = np.linalg.solve(sight.scale**2 * inverse + blur * np.eye(len(a)), inverse @ a)
    cells = np.flatnonzero(~sight.zeros)
    variance = sight.scale**2 * np.eye(sight.matrix.shape[1])
    variance -= sight.scale**4 * (inverse @ a).T @ gain
    if shift is None:
        variance += sight.scale**2 / n * np.eye(len(variance))
    values, vectors = np.linalg.eigh(variance[np.ix_(cells, cells)])
    mean = sight.scale**2 * (y @ gain)[cells]
    return mean, vectors * np.sqrt(np.maximum(values, 0.0))
