"""How much of ε the audit of one run shows, by `evidence.one_run_bounds`."""

from __future__ import annotations

from collections.abc import Iterator

import scipy

from result_tables.reading import line, results, rows


def shown() -> Iterator[str]:
    for row in rows("one-run"):
        numbers = (row[name] for name in ("true", "best", "ours"))
        yield line(
            [
                f"{row['mu']:g}, {row['canaries']:,}",
                *(f"{x:.2f}" for x in numbers),
                f"{row['ratio']:.3f} ± {row['ratio_error']:.3f}",
                *(f"{row[name]:.2f}" for name in ("independent", "gaussian", "normal_fit")),
            ]
        )


def errors() -> Iterator[str]:
    for row in results("one-run")["errors"]:
        above, times = row["above"], row["times"]
        low, high = scipy.stats.binomtest(above["ours"], times).proportion_ci()
        others = ("gaussian", "normal_fit") if row["delta"] == 0 else ()
        yield line(
            [
                f"{row['epsilon']:g}, {row['delta']:g}",
                f"{above['ours']} of {times:,} [{100 * low:.1f}, {100 * high:.1f}] %",
                *(f"{above[name]} of 100" for name in others),
                *[""] * (2 - len(others)),
            ]
        )
