"""Was this record in the training set? From every noisy sum of a DP-SGD run.

With the pancake's key or without.

Threat model. The attacker sees the noisy sum of clipped gradients at each step, so it knows the
weights throughout; it knows σ, the clipping norm, the rate q at which Poisson sampling takes a
record into a batch, all other records and which of them are in each batch, and so the sum x of what
it cannot account for: noise, plus the canary's gradient g if it is a member and in the batch. It
does not know when the canary would be sampled. With a key it looks at x along the secret directions
too. Who sees a :class:`~dpaudit.protocols.KnownBatch` knows the other canaries' coins as well
(*informed*); who sees x alone does not (*blind*).

The likelihoods are exact: of the step's law, p(x | member) = (1−q)·p(x) + q·p(x − g) against p(x),
with p the density of Gaussian noise or of the pancake (``pancake_likelihood``). Ours, from Neyman
and Pearson; published membership attacks on DP-SGD with the updates in view (Nasr et al. 2023,
arXiv 2302.07956) use the Gaussian's.
"""

from __future__ import annotations

import math
from pathlib import Path

import torch

from dpaudit.errors import UsageError
from dpaudit.noise.key import PancakeKey
from dpaudit.noise.pancake_likelihood import basis, check_rows, log_tilt
from dpaudit.numeric.normal import check_sigma
from dpaudit.protocols import Canaries, KnownBatch

__all__ = ["Membership"]

_FLOOR = 1e-9
"""Least probability of more canaries in a batch than are looked at: one step must not decide."""


