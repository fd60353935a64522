"""One run's releases, step by step: rows of C·X with a source's noise, then D of them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dpaudit.hosts.ftrl.factorisation import Factorisation
from dpaudit.protocols import Mitigation, NoiseSource, Stream
from dpaudit.vectors.arrays import to_numpy

__all__ = ["CorrelatedRelease"]

Matrix = npt.NDArray[np.float64]


class CorrelatedRelease:
    """Takes updates one at a time and gives noisy ones, X + D·Z, as the server's optimizer does.

    Each row of C·X is released by ``mitigation`` with noise of ``source`` as soon as its last
    update is there; everything after that is public arithmetic. So any mitigation fits, secure
    aggregation among them: each party then adds its share to a row of C·X.
    """

    def __init__(
        self,
        factorisation: Factorisation,
        source: NoiseSource,
        mitigation: Mitigation,
        *,
        dim: int,
        stream: Stream,
    ) -> None:
        self._how, self._source, self._mitigation = factorisation, source, mitigation
        self._stream = stream
        self.updates = np.zeros((factorisation.steps, dim))
        """X, shape (n, d), as far as it is known."""
        self._rows = np.zeros((len(factorisation.strategy), dim))
        self.done = 0
        """Steps done."""

    def step(self, update: Matrix) -> Matrix:
        """The next noisy update (d,) for the next ``update`` (d,)."""
        t, how = self.done, self._how
        self.updates[t] = update
        for i in np.flatnonzero(how.due == t):
            query = _times(how.strategy[i], self.updates)[None]
            stream = self._stream.child("row", int(i))
            self._rows[i] = to_numpy(self._mitigation.release(query, self._source, stream=stream))
        self.done += 1
        return _times(how.decoder[t], self._rows)


def _times(weights: Matrix, rows: Matrix) -> Matrix:
    """``weights @ rows``, over the part between the first and the last weight that is not 0."""
    used = np.flatnonzero(weights)
    part = slice(used[0], used[-1] + 1)
    return np.asarray(weights[part] @ rows[part])
