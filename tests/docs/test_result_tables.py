"""Every table of measured results in the documents is that of the committed results files."""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Iterator
from typing import Any

import pytest
import scipy.stats
from evidence.code import ROOT
from result_tables import MARKED, PAGES, TABLES, audits, written, wrong_rows
from result_tables import sequential as bets
from result_tables.audits import zoo_whole
from result_tables.defences import costs, mitigations, submissions
from result_tables.pancake import difference
from result_tables.reading import interval, results, rows

from dpaudit.accounting.hardness import FITTED, measured
from dpaudit.stats import clopper_pearson
from dpaudit_studies.evidence import peers_tables
from dpaudit_studies.evidence.hardness import fitted_to, off_by
from dpaudit_studies.real_samplers import CASES

TEXTS = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in PAGES}
MITIGATIONS = (ROOT / "mitigations" / "README.md").read_text(encoding="utf-8")
BEST = ("mst-public", "aim-rounds")  # the cases of synthetic data that measure most of ρ
UNCHECKED = {  # tables with digits that no results file gives, by the first cell of their head
    "navigation source": "the specification's laws, which tests/dpaudit_deployments/"
    "attribution/test_laws.py computes",
    "source": "what is published where",
    "samplers of": "names of packages",
    "`dpaudit deployment apple --config …`": "run by the page itself, "
    "and by tests/dpaudit_local/apple/",
    "you have": "where to start",
    "who sets the seed": "constants and file names of torch's source",
    "sampler": "three samplers of a few lines, as the table has them",
    "at 39 million coordinates, two cores of an Intel Xeon": "seconds, from make bench",
}


def test_every_kind_of_table_is_shown_somewhere() -> None:
    shown = [name for text in TEXTS.values() for _, name, _, _ in MARKED.findall(text)]
    assert sorted(shown) == sorted(TABLES)
    for text in TEXTS.values():  # no marker that the pattern missed
        assert (
            len(MARKED.findall(text))
            == text.count("<!-- end -->")
            == len(re.findall(r"<!-- [\w-]+ -->\n\|", text))
        )


@pytest.mark.parametrize("page", TEXTS)
def test_the_tables_of_a_page(page: str) -> None:
    assert wrong_rows(TEXTS[page]) == []
    assert written(TEXTS[page]) == TEXTS[page]


def test_the_interval_of_a_difference_is_newcombes() -> None:
    """Newcombe 1998, Statistics in Medicine 17, Table II, method 10."""
    for ours, theirs, low, high in (
        ((56, 70), (48, 80), 0.0524, 0.3339),
        ((9, 10), (3, 10), 0.1705, 0.8090),
    ):
        found = difference(ours[0] / ours[1], ours[1], theirs[0] / theirs[1], theirs[1])
        assert found[1:] == pytest.approx((low, high), abs=5e-5)


def marked_lines() -> Iterator[tuple[str, int]]:
    for page, text in TEXTS.items():
        for found in MARKED.finditer(text):
            at = found.start(3)
            for row in found[3].splitlines(keepends=True):
                yield from ((page, at + i.start()) for i in re.finditer(r"\d", row))
                at += len(row)


@pytest.mark.slow
def test_any_changed_digit_is_noticed() -> None:
    """Every digit of every marked table, made another one."""
    digits = list(marked_lines())
    assert len(digits) > 2500
    for page, at in digits:
        text = TEXTS[page]
        found = next(
            one for one in MARKED.finditer(text, max(0, text.rfind("<!-- ", 0, at)), len(text))
        )
        table = found[0]
        i = at - found.start()
        assert wrong_rows(f"{table[:i]}{(int(table[i]) + 1) % 10}{table[i + 1 :]}"), table[
            i - 40 : i + 10
        ]


def test_a_row_that_is_gone_doubled_or_moved_is_noticed() -> None:
    for text in TEXTS.values():
        for found in MARKED.finditer(text):
            head, _, body, end = found.groups()
            lines = body.splitlines(keepends=True)
            for other in (lines[1:], [*lines, lines[0]], lines[::-1]):
                assert wrong_rows(head + "".join(other) + end)


def test_no_table_of_numbers_goes_unchecked() -> None:
    for page, text in TEXTS.items():
        for head, body in re.findall(
            r"^(\|.*)\n\|[-|: ]+\n((?:\|.*\n)*)", MARKED.sub("", text), re.M
        ):
            first = head.strip("| ").partition(" | ")[0]
            assert first in UNCHECKED or not re.search(r"\d", body), (page, head)


