"""What audits find of short nonces in noise that carries its own seed."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from result_tables.reading import line, results

_RELEASES = (16, 256, 4_096, 65_536, 1 << 20)


def short() -> Iterator[str]:
    """Percent of trials found after so many releases, by `evidence.nonce_birthday`."""
    found_after = results("seed-in-noise", "birthday.json")["found_after"]
    for bits, numbers in found_after.items():
        own, pairs = np.array(numbers), 2.0 ** (int(bits) + 1)
        chances = [-math.expm1(-n * (n - 1) / pairs) for n in _RELEASES]
        expected = [f"{100 * chance:.0f}" if chance > 0.005 else "< 1" for chance in chances]
        yield line(
            [
                f"{bits} bits",
                len(own),
                *(
                    f"{100 * (own <= n).mean():.0f} ({says})"
                    for n, says in zip(_RELEASES, expected, strict=True)
                ),
                f"{np.median(own):,.0f}",
                f"{math.sqrt(2 * math.log(2)) * 2 ** (int(bits) / 2):,.0f}",
            ]
        )
