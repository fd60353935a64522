"""The Gaussian pancake paper, cell by cell: ours compared with the authors' logs and tables."""

from __future__ import annotations

import csv
import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from statistics import fmean
from typing import Any

from evidence.code import ROOT

from result_tables.reading import interval, line, results, rows

__all__ = ["difference", "differs", "gradients", "in_print", "published", "runs"]

STUDIES = ROOT / "studies" / "dpaudit_studies"
Z = 1.959964  # 95 %, two-sided
Row = Mapping[str, Any]
Difference = tuple[float, float, float]


@cache
def _spec(name: str) -> Row:
    found = (STUDIES / "specs" / f"{name}.toml").read_text(encoding="utf-8")
    return tomllib.loads(found)


@cache
def _log(name: str) -> Sequence[Mapping[str, str]]:
    with (STUDIES / "published" / f"{name}.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _wilson(share: float, n: int) -> tuple[float, float]:
    middle = share + Z * Z / (2 * n)
    width = Z * math.sqrt(share * (1 - share) / n + (Z / 2 / n) ** 2)
    return (middle - width) / (1 + Z * Z / n), (middle + width) / (1 + Z * Z / n)


def difference(ours: float, n: int, theirs: float, m: int) -> Difference:
    """Share ours of n minus share theirs of m, with Newcombe's 95 % interval (1998, method 10)."""
    (low, high), (other_low, other_high) = _wilson(ours, n), _wilson(theirs, m)
    d = ours - theirs
    below = math.hypot(ours - low, other_high - theirs)
    return d, d - below, d + math.hypot(high - ours, theirs - other_low)


def _signed(text: str) -> str:
    return text.replace("-", "−")


def _points(d: Difference) -> str:
    return _signed("{:+.1f} [{:+.1f}, {:+.1f}]".format(*(100 * x for x in d)))


def _compared(name: str, weights: str | None = None) -> list[tuple[Row, Difference]]:
    """The cells of a run, each with its difference from the published share."""
    rounds = _spec(name)["published"]["trials"]
    return [
        (row, difference(row["success"]["value"], row["trials"], row["published"], rounds))
        for row in rows(name)
        if weights is None or row["weights"] == weights
    ]


def _shares(label: str, name: str, weights: str | None = None) -> str:
    cells, asked = _compared(name, weights), _spec(name)["published"]
    agree = sum(row["agrees"] for row, _ in cells)
    inside = sum(low <= 0 <= high for _, (_, low, high) in cells)
    return line(
        [
            label,
            f"{cells[0][0]['trials']:,} / {asked['trials']:,}",
            f"{agree} of {len(cells)} (Fisher, {asked.get('level', 0.001):g})",
            f"{inside} of {len(cells)}",
            _signed(f"{100 * fmean(d for _, (d, _, _) in cells):+.2f}"),
            _points(max((d for _, d in cells), key=lambda d: abs(d[0]))),
        ]
    )


def published() -> Iterator[str]:
    """How many cells of a figure or table agree, and the largest difference."""
    yield _shares("Figure 5", "gpm-fig5")
    for weights in ("untrained", "trained"):
        yield _shares(f"Figure 6, {weights}", "gpm-fig6", weights)
    cells = rows("gpm-table4")
    inside = sum(r["pancake"]["low"] <= r["expected"] <= r["pancake"]["high"] for r in cells)
    most = max(cells, key=lambda r: abs(float(r["off"])))
    bounds = (100 * (most["pancake"][end] / most["expected"] - 1) for end in ("low", "high"))
    yield line(
        [
            "Table 4 (% of σ√d)",
            f"{cells[0]['trials']} / not stated",
            f"{sum(r['agrees'] and r['agrees_printed'] for r in cells)} of {len(cells)} (1 %)",
            f"{inside} of {len(cells)}",
            _signed(f"{fmean(r['off'] for r in cells):+.2f}"),
            _signed("{:+.1f} [{:+.1f}, {:+.1f}]".format(most["off"], *bounds)),
        ]
    )


def differs() -> Iterator[str]:
    """The cells that Fisher's test tells apart."""
    for row, d in (cell for name in ("gpm-fig5", "gpm-fig6") for cell in _compared(name)):
        if not row["agrees"]:
            where = f"Figure 6, {row['weights']}, clip {row['clip']:g}"
            noise = f"{row['gamma_as'].replace('sqrt', '√')}, 2^{math.log2(row['beta']):.0f}"
            theirs = f"{100 * row['published']:.0f} %"
            yield line(
                [where, noise, f"{row['epsilon']:g}", interval(row["success"]), theirs, _points(d)]
            )


def _three_digits(value: str | float | None) -> str:
    x = math.nan if value is None else float(value)
    return "–" if math.isnan(x) else f"{x:,.0f}" if x >= 1000 else f"{x:.3g}"


def gradients() -> Iterator[str]:
    """Table 3: medians of a batch's gradient and of its change by one record."""
    printed = {(r["model"], r["pretrained"]): r for r in _log("printed-table3")}
    for row in rows("gpm-table3"):
        paper = printed.get((row["published_as"], str(row["converged"])), {})
        cells = (
            " / ".join(
                _three_digits(value)
                for value in (
                    row[f"{ours}_median"],
                    row[f"published_{ours}_median"],
                    paper.get(ours),
                )
            )
            for ours in ("l2", "l2_diff")
        )
        ratio = "not trained here" if row["ratio"] is None else f"{row['ratio']:.2f}"
        yield line([f"{row['model']}, {row['weights']}", row["trials"] or "–", *cells, ratio])


def in_print() -> Iterator[str]:
    """Where the paper's print, its logs and a computation say different things."""
    for row in _log("printed-table4"):
        (logged,) = (
            r for r in _log("l2") if (r["dim"], float(r["eps"])) == (row["dim"], float(row["eps"]))
        )
        for key, what in (("expect", "expectation σ√d"), ("gm", "Gaussian"), ("gpm", "pancake")):
            if abs(float(row[key]) - float(logged[key])) > 0.1:
                where = f"Table 4, {what}, d = {int(row['dim']):,}, ε = {float(row['eps']):g}"
                yield line([where, row[key], f"log: {float(logged[key]):.1f}"])
    (row,) = (
        r for r in rows("gpm-table3") if (r["model"], r["weights"]) == ("resnet50", "untrained")
    )
    (paper,) = (
        r
        for r in _log("printed-table3")
        if (r["model"], r["pretrained"]) == (row["published_as"], "False")
    )
    means, medians = (
        f"{row[f'published_l2_{of}']:.0f} and {row[f'published_l2_diff_{of}']:.0f}"
        for of in ("mean", "median")
    )
    shown = f"{paper['l2']} and {paper['l2_diff']}"
    yield line(["Table 3, ResNet-50, untrained", shown, f"log: means {means}, medians {medians}"])
    yield _table2()
    ratios = sorted({row["published"] for row in rows("gpm-fig7") if row["published"]})
    least, most = ratios[0], ratios[-1]
    yield line(["Section 7.2, sampling time", "3x to 5x", f"CPU log: {least:.2f} to {most:.2f} ×"])
    thousandths = any(len(r["success_rate"]) > 4 for r in _log("hist-da"))
    assert thousandths  # shares of 100 rounds have two decimals
    yield line(["Section 7, rounds per cell", "100", "log of Figure 5: shares of 1,000"])
    yield _epsilon()


def _table2() -> str:
    keys = ("model", "converged", "clip_norm", "beta", "eps_comp")
    shown = {
        tuple(r[key] for key in keys): float(r["success_rate"]) for r in _log("printed-table2")
    }
    gaps = [
        shown[tuple(r[key] for key in keys)] - float(r["success_rate"]) for r in _log("cifar10-da")
    ]
    off = [gap for gap in gaps if abs(gap) > 1e-9]
    more = sum(gap > 0 for gap in off)
    result = f"{len(off)} differ from the log, by up to {100 * max(map(abs, off)):.0f} points"
    return line(
        ["Table 2, untrained", f"{len(gaps)} cells", f"{result}; {more} are higher in print"]
    )


def _epsilon() -> str:
    """The logs' lower bound takes Theorem 4.2 at fraction 1/4, which not every query reaches."""
    logged = {
        (int(r["num_bins"]), *(f"{float(r[key]):.6g}" for key in ("beta", "gamma", "eps_comp"))): r
        for r in _log("hist-da")
    }
    ratios = []
    for row in rows("gpm-fig5"):
        key = (row["d"], *(f"{row[name]:.6g}" for name in ("beta", "gamma", "epsilon")))
        ratio = float(logged[key]["eps_actual"]) / row["epsilon_key_holder"]["high"]
        ratios.append((ratio, row["gamma_as"], row["epsilon"]))
    above = [cell for cell in ratios if cell[0] > 1]
    assert all(gamma == "2sqrtd" and epsilon <= 0.25 for _, gamma, epsilon in above)
    result = f"exact ε lower in {len(above)} of {len(ratios)} cells, by up to {max(above)[0]:.1f} ×"
    return line(["Logs, `eps_actual` (γ = 2√d, ε ≤ 0.25)", "Theorem 4.2 at fraction 1/4", result])


def runs() -> Iterator[str]:
    """One row per command, with its minutes of wall time, seed and processor."""
    for name, what, result in (
        _fig5(),
        _fig6(),
        _table2_small(),
        _table3(),
        _fig4(),
        _table4(),
        _fig7(),
        _lr_gain(),
        _which_bin(),
        _precision(),
        _reconstruction(),
    ):
        where = results(name)["provenance"]
        on = "Xeon" if "Xeon" in where["hardware"] else where["hardware"].partition(",")[0]
        seed = f"{where['seed']}, {on.removeprefix('AMD ')}"
        yield line([f"`{name}`", what, f"{_spec(name)['minutes']:g}", seed, result])


_Line = tuple[str, str, str]


def _cells(name: str) -> str:
    found = rows(name)
    return f"{len(found)} cells × {found[0]['trials']:,} rounds"


def _outwards(share: Mapping[str, float]) -> str:
    return (
        f"[{math.floor(1000 * share['low']) / 10:.1f}, {math.ceil(1000 * share['high']) / 10:.1f}]"
    )


def _fig5() -> _Line:
    """The result stands in the table of shares, as that of Figure 6."""
    what = f"Figure 5, key holder's success on histograms, {_cells('gpm-fig5')}"
    return "gpm-fig5", what, "above"


def _fig6() -> _Line:
    found = rows("gpm-fig6")
    accuracy = interval(next(row["accuracy"] for row in found if row["accuracy"]), digits=2)
    least = min(
        row["success"]["value"]
        for row in found
        if row["weights"] == "untrained" and row["beta"] <= 2**-14
    )
    what = f"Figure 6, DP-SGD, MNIST, LeNet-5 untrained and trained ({accuracy})"
    result = f"above; untrained at β ≤ 2⁻¹⁴ at least {100 * least:.1f} %"
    return "gpm-fig6", f"{what}, {_cells('gpm-fig6')}", result


def _table2_small() -> _Line:
    small = [row for row in rows("gpm-table2-small") if row["beta"] <= 1e-4]
    untrained = min(row["success"]["value"] for row in small if row["weights"] == "untrained")
    record = min(row["success"]["value"] for row in small if row["norm"] == "record")
    frozen = [
        row["success"]["value"]
        for row in small
        if row["norm"] == "frozen" and row["weights"] == "trained"
    ]
    what = f"Table 2's setting, CIFAR-10, ResNet-20 and ResNet-56, {_cells('gpm-table2-small')}"
    result = (
        f"β ≤ 1e-4: at least {100 * untrained:.1f} % untrained, at least {100 * record:.1f} % "
        "where BatchNorm sees one record at a time (as in the paper), trained or not; a trained "
        "network with frozen statistics, which Opacus accepts, has fitted its records: "
        f"{100 * min(frozen):.1f} to {100 * max(frozen):.1f} %"
    )
    return "gpm-table2-small", what, result


def _table3() -> _Line:
    what = "Table 3, size of a batch's gradient and of its change by one record"
    return "gpm-table3", what, "above"


def _fig4() -> _Line:
    found = rows("gpm-fig4")
    between = sum(row["lower"] <= row["exact"]["value"] <= row["upper"] for row in found)
    every = f"all {len(found)}" if between == len(found) else f"{between} of {len(found)}"
    what = "Figure 4, ε towards the key holder: both bounds, the exact profile between them"
    return "gpm-fig4", what, f"exact between the bounds in {every} cells"


def _table4() -> _Line:
    return "gpm-table4", "Table 4, L2 error", "above"


def _fig7() -> _Line:
    ratios = [row["ratio"]["value"] for row in rows("gpm-fig7")]
    sizes = sorted({row["d"] for row in rows("gpm-fig7")})
    result = (
        f"pancake {min(ratios):.2f} to {max(ratios):.2f} × the Gaussian's (medians by d and type)"
    )
    return "gpm-fig7", f"Figure 7, sampling time on a CPU, d = {sizes[0]} to {sizes[-1]:,}", result


def _lr_gain() -> _Line:
    found = rows("gpm-lr-gain")
    better, worse = (
        sum(s * row["difference"][end] > 0 for row in found)
        for s, end in ((1, "low"), (-1, "high"))
    )
    most = max(found, key=lambda row: float(row["difference"]["value"]))
    return (
        "gpm-lr-gain",
        f"likelihood ratio against nearest peak, paired, {len(found)} cells",
        f"better in {better} cells, worse in {worse or 'none'} (95 %, paired); up to "
        f"{100 * most['difference']['value']:.0f} points (ε = {most['epsilon']:g}, β = "
        f"{most['beta']:g})",
    )


def _which_bin() -> _Line:
    setting = {"d": 256, "beta": 1e-5, "releases": 1, "epsilon": 0.25, "gamma_as": "2sqrtd"}
    s = next(row["success"] for row in rows("gpm-which-bin") if setting.items() <= row.items())
    how = f"{100 * s['value']:.3g} % {_outwards(s)}"
    result = f"d = 256, β = 1e-5: {how} at first guess from one release (ε = 0.25, γ = 2√d)"
    return "gpm-which-bin", "which of d bins lost a record", result


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
    return "gpm-precision", "what rounding the release leaves of the leak", result


def _reconstruction() -> _Line:
    setting = {"directions": 8, "beta": 1e-6, "unknown": 16}
    row = next(row for row in rows("gpm-reconstruction") if setting.items() <= row.items())
    rounds = f"{round(row['success']['value'] * row['trials'])} of {row['trials']} rounds"
    # "then it says so"
    assert all(not other["wrongly_trusted"] for other in rows("gpm-reconstruction"))
    result = f"8 directions, β = 1e-6: all 16 of 16 unknown counts in {rounds}"
    what = "unknown counts read out of one release"
    return (
        "gpm-reconstruction",
        what,
        f"{result}; nothing beyond the phases' bits, and then it says so",
    )