def test_the_table_of_batteries_names_what_only_another_finds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    finds = {"Rabbit": {"Tcl: rand()", "C: rand"}, "audit": {"C: rand"}}
    finds["PractRand"] = {"Python: numpy.PCG64"}  # a right one
    made = [
        {
            "sampler": case.name,
            "generator": case.generator,
            "by": {k: {"found": case.name in v, "cpu_seconds": 1.0} for k, v in finds.items()},
        }
        for case in CASES.values()
    ]
    monkeypatch.setattr(audits, "rows", lambda name: made)
    *kinds, whole, right, cpu = audits.batteries()
    assert whole == f"| **all of these** | {len(CASES) - 19} | 1 | 2 | 0 | `Tcl: rand()` (Rabbit) |"
    assert right.endswith(" | 19 | 0 | 0 | 1 | `Python: numpy.PCG64` (PractRand) |")
    assert cpu == f"| CPU seconds | {len(CASES)} | 86 | 86 | 86 |  |"
    assert sum(int(row.split(" | ")[1]) for row in kinds) == len(CASES) - 19


def test_the_tables_of_mitigations() -> None:
    for lines, least in ((mitigations(), 24), (submissions(), 14)):
        rows_ = list(lines)
        assert len(rows_) >= least
        assert not [row for row in rows_ if row not in MITIGATIONS]
    assert not [words for words in costs() if words not in MITIGATIONS]


def sentences() -> Iterator[tuple[str, str]]:
    """Numbers in sentences, with the words around them, by page of `docs/studies/` or README."""
    for page, found in (
        ("blackbox", [*zoo(), *unseen(), *calibrated()]),
        ("predictable", real()),
        ("floating_point", floating_point()),
        ("keyless", keyless()),
        ("topdown", topdown()),
        ("sequential", sequential()),
    ):
        yield from ((page, words) for words in found)
    public = [row for row in rows("recipes") if row["default"].startswith("yes")]
    recipes, projects = sum(len(r["recipes"]) for r in public), {r["project"] for r in public}
    yield "public-seeds", f"{recipes} recipes of {len(projects)} projects, seeded by default"
    yield "README", zoo_whole()
    every = rows("calibrate")[-1]
    shown = f"{interval(every['share'], digits=2)} report a finding"
    yield "README", f"Of {every['audits']:,} audits of honest noise at α = 0.05, {shown}"
    yield from ((page, libraries()) for page in ("README", "floating_point"))
    tried = {row["name"]: row for row in rows("seeds")}
    whole = tried["torch on the CPU, a seed of 63 bits: all 2³²"]
    assert whole["tries"] == 2**32
    yield "seed-in-training", f"generator took {whole['seconds']:.0f} CPU seconds"
    row = tried["torch on CUDA, a seed of 26 bits"]
    cuda = row["seconds"] / row["tries"]
    yield "seed-in-training", f"{1e9 * cuda:.0f} ns per seed of CUDA's"
    yield "seed-in-training", f"all 2⁵³ in {cuda * 2**53 / (365.25 * 86_400):.0f} core-years"
    steps = rows("dpsgd-training")
    pancake = {row["attacker"]: row["right"] for row in steps if row["arm"] == "pancake"}
    yield "README", f"in {interval(pancake['key: likelihood'])} of the steps asked"
    yield "README", f"without the key {100 * pancake['no key: likelihood']['value']:.1f} %"
    cells = ([row["agrees"] for row in rows(f"gpm-{name}")] for name in ("fig5", "fig6", "table4"))
    fig5, fig6, table4 = (f"{sum(agrees)} of {len(agrees)}" for agrees in cells)
    shown = f"Figure 5 agrees in {fig5} cells, Figure 6 in {fig6}, Table 4 in {table4};"
    yield "pancake", f"{shown} in an Opacus run"
    lattice = [row["right"] for row in steps if row["attacker"] == "no key: low bits"]
    yield "pancake", f"`reach` is right in {interval(lattice[2])} and {interval(lattice[3])}"
    yield "dp-ftrl", results("dp-ftrl-audit")["summary"]
    mst, aim = ({r["name"]: r for r in rows("synthetic")}[f"dpmm-{n}"] for n in BEST)
    least = [math.floor(1000 * row["mu_total"]) / 1000 for row in (mst, aim)]
    shown = f"μ ≥ {least[0]} for MST and ≥ {least[1]} for AIM"
    yield from ((page, shown) for page in ("synthetic-data", "index"))
    published = [row["agrees"] for n in (2, 3, 5, 6, 7, 8) for row in rows(f"bpia-table{n}")]
    published += [row["agrees"] for row in rows("bpia-figures")]
    yield "index", f"{sum(published)} of {len(published)} cells agree"
    least = min(row["success"]["value"] for row in rows("dpsgd-bits"))
    yield "index", f"| {100 * least:.1f} % and more |"


