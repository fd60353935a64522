"""What audits find of noise that carries its own seed: full and short nonces."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from result_tables.reading import RESULTS, line

_RELEASES = (16, 256, 4_096, 65_536, 1 << 20)


def _kept(name: str) -> Any:
    return json.loads((RESULTS / "seed-in-noise" / name).read_text())


def audits() -> Iterator[str]:
    """Each specimen with 128 and with 24 bits, by `evidence.seed_in_noise_audits`."""
    by = {(row["law"], row["code"], row["nonce_bits"]): row for row in _kept("audits.json")}
    for law, code, bits in by:
        if bits == 128:
            cells = [_audit(by[law, code, length]) for length in (128, 24)]
            yield line([f"{law}, `{code}`", *cells])


def _audit(row: dict[str, Any]) -> str:
    if not row["found_by"]:
        return f"no finding; {row['p_adjusted']:.2g} (`{row['smallest']}`)"
    p = "< 1e-300" if row["p_adjusted"] < 1e-300 else f"= {row['p_adjusted']:.2g}"
    return f"{', '.join(f'`{name}`' for name in row['found_by'])}, p {p}"


def short() -> Iterator[str]:
    """Percent of trials found after so many releases, by `evidence.nonce_birthday`."""
    for bits, numbers in _kept("birthday.json")["found_after"].items():
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
