"""How far the last binary digits of two arrays differ."""

import numpy as np


def digits_apart(a, b):
    """The largest |z| of a difference in how often one of the last 4 digits is 1.

    Over all values, and by binade: sums and products leave digits unfair in some binades only.
    """
    a, b = np.ravel(a), np.ravel(b)
    found = []
    for size in (None, *range(-6, 6)):
        pair = [x if size is None else x[np.floor(np.log2(np.abs(x))) == size] for x in (a, b)]
        if min(map(len, pair)) < 1000:
            continue
        spread = np.sqrt(sum(0.25 / len(x) for x in pair))
        for digit in range(4):
            ones = [
                np.mean(x.copy().view(np.uint64) >> np.uint64(digit) & np.uint64(1)) for x in pair
            ]
            found.append(abs(ones[0] - ones[1]) / spread)
    return max(found)