def zoo() -> Iterator[str]:
    expected = (
        [row["found"] for row in rows("zoo") if row["expected"] == kind]
        for kind in ("found", "borderline", "missed")
    )
    should, borderline, out = (f"{sum(found)} of {len(found)}" for found in expected)
    yield f"{should} that should show were found, {borderline} borderline ones, {out} out of reach"
    missed = [row["specimen"] for row in rows("zoo") if not row["found"]]
    yield f"The {len(missed)} misses"
    yield from (f"`{name}`" for name in missed)


def topdown() -> Iterator[str]:
    """Errors of states' age groups at the published ε."""
    setting = {"epsilon": 17.14, "level": "state", "query": "age-group"}
    (row,) = (row for row in rows("topdown") if setting.items() <= row.items())
    for way in ("measured", "summed", "tables"):
        yield "{value:.3g} [{low:.3g}, {high:.3g}]".format(**row[way])
    attacked = {(row["noise"], row["view"], row["epsilon"]): row for row in rows("topdown-attack")}

    def at(noise: str, view: str, epsilon: float, *, key: str = "which") -> str:
        return interval(attacked[noise, view, epsilon][key], digits=0)

    honest, flawed = "honest: discrete Gaussian", "Box-Muller in float32, rounded"
    views, epsilons = ("measurements", "tables"), (17.14, 4.0, 1.0)
    large, small = ([at(honest, view, epsilon) for view in views] for epsilon in (17.14, 1.0))
    yield f"{large[0]} from measurements, {large[1]} from tables. At ε = 1: {' and '.join(small)}."
    read = [at("seed in published cells", "tables", epsilon, key="read") for epsilon in epsilons]
    yield f"{read[0]} of counties at ε = 17.14, {read[1]} at ε = 4, {read[2]} at ε = 1"
    runs = attacked[honest, "tables", 1.0]["trials"]
    right = (
        [round(runs * attacked[noise, view, epsilon][key]["value"]) for noise in (honest, flawed)]
        for view in views
        for epsilon in epsilons
        for key in ("which", "count")
    )
    tests = [scipy.stats.fisher_exact([pair, [runs - r for r in pair]]).pvalue for pair in right]
    yield f"{len(tests)} comparisons; the smallest p is {min(tests):.2f}"


INTERVALS = {  # pages on which every share outside tables is one of these results
    "topdown": ("topdown-attack",),
    "dp-ftrl": ("dp-ftrl", "dp-ftrl-attack"),
    "attribution": ("attribution",),
    "seed-in-training": ("seed-in-gradients",),
    "seed-in-reports": ("local-coins",),
    "floating_point": ("dpsgd-bits",),
}


def shares(value: Any) -> Iterator[dict[str, float]]:
    if isinstance(value, dict) and {"value", "low", "high"} <= value.keys():
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from shares(inner)


@pytest.mark.parametrize("page", INTERVALS)
def test_shares_in_sentences_are_measured(page: str) -> None:
    measured = {
        interval(s, digits=n)
        for name in INTERVALS[page]
        for s in shares(rows(name))
        for n in (0, 1)
    }
    elsewhere = {"98.2 % [98.0, 98.4]", "2.0 % [0.5, 5.0]", "97.1 % [93.9, 98.9]"}
    shown = set(re.findall(r"[\d.]+ % \[[^]]*\]", MARKED.sub("", text_of(page))))
    assert shown
    assert shown - measured - elsewhere == set()


def calibrated() -> Iterator[str]:
    *makers, every = rows("calibrate")
    shares = [100 * row["share"]["value"] for row in makers]
    value, low, high = (100 * every["share"][key] for key in ("value", "low", "high"))
    yield f"{every['audits']:,} audits of honest N(0, 1) noise from six makers"
    yield f"{every['findings']} end in a finding, {value:.2f} % ["
    yield f"[{low:.2f}, {high:.2f}] (Clopper–Pearson"
    yield f"by maker {min(shares):.1f} to {max(shares):.1f} %)"


