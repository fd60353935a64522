"""The owner of noise that carries its own seed reads the noise, and with it the query.

Threat model: the attacker knows the source's key, law, scale and code, and sees releases. Of the
query it knows one of these:

- *Nothing, but that it is of whole numbers* (``code=fraction``, a real-valued law): the fractional
  parts of a release are those of its noise. One release yields the nonce, the noise, and by
  subtraction the whole query: :meth:`SeedReader.read`.
- *The candidates* (any code): :meth:`SeedReader.score`. The right one leaves exactly the row that
  its own first values announce.
- *All but some values* (``code=signs``, or ``fraction`` for whole numbers):
  :meth:`SeedReader.reconstruct_counts`. Values that are not known, and what independent noise on
  top flips, are corrected by trying the likeliest errors.
- *Only a bound on its norm*, small compared with the noise's, as a clipped gradient has
  (``code=signs``): :meth:`SeedReader.unknown`.

Ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit.noise.pancake_likelihood import check_candidates, check_rows
from dpaudit.noise.seed_in_noise.codes import likeliest
from dpaudit.noise.seed_in_noise.key import SeedHolder
from dpaudit.noise.seed_in_noise.source import Rows
from dpaudit.numeric.arrays import double, library, tensor, to_numpy
from dpaudit.protocols import Array
from dpaudit_attacks.keyed_distinguisher import residuals

__all__ = ["CountsRead", "Reading", "SeedReader", "rounding"]

_CHECKED = 1024  # values that tell a right seed from a wrong one
_LEAST = 4
_DEVIATIONS = 8.0
_SPREAD = 3.0  # standard deviations by which a release's length may mislead
_HOPELESS = 1e-3  # chance that a nonce is among those tried

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Reading:
    """What one release each gave: ``values`` (t, d), NaN where not ``found`` (t,)."""

    values: Floats
    found: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class CountsRead:
    """The unknown ``counts`` (m,) int64, and whether to trust them."""

    counts: npt.NDArray[np.int64]
    trusted: bool


@dataclass(kw_only=True, eq=False, repr=False)
class SeedReader(SeedHolder):
    """Finds the nonce in a release, and regenerates its noise.

    Formal guarantee: a wrong nonce passes for the right one with a probability below 2^-30 per
    release where at least 64 values carry no nonce (eight standard deviations of a correlation, or
    agreement of at least four values to eight standard deviations of rounding). Not claimed:
    anything about rows too short for a nonce, or about noise that a mitigation has mixed.

    Raises:
        UsageError: options that the source would refuse, blur negative or not finite, tries below
            1.
        KeyFileError: not a key file.
    """

    games = ("scoring", "reconstruction")
    holds = "the seed-in-noise key"

    law: str = "gaussian"
    """With ``sigma``, ``scale``, ``code`` and ``nonce_bits``: the options of the source."""
    sigma: float | None = None
    scale: float | None = None
    code: str | None = None
    blur: float = 0.0
    """Standard deviation of what lies on top of query and noise, or of an unknown query.

    Rounding to the release's type is allowed for anyway.
    """
    tries: int = 1 << 14
    """Nonces that are tried per release.

    None is where the right one is among them in less than one case in 1,000.
    """

    def __post_init__(self) -> None:
        if isinstance(self.blur, (bool, str)) or not 0 <= self.blur < np.inf:
            raise UsageError(f"blur={self.blur}: must be a finite number ≥ 0, e.g. 0.1")
        if isinstance(self.tries, bool) or not isinstance(self.tries, int) or self.tries < 1:
            raise UsageError(f"tries={self.tries}: must be a whole number ≥ 1")
        super().__post_init__()
        self._seeds = self.seeds_of(self.secret_key())
        self._rows = Rows.of(
            self.law, self.code, sigma=self.sigma, scale=self.scale, size=self._seeds.size
        )

    @property
    def carriers(self) -> int:
        """How many of a row's first values carry the nonce."""
        return self._rows.code.symbols

    def read(self, releases: Array) -> Reading:
        """The whole query of each release (t, d), if it is of whole numbers: nothing else is known.

        Raises:
            UsageError: not two axes, values that are not finite, a code other than fraction.
        """
        if self._rows.code.name != "fraction":
            raise UsageError(
                f"code={self._rows.code.name}: only code=fraction is read without knowing anything "
                "of the query; give candidates, or the counts that are known"
            )
        check_rows("releases", releases, dim=releases.shape[-1], axes=2)
        values, slack = to_numpy(double(releases)), rounding(releases)
        noise = self._read_noise(values, slack, whole=True)
        return Reading(np.rint(values - noise.values), noise.found)

    def noise(self, residuals: Array) -> Reading:
        """The noise in each row (t, d) of releases less what is known of the query.

        NaN where nothing is known. What is left of the query must be of scale ``blur`` or rarer.

        Raises:
            UsageError: not two axes, or an infinite value.
        """
        values = to_numpy(double(residuals))
        if values.ndim != 2 or np.isinf(values).any():
            raise UsageError(f"residuals of shape {values.shape}: needs (t, d), finite or NaN")
        return self._read_noise(values, rounding(residuals), whole=False)

    def unknown(self, releases: Array, *, norm: float) -> Reading:
        """The whole query of each release (t, d), of which only a bound on its norm is known.

        How much of a release is query is estimated from its length: |release|² is |query|² + dσ²
        up to about σ²√(2d). The query is taken to be spread over all coordinates as normal values
        are; where it is not, fewer releases are read, and none wrongly.

        Raises:
            UsageError: not two axes, values that are not finite, or norm not above 0.
        """
        check_rows("releases", releases, dim=releases.shape[-1], axes=2)
        if isinstance(norm, (bool, str)) or not 0 < norm < np.inf:
            raise UsageError(f"norm={norm}: must be a finite number > 0, e.g. the clipping norm")
        values, d = to_numpy(double(releases)), releases.shape[-1]
        noise = self._rows.law.claim.standard_deviation**2
        sizes = np.square(values).mean(1) - noise * (1 - _SPREAD * np.sqrt(2 / d))
        blurs = np.sqrt(np.clip(sizes, 0.0, norm**2 / d))
        slack = rounding(releases)
        readings = [
            self._read_noise(row[None], float(np.hypot(slack, blur)), whole=False)
            for row, blur in zip(values, blurs, strict=True)
        ]
        success = np.array([one.found[0] for one in readings], dtype=bool)
        return Reading(values - np.concatenate([one.values for one in readings]), success)

    def score(self, releases: Array, candidates: Array) -> Array:
        """Minus the squared distance from release less candidate to the noise it announces.

        Shape (t, m), float64; 0 for the right candidate but for rounding. Where no noise is
        announced, the distance to 0. With independent normal noise of scale τ on top, and the nonce
        decoded (``blur=τ``), that is the log-likelihood times 2τ²: what is left is the protection
        of τ alone.

        Raises:
            UsageError: shapes that do not fit, or values that are not finite.
        """
        many = to_numpy(check_candidates(releases, candidates, dim=releases.shape[-1]))
        values, slack = to_numpy(double(releases)), rounding(releases)
        scores = np.empty((len(values), many.shape[1]))
        for j in range(many.shape[1]):
            rest = values - many[:, j].astype(np.float64)
            away = rest - np.nan_to_num(self._read_noise(rest, slack, whole=False).values)
            scores[:, j] = -np.square(away).sum(1)
        return scores if library(releases) is np else tensor(scores).to(releases.device)

    def evidence(self, releases: Array, candidates: Array, truth: Array) -> Mapping[str, Any]:
        """How many releases, less the true candidate, are noise that the key announces.

        Raises:
            UsageError: as for :meth:`score`.
        """
        rest = residuals(releases, candidates, truth, dim=releases.shape[-1])
        success = self._read_noise(rest, rounding(releases), whole=False).found
        return {
            "seeds": {
                "releases": len(success),
                "found": int(success.sum()),
                "what": "releases whose noise follows from its first values",
            }
        }

    def reconstruct_counts(
        self,
        releases: Array,
        known: Array,
        unknown_index: Array,
        *,
        bound: int,
        lowest: int | Array = 0,
    ) -> CountsRead:
        """The counts ``q[unknown_index]`` of one integer query q, from the first readable release.

        ``known`` (d,) holds the others. Counts are one of ``bound`` whole numbers from ``lowest``
        on; others are not trusted.

        Raises:
            UsageError: shapes that do not fit, values that are not finite, or indices out of range.
        """
        check_rows("releases", releases, dim=releases.shape[-1], axes=2)
        check_rows("known", known, dim=releases.shape[-1], axes=1)
        index = np.asarray(to_numpy(unknown_index))
        if index.ndim != 1 or index.dtype.kind not in "iu" or not len(index):
            raise UsageError(f"unknown_index of shape {index.shape}: give a list of bin numbers")
        if index.min() < 0 or index.max() >= len(known):
            raise UsageError(f"unknown_index: must be numbers from 0 to {len(known) - 1}")
        whole = self._rows.code.name == "fraction"
        base = to_numpy(known).astype(np.float64).copy()
        base[index] = 0.0 if whole else np.nan
        values = to_numpy(double(releases))
        low = np.asarray(lowest if isinstance(lowest, int) else to_numpy(lowest))
        for row in values:
            noise = self._read_noise((row - base)[None], rounding(releases), whole=whole)
            if noise.found[0]:
                counts = np.rint(row - noise.values[0])[index].astype(np.int64)
                return CountsRead(counts, bool(((counts >= low) & (counts < low + bound)).all()))
        return CountsRead(np.broadcast_to(low, index.shape).astype(np.int64), trusted=False)

    def _read_noise(self, rows: Floats, slack: float, *, whole: bool) -> Reading:
        out, success = np.full(rows.shape, np.nan), np.zeros(len(rows), dtype=bool)
        blur = float(np.hypot(self.blur, slack))
        for i, row in enumerate(rows):
            symbols = self._rows.code.read(row, blur=blur)
            if len(symbols.best) < self._rows.code.symbols:
                continue
            if self.tries * np.exp(symbols.sure.sum()) < _HOPELESS:
                continue
            for nonce in likeliest(self._rows.code, symbols, tries=self.tries):
                seed = self._seeds.seed(nonce)
                some = min(len(row), self._rows.code.symbols + _CHECKED)
                row_of_seed = self._rows.draw([nonce], [seed], some)[0]
                if self._fits(row[:some], row_of_seed, blur, whole=whole):
                    out[i] = self._rows.draw([nonce], [seed], len(row))[0]
                    success[i] = True
                    break
        return Reading(out, success)

    def _fits(self, row: Floats, noise: Floats, blur: float, *, whole: bool) -> bool:
        rest = slice(self._rows.code.symbols, None)
        row, noise = row[rest], noise[rest]
        noise, row = noise[np.isfinite(row)], row[np.isfinite(row)]
        if len(row) < _LEAST:
            return False
        away = row - noise
        if whole:
            away -= np.rint(away)
        if np.abs(away).max() <= _DEVIATIONS * blur <= 0.1 * min(float(np.std(noise)), 1.0):
            return True
        if whole:
            return bool(np.cos(2 * np.pi * away).mean() > _DEVIATIONS / np.sqrt(2 * len(row)))
        size = float(np.linalg.norm(row) * np.linalg.norm(noise))
        return bool(row @ noise > _DEVIATIONS / np.sqrt(len(row)) * size)


def rounding(releases: Array) -> float:
    """Standard deviation, generously, of what rounding to the release's type moved."""
    values = double(releases)
    eps = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
    unit = eps[str(releases.dtype).removeprefix("torch.")]
    largest = np.nanmax(np.abs(to_numpy(values)), initial=1e-300)
    return float(unit * largest)
