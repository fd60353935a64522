"""Published tables beside ours."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from result_tables.reading import interval, line, results, rows


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


def gpm() -> Iterator[str]:
    """One row per experiment; minutes are wall time, as it was when the page was written."""
    for name, what, minutes, result in (
        _fig5(),
        _fig6(),
        _table2(),
        _table3(),
        _fig4(),
        _table4(),
        (
            "fig7",
            "sampling time",
            0.1,
            "1.09 to 1.14 × the Gaussian's (published: 1.34 to 2.35 by d)",
        ),
        _lr_gain(),
        _which_bin(),
        _precision(),
        _reconstruction(),
    ):
        yield line([f"`dpaudit run gpm-{name}`", what, minutes, result])


_Line = tuple[str, str, float, str]


def _cells(name: str) -> str:
    found = rows(name)
    return f"{len(found)} cells × {found[0]['trials']:,} rounds"


def _agreeing(name: str) -> tuple[int, int]:
    found = [row["agrees"] for row in rows(name)]
    return sum(found), len(found)


def _outwards(share: Mapping[str, float]) -> str:
    return (
        f"[{math.floor(1000 * share['low']) / 10:.1f}, {math.ceil(1000 * share['high']) / 10:.1f}]"
    )


def _fig5() -> _Line:
    what = f"key holder's success on histograms, {_cells('gpm-fig5')}"
    agree, of = _agreeing("gpm-fig5")
    return (
        "fig5",
        what,
        4.8,
        f"{agree} of {of} cells agree with the published value "
        "(Fisher's exact test at 0.001 per cell)",
    )


def _fig6() -> _Line:
    found = rows("gpm-fig6")
    accuracy = interval(next(row["accuracy"] for row in found if row["accuracy"]), digits=2)
    agree, of = _agreeing("gpm-fig6")
    least = min(
        row["success"]["value"]
        for row in found
        if row["weights"] == "untrained" and row["beta"] <= 2**-14
    )
    return (
        "fig6",
        f"success on DP-SGD, MNIST, LeNet-5 untrained and trained ({accuracy}), "
        f"{_cells('gpm-fig6')}",
        15,
        f"{agree} of {of} cells agree with the published value (Fisher's exact test at 0.01 per "
        f"cell: {0.01 * of:.1f} misses by chance); untrained at β ≤ 2⁻¹⁴ at least "
        f"{100 * least:.1f} %",
    )


def _table2() -> _Line:
    small = [row for row in rows("gpm-table2-small") if row["beta"] <= 1e-4]
    untrained = min(row["success"]["value"] for row in small if row["weights"] == "untrained")
    record = min(row["success"]["value"] for row in small if row["norm"] == "record")
    frozen = [
        row["success"]["value"]
        for row in small
        if row["norm"] == "frozen" and row["weights"] == "trained"
    ]
    return (
        "table2-small",
        f"success on DP-SGD, CIFAR-10, ResNet-20 and ResNet-56, {_cells('gpm-table2-small')}",
        15,
        f"β ≤ 1e-4: at least {100 * untrained:.1f} % untrained, at least {100 * record:.1f} % "
        "where BatchNorm sees one record at a time (as in the paper), trained or not; a trained "
        "network with frozen statistics, which Opacus accepts, has fitted its records: "
        f"{100 * min(frozen):.1f} to {100 * max(frozen):.1f} %",
    )


def _table3() -> _Line:
    ratios = {(row["model"], row["weights"]): row["ratio"] for row in rows("gpm-table3")}
    near = [ratios[name, "untrained"] for name in ("lenet5-tanh", "mobilenet-v2", "resnet50")]
    return (
        "table3",
        "size of a batch's gradient and of its change by one record",
        6,
        f"the median change is {min(near):.2f} to {max(near):.2f} of the published one for "
        f"LeNet-5, MobileNetV2 and ResNet-50 untrained ({ratios['vgg19-bn', 'untrained']:.2f} for "
        f"VGG-19, here without dropout), {ratios['lenet5-tanh', 'trained']:.1f} times for trained "
        "LeNet-5: at equal accuracy it falls with every further epoch",
    )


def _fig4() -> _Line:
    found = rows("gpm-fig4")
    between = sum(row["lower"] <= row["exact"]["value"] <= row["upper"] for row in found)
    every = f"all {len(found)}" if between == len(found) else f"{between} of {len(found)}"
    what = "ε towards the key holder: both bounds, the exact profile between them"
    return "fig4", what, 0.1, f"exact between the bounds in {every} cells"


def _table4() -> _Line:
    agree, of = _agreeing("gpm-table4")
    return (
        "table4",
        "L2 error",
        0.1,
        f"{agree} of {of} cells within 1 % of the published expectation",
    )


def _lr_gain() -> _Line:
    found = rows("gpm-lr-gain")
    better, worse = (
        sum(s * row["difference"][end] > 0 for row in found)
        for s, end in ((1, "low"), (-1, "high"))
    )
    most = max(found, key=lambda row: float(row["difference"]["value"]))
    return (
        "lr-gain",
        f"likelihood ratio against nearest peak, paired, {len(found)} cells",
        0.3,
        f"better in {better} cells, worse in {worse or 'none'} (95 %, paired); up to "
        f"{100 * most['difference']['value']:.0f} points (ε = {most['epsilon']:g}, β = "
        f"{most['beta']:g})",
    )


def _which_bin() -> _Line:
    setting = {"d": 256, "beta": 1e-5, "releases": 1, "epsilon": 0.25, "gamma_as": "2sqrtd"}
    s = next(row["success"] for row in rows("gpm-which-bin") if setting.items() <= row.items())
    how = f"{100 * s['value']:.3g} % {_outwards(s)}"
    result = f"d = 256, β = 1e-5: {how} at first guess from one release (ε = 0.25, γ = 2√d)"
    return "which-bin", "which of d bins lost a record", 0.6, result


def _precision() -> _Line:
    by = {
        (row["dtype"], row["gamma_as"]): row["success"]
        for row in rows("gpm-precision")
        if row["beta"] == 1e-5
    }
    kept = by["float32", "2sqrtd"]
    lost = (
        by["float32", "2d"],
        *(by[dtype, gamma] for dtype in ("bfloat16", "integers") for gamma in ("2sqrtd", "2d")),
    )
    assert all(s["low"] <= 0.5 <= s["high"] for s in lost)  # what the line calls nothing
    how = f"{100 * kept['value']:.0f} % {_outwards(kept)}"
    result = f"float32 keeps {how} at γ = 2√d and nothing at 2d; bfloat16 and whole numbers nothing"
    return "precision", "what rounding the release leaves of the leak", 0.1, result


def _reconstruction() -> _Line:
    setting = {"directions": 8, "beta": 1e-6, "unknown": 16}
    row = next(row for row in rows("gpm-reconstruction") if setting.items() <= row.items())
    rounds = f"{round(row['success']['value'] * row['trials'])} of {row['trials']} rounds"
    # "then it says so"
    assert all(not other["wrongly_trusted"] for other in rows("gpm-reconstruction"))
    result = f"8 directions, β = 1e-6: all 16 of 16 unknown counts in {rounds}"
    what = "unknown counts read out of one release"
    return (
        "reconstruction",
        what,
        0.4,
        f"{result}; nothing beyond the phases' bits, and then it says so",
    )