def sequential() -> Iterator[str]:
    """Releases of half of all streams, the price of stopping, and a true claim contradicted."""
    half, published = (
        [cell.split(" / ")[0].strip() for cell in list(table())[-1].split("|")[2:5]]
        for table in (bets.until, bets.small)
    )
    yield f"are contradicted within {half[0]} releases"
    yield f"at ε = 0.1, {published[0]} releases for {published[2]}"
    streams = len(results("sequential", "until.json")["rows"][0]["ours"]["0.01"])
    yield f"{streams} streams of at most 20,000 releases"
    yield f"seeds 1 to {streams})"
    bounds = [row for row in results("sequential", "price.json")["rows"] if row["fixed"]]
    ratio = statistics.median(row["bets"] / row["fixed"] for row in bounds)
    yield f"a median ratio of bounds of {ratio:.2f}"
    printed = (ROOT / "docs/studies/results/sequential/type1.txt").read_text("utf-8")
    wrong = re.findall(r"(\d+) of 10,000: ([\d.]+)% \[([\d.]+)%, ([\d.]+)%\]", printed)
    assert len(wrong) == 3
    for count, share, low, high in wrong:
        yield f"- {count} of 10,000 "
        yield f": {share} % [{low}, {high}]"


def libraries() -> str:
    tried = {(row["library"], row["mechanism"]) for row in rows("libraries")}
    return f"{len(tried)} mechanisms of {len({library for library, _ in tried})} libraries"


WORST_FIRST = ("broken", "leaks by its time", "not broken")


def floating_point() -> Iterator[str]:
    held = [(row["repeats"] - row["exceeded"], row["repeats"]) for row in rows("controls")]
    yield f"In {sum(n for n, _ in held):,} of {sum(of for _, of in held):,}"
    yield from (f"{n} of {of}" for n, of in held if n < of)
    broken = [row["verdict"] in ("broken", "leaks by its time") for row in rows("floating-point")]
    yield f"{sum(broken)} of {len(broken)} rows succeed"
    tried: dict[tuple[str, str], set[str]] = {}
    for row in rows("libraries"):
        tried.setdefault((row["library"], row["mechanism"]), set()).add(row["verdict"])
    worst = [min(said, key=WORST_FIRST.index) for said in tried.values()]
    yield f"{worst.count('broken')} are broken and {worst.count('leaks by its time')} leaks by its"
    case = "numpy:laplace laplace-support:sampler=numpy"
    (laplace,) = (row for row in rows("libraries") if row["case"] == case)
    yield f"numpy's Laplace gives {100 * laplace['success']['value']:.1f} %"


def keyless() -> Iterator[str]:
    off = [c.block - c.estimated_block for c in measured() if c.found and c.estimated_block >= 30]
    yield f"differs by −{-min(off)} to +{max(off)}, median {statistics.median(off):g}."
    for reducer, (first, second, _) in FITTED.items():
        cells = fitted_to([c for c in measured() if c.reducer == reducer])
        factor = off_by(cells, first, second)
        yield f"{factor:.1f} for {reducer}"
    lost = [str(c.estimated_block) for c in measured() if not c.found]
    yield f"estimates of {' and '.join(sorted(lost))}"


VERDICTS = {"finding", "no-finding"}  # every program was there, and ran


def real() -> Iterator[str]:
    """How many samplers of other languages are findings, and in how many noise is predicted."""
    found = [row for row in rows("real-samplers") if row["found"]]
    foretells = {"congruential", "linear-complexity", "state-recovery", "predictable"}
    predicted = sum(not foretells.isdisjoint(row["by"]) for row in found)
    yield f"{len(found)} of {len(rows('real-samplers'))} are findings; in {predicted} of them"
    right = rows("real-samplers-right")
    assert not {row["verdict"] for row in (*rows("real-samplers"), *right)} - VERDICTS
    false = sum(row["found"] for row in right)
    ends = clopper_pearson(false, len(right))
    share = {"value": false / len(right), "low": ends.low, "high": ends.high}
    yield f"{len(right)} audits of {len({row['sampler'] for row in right})} samplers"
    yield f"{false} findings, {interval(share, digits=2)}"


def unseen() -> Iterator[str]:
    """What was found of the unseen half of the zoo after tests were written for it."""

    def share(key: str, value: str) -> str:
        found = [
            row["found"]
            for row in rows("zoo-unseen")
            if row[key] == value and (row["expected"] == "passed") == (value == "passed")
        ]
        return f"{sum(found)} of {len(found)}"

    must, borderline, impossible, right = (
        share("expected", mark) for mark in ("found", "borderline", "missed", "passed")
    )
    yield f"{must} that must show, {borderline} borderline ones, {impossible} impossible ones"
    training, test = (share("half", half) for half in ("training", "test"))
    yield f"{training} of the training half, {test} of the test half"
    yield f"accused {right} right samplers"


