"""Count Median Sketch of macOS 10.12: biased coins, the hashed bit flipped."""

from __future__ import annotations

from dpaudit_local.coins import LARGEST_EPSILON
from dpaudit_local.count_mean_sketch import CountMeanSketch
from dpaudit_local.hashing import HashFamily
from dpaudit_local.inputs import privacy_number

__all__ = ["CountMedianSketch"]


class CountMedianSketch(CountMeanSketch):
    """The device's side of ``CountMedianSketch``, from its ``PrivacyParameter`` p.

    Coins have bias 1/(1 + e^p), and one of them is flipped.

    What is documented (Tang et al. 2017, arXiv 1709.02753, Figures 16, 17 and 20):
    ``_DPBiasedCoin`` has bias 1/(e^PrivacyParameter + 1), 0.1192 at 2; all m bits are such coins;
    the bit at the hashed position is turned over. That the hash function is uniform is our reading.
    It is the law of :class:`CountMeanSketch` at ε = 2p, and we draw it there.

    Formal guarantee: :attr:`epsilon` = 2·PrivacyParameter is the exact ε of one vector, *twice what
    the parameter says*: the vectors of two objects with different positions differ in two bits,
    either of which changes a vector's probability by up to (1 − q)/q = e^p, so that some vector is
    e^(2p) times as likely under one object as under the other.

    The ``epsilon`` of Apple's reports does not count that: Figure 12 has ten vectors of 256 bits
    under ``"epsilon": 2`` with 303 bits set, which is a bias of 0.118 (0.1192 is 1/(1 + e²); an ε
    of 2 would need 0.269), and so ε = 4. The ``"epsilon": 4`` of Figure 11's records may be read as
    2p of one vector, or as p for each of a record's *two* vectors (a word, and a fragment of it);
    Figure 12 has the same p and one vector, and supports the latter.

    Not claimed: as for :class:`CountMeanSketch`; and ε of one vector, a record of two has twice
    that.

    >>> sketch = CountMedianSketch(2.0, m=256, functions=16)
    >>> sketch.epsilon, round(sketch.flip, 4)
    (4.0, 0.1192)
    """

    def __init__(
        self,
        privacy_parameter: float = 2.0,
        *,
        m: int | None = None,
        functions: int | None = None,
        hashes: HashFamily | None = None,
        seed: int = 0,
    ) -> None:
        """``functions`` (285) hash functions to ``m`` (32,768) positions, or your own ``hashes``.

        The defaults are those of Figure 6.

        Raises:
            UsageError: the parameter not above 0 or beyond 32; else as for
                :class:`CountMeanSketch`.
        """
        self.privacy_parameter = privacy_number(
            "privacy_parameter", privacy_parameter, LARGEST_EPSILON
        )
        if hashes is None:
            m, functions = 32768 if m is None else m, 285 if functions is None else functions
        super().__init__(
            2 * self.privacy_parameter, m=m, functions=functions, hashes=hashes, seed=seed
        )