class Membership:
    """Evidence about K canaries from one step's release.

    Add up :meth:`score` over a run's steps, then take :meth:`log_odds`. Evidence has the shape
    (laws, 2, K): log-likelihoods under each law, if canary j is no member and if it is, all over
    the Gaussian density of the same x. The last law is Gaussian noise; without a key it is the only
    one. With a key the first is its pancakes, and both are taken for equally likely of the whole
    run: who holds a key to noise that has none of its pancakes (honest, or mitigated) soon finds
    out, and is left with what a keyless attacker has, ``evidence[-1:]``.

    Formal guarantee: with *informed* evidence of one law no score orders members before others
    better (Neyman and Pearson), and sigmoid(log-odds) is the probability of membership for a fair
    coin, in exact arithmetic, if the noise follows the law, independent from step to step. Not
    claimed: either of *blind* evidence, which is valid but not the best; anything of noise that is
    neither law.
    """

    games = ("membership",)
    holds = "the pancake's key, or none"

    def __init__(
        self, *, sigma: float, rate: float, key: PancakeKey | str | Path | None = None
    ) -> None:
        """For noise of scale ``sigma`` on the sums, with ``key`` or none.

        A record is in each batch with probability ``rate``.

        Raises:
            UsageError: σ not a finite number above 0, a rate outside (0, 1], not a key file.
        """
        self.sigma = check_sigma(sigma)
        if not 0 < rate <= 1:
            raise UsageError(
                f"rate={rate}: must lie in (0, 1], "
                "the probability with which a record is in a batch"
            )
        self.rate = rate
        self.key = PancakeKey.load(key) if isinstance(key, (str, Path)) else key
        self._directions = None if self.key is None else torch.from_numpy(basis(self.key))

    def score(self, step: torch.Tensor | KnownBatch, canaries: Canaries) -> torch.Tensor:
        """One step's evidence; see :class:`~dpaudit.protocols.Canaries`.

        Raises:
            UsageError: no canary, shapes that do not fit each other or the key, or values that are
                not finite.
        """
        gradients = canaries.gradients
        check_rows("gradients", gradients, dim=self._dim(gradients), axes=2)
        if not len(gradients):
            raise UsageError("gradients of 0 canaries: needs at least one")
        if isinstance(step, KnownBatch):
            return self._informed(step, canaries)
        return self._blind(step, canaries)

    def log_odds(self, evidence: torch.Tensor) -> torch.Tensor:
        """Log-likelihood ratio of membership (K,) from evidence added over steps (laws, 2, K)."""
        both = torch.logsumexp(evidence, 0)
        return both[1] - both[0]

    def _informed(self, batch: KnownBatch, canaries: Canaries) -> torch.Tensor:
        """If every other record's place in the batch is known; O(K·d), and O(K²·d) for the gram.

        Canary j's own place is not used: x = residual + present_j·g_j, found without K sums.
        """
        present, square = batch.present, canaries.square
        own = self._check_vector("residual", batch.residual, canaries)
        if present.shape != square.shape or present.dtype != torch.bool:
            raise UsageError(f"present of shape {tuple(present.shape)}: needs one bool per canary")
        cross = canaries.wide @ own + torch.where(present, square, 0.0)  # ⟨x, g⟩
        inside = (2 * cross - square) / (2 * self.sigma**2)
        laws = [(torch.zeros_like(inside), inside)]
        if self.key is not None:
            along = self._along(canaries.wide)
            x = self._along(own) + torch.where(present.unsqueeze(1), along, 0.0)
            laws.insert(0, (self._tilt(x), inside + self._tilt(x - along)))
        return torch.stack([torch.stack([out, self._sampled(out, inside)]) for out, inside in laws])

    def _blind(self, rest: torch.Tensor, canaries: Canaries) -> torch.Tensor:
        """If no canary's coin is known: only the release and all other records.

        ``rest`` (d,) is noise, and the canaries that are in the batch. The others among them are
        averaged over, each there with probability q/2: none, any one, and, for the absence of
        canary j, any two of them. What more there may be is given the likelihood of Gaussian noise
        alone, so a step with a crowd says little rather than something false. O(K²·d).

        Formal guarantee: a function of the release and of the other records, so scores made of it
        may be audited in one run (Steinke, Nasr and Jagielski 2023, arXiv 2305.08846); scores of
        *informed* evidence depend on all coins and may not.
        """
        own = self._check_vector("rest", rest, canaries)
        one = (2 * (canaries.wide @ own) - canaries.square) / (2 * self.sigma**2)
        two = one[:, None] + one - canaries.gram / self.sigma**2
        laws = [(torch.zeros_like(one[0]), one, two)]
        if self.key is not None:
            x, along = self._along(own), self._along(canaries.wide)
            laws.insert(
                0,
                (
                    self._tilt(x),
                    one + self._tilt(x - along),
                    two + self._tilt(x - along[:, None] - along),
                ),
            )
        return torch.stack([self._average(*law) for law in laws])

    def _average(self, none: torch.Tensor, one: torch.Tensor, two: torch.Tensor) -> torch.Tensor:
        """Evidence (2, K) from log-likelihoods with no (), one (K,) and two (K, K) canaries."""
        p, others = self.rate / 2, len(one) - 1
        odds, empty = p / (1 - p), (1 - p) ** others
        beyond_one = max(_FLOOR, 1 - empty * (1 + others * odds))
        beyond_two = max(
            _FLOOR, 1 - empty * (1 + others * odds + others * (others - 1) / 2 * odds**2)
        )
        two = two.masked_fill(torch.eye(len(one), dtype=torch.bool, device=two.device), -math.inf)
        top = torch.stack([none.clamp(min=0), one.max(), two.max()]).max()
        a, b = torch.exp(one - top), torch.exp(two - top)
        pairs, crowd = b.sum(1), torch.exp(-top)
        absent = torch.exp(none - top) + odds * (a.sum() - a) + odds**2 * (pairs.sum() / 2 - pairs)
        out = torch.log(empty * absent.clamp(min=0) + beyond_two * crowd) + top
        inside = torch.log(empty * (a + odds * pairs) + beyond_one * crowd) + top
        return torch.stack([out, self._sampled(out, inside)])

    def _sampled(self, out: torch.Tensor, inside: torch.Tensor) -> torch.Tensor:
        """Log of (1−q)·e^out + q·e^inside."""
        if self.rate == 1:
            return inside
        return torch.logaddexp(math.log1p(-self.rate) + out, math.log(self.rate) + inside)

    def _along(self, rows: torch.Tensor) -> torch.Tensor:
        """Coordinates of float64 (…, d) along the key's directions (…, k); k = 0 without a key."""
        if self._directions is None:
            return rows.new_empty((*rows.shape[:-1], 0))
        return rows @ self._directions.T.to(rows.device)

    def _tilt(self, along: torch.Tensor) -> torch.Tensor:
        """Log of the pancake's over the Gaussian density (…), at coordinates (…, k)."""
        if self.key is None:
            return along.sum(-1)
        law = {"sigma": self.sigma, "beta": self.key.beta, "gamma": self.key.gamma}
        tilt: torch.Tensor = log_tilt(along, **law).sum(-1)
        return tilt

    def _dim(self, rows: torch.Tensor) -> int:
        return rows.shape[-1] if self.key is None else self.key.dim

    def _check_vector(self, name: str, vector: torch.Tensor, canaries: Canaries) -> torch.Tensor:
        check_rows(name, vector, dim=canaries.gradients.shape[1], axes=1)
        return vector.double()