@pytest.mark.parametrize(("page", "words"), list(sentences()))
def test_a_number_in_a_sentence(page: str, words: str) -> None:
    assert words in text_of(page)


def test_steps_until_a_training_bug_is_found_are_as_printed():
    printed = (ROOT / "docs/studies/results/training-bugs/sequential.txt").read_text("utf-8")
    cells = [line.split(" | ") for line in printed.splitlines() if line.startswith("| ")]
    numpy, mnist = (
        {row[0]: row[1] for row in cells[half] if row[0] != "| bug"}
        for half in (slice(len(cells) // 2), slice(len(cells) // 2, None))
    )
    assert len(numpy) == len(mnist) == 14
    page = (ROOT / "docs/audit-your-training.md").read_text("utf-8")
    for bug, steps in numpy.items():
        assert f"{bug} | {steps} | {mnist[bug]} |\n" in page


SEEDS = {
    "README": ("zoo", "peers"),
    "blackbox": ("zoo", "zoo-unseen", "calibrate", "frontier"),
    "keyless": ("keyless", "keyless-far", "keyless-precision"),
    "floating_point": ("libraries", "controls", "floating-point", "dpsgd-bits"),
    "topdown": ("topdown", "topdown-attack"),
    "attribution": ("attribution",),
    "seed-in-reports": ("local-coins",),
    "seed-in-training": ("seed-in-gradients", "next-batch", "opacus-replay"),
    "pancake": ("dpsgd-training",),
    "pool_inference": ("bpia-table2", "bpia-table3"),
    "mitigations": ("mitigations", "bpia-mitigations"),
    "predictable": ("real-samplers", "real-samplers-right"),
    "seed-in-noise": ("mitigations", "seed-in-noise"),
    "dp-ftrl": ("dp-ftrl", "dp-ftrl-audit", "dp-ftrl-attack"),
}


def text_of(page: str) -> str:
    return TEXTS["README.md" if page == "README" else f"docs/studies/{page}.md"]


@pytest.mark.parametrize("page", SEEDS)
def test_seeds_on_a_page_are_those_of_the_runs(page: str) -> None:
    for name in SEEDS[page]:
        assert re.search(rf"eed {results(name)['provenance']['seed']}\b", text_of(page)), name


# -------------------- results/peers/README.md: its tables are those of the results beside it

PEERS = ROOT / "docs" / "studies" / "results" / "peers"


def tool(epsilon: float, **more: Any) -> dict[str, Any]:
    return {"epsilon": epsilon, "seconds": 1.0, **more}


def peer_row(ours: float, its: float, interval: tuple[float, float]) -> dict[str, Any]:
    about = {"name": "mean", "claim": 1.0, "delta": 0.0, "true": "2", "sound": False}
    answer = tool(its, ours_less=ours - its, interval=list(interval))
    return {**about, "dpaudit": tool(ours, delta=0.1), "dp-sniper": answer}


@pytest.mark.parametrize(
    ("interval", "told"), [((-0.3, -0.1), "DP-Sniper on mean by 0.20."), ((-0.3, 0.1), "none.")]
)
def test_a_peer_above_ours_by_more_than_the_interval_is_named(interval, told):
    rows = [peer_row(1.5, 1.7, interval)]
    about = {"samples": 1000, "alpha": 0.01, "peers": {"dp-sniper": "1a2b3c4"}}
    table = peers_tables.catalogue_table({**about, "rows": rows})
    assert "DP-Sniper `1a2b3c4`: ε ≥" in table
    assert f"more than the interval: {told}" in table
    assert f"**1.70** [{interval[0]:+.2f}, {interval[1]:+.2f}] |" in table


def test_text_between_markers_is_replaced_and_the_rest_stays(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- x -->\n1\n<!-- end -->\nb\n<!-- y -->\n2\n<!-- end -->\nc\n")
    peers_tables.replace_between(page, "y", "new")
    assert page.read_text() == (
        "a\n<!-- x -->\n1\n<!-- end -->\nb\n<!-- y -->\nnew\n<!-- end -->\nc\n"
    )


@pytest.mark.parametrize(("name", "of"), [("catalogue", "catalogue_table"), ("results", "tables")])
def test_the_page_shows_the_committed_results(name, of):
    document = json.loads((PEERS / f"{name}.json").read_text(encoding="utf-8"))
    assert getattr(peers_tables, of)(document) in (PEERS / "README.md").read_text(encoding="utf-8")
