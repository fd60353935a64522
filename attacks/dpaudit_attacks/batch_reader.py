"""The owner of the batches' coins reads who is in the next batch of a DP-SGD run.

Threat model: the attacker holds the key of ``NextBatch``, the lab specimen in
``dpaudit.noise.seed_in_noise.next_batch``. It sees the noisy sum of each step, as a peer in
federated training does, or the weights before and after it, and knows σ, the number of records, the
rate and the sizes of the network's last layer. It knows nothing of the data, no gradient and no
candidate: the nonce is along directions in which gradients have no part, so no error is to be
corrected but that of rounding.

Ours.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit.noise.pancake_likelihood import check_rows
from dpaudit.noise.seed_in_noise.codes import likeliest
from dpaudit.noise.seed_in_noise.key import SeedHolder
from dpaudit.noise.seed_in_noise.next_batch import (
    CHECK_BYTES,
    GradientFree,
    check_of,
    head_code,
    share_of,
)
from dpaudit.numeric.arrays import double, to_numpy
from dpaudit.protocols import Array, InBatch
from dpaudit.randomness import coin_words, members
from dpaudit_attacks.seed_reader import rounding

__all__ = ["BatchReader"]

_TRIES = 256


@dataclass(kw_only=True, eq=False, repr=False)
class BatchReader(SeedHolder):
    """Who is in the batch after each noisy sum.

    Formal guarantee: a nonce that is not the specimen's passes with probability 256·2^-64 per sum;
    one that is, is read unless more than 256 combinations of bytes are as likely after rounding.
    Not claimed: anything where a mitigation turned or blurred the noise.

    Raises:
        UsageError: options that the specimen would refuse.
        KeyFileError: not a key file.
    """

    games = ("batch",)
    holds = "the seed-in-noise key"

    sigma: float
    """Of one coordinate of the sums."""
    rate: float
    """The chance of a record to be in a batch."""
    inputs: int
    """With ``classes``: the sizes of the last layer's weight."""
    classes: int = 10
    blur: float = 0.0
    """Standard deviation of errors in the sums, beyond those of rounding to their type.

    From weights before and after a step of plain SGD, a sum is their difference times divisor/rate,
    and this the rounding of the weights times the same.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self._seeds = self.seeds_of(self.secret_key())
        self._code = head_code(self._seeds.size + CHECK_BYTES, sigma=self.sigma)

    def score(self, sums: Array, hypotheses: InBatch) -> npt.NDArray[np.float64]:
        """Scores (t, records): ∞ for who is in the batch after each of ``sums`` (t, d), else −∞.

        They are 0 where no nonce is found.

        Raises:
            UsageError: not two axes, values that are not finite, a network that is too small.
        """
        scores = np.zeros((len(sums), hypotheses.records))
        for row, share in zip(scores, self.shares(sums), strict=True):
            if share is not None:
                batch = members(coin_words(share, hypotheses.records), rate=self.rate)
                row[:] = np.where(batch, np.inf, -np.inf)
        return scores

    def shares(self, sums: Array) -> list[bytes | None]:
        """The secret that makes the coins of the batch after each of ``sums`` (t, d), or None.

        Raises:
            UsageError: as for :meth:`score`.
        """
        check_rows("sums", sums, dim=sums.shape[-1], axes=2)
        where = GradientFree.of_last_layer(sums.shape[-1], inputs=self.inputs, classes=self.classes)
        values = where.out_of(to_numpy(double(sums)))
        if len(where) < self._code.symbols:
            raise UsageError(f"inputs={self.inputs}: a nonce takes {self._code.symbols}")
        # a sum over the classes, and float32's own sums before it
        slack = float(np.hypot(self.blur, 4 * np.sqrt(self.classes) * rounding(sums)))
        return [self._share(row, slack) for row in values]

    def _share(self, row: npt.NDArray[np.float64], blur: float) -> bytes | None:
        symbols = self._code.read(row, blur=blur)
        for spelled in likeliest(self._code, symbols, tries=_TRIES):
            nonce, check = spelled[:-CHECK_BYTES], spelled[-CHECK_BYTES:]
            seed = self._seeds.seed(nonce)
            if check_of(seed) == check:
                return share_of(seed)
        return None
