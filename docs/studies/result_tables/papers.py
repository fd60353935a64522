"""Published tables beside ours."""

from __future__ import annotations

from collections.abc import Iterator

from result_tables.reading import line, results, rows


def pools() -> Iterator[str]:
    """AUC-PN of Tables 2 and 3: ours, and the published value in brackets."""
    for name, setting in (
        ("bpia-table2", "emoji skin tones, ε = 4"),
        ("bpia-table3", "news websites, ε = 8"),
    ):
        found = rows(name)
        for adversary in dict.fromkeys(row["adversary"] for row in found):
            own = [row for row in found if row["adversary"] == adversary]
            cells = [f"{row['auc_pn']['value']:.3f} ({row['published']:g})" for row in own]
            yield line([setting, adversary, *cells])


def bpia() -> Iterator[str]:
    for name, what in {
        "bpia-table5": "Table 5: size and entropy of the pools, after 180 days",
        "bpia-table6": "Table 6: size of the universe, up to 250,000 websites",
        "bpia-table7": "Table 7: error of the curator's estimate",
        "bpia-table8": "Table 8: ε of a report from 0.01 to 8",
        "bpia-figures": "Figures 3, 4, 6, 7 and 8: curves, maps, calibration",
        "bpia-real-emoji": "the 2,780 emoji of Unicode 11.0, popularity counted on Twitter",
        "bpia-real-news": "328 news websites as AllSides rated them",
    }.items():
        found = results(name)
        values = (
            f"{len(found['rows'])} × {found['rows'][0]['trials']:,} people"
            if "users" in found["rows"][0]
            else "40 servers"
        )
        yield line(
            [
                f"`dpaudit run {name}`",
                what,
                values,
                found["provenance"]["seed"],
                found["summary"].removesuffix("."),
            ]
        )
