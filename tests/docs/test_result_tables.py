"""Every table of measured results in the documents is that of the committed results files."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterator
from xml.etree import ElementTree

import pytest
import scipy
from result_tables import MARKED, PAGES, TABLES, written, wrong_rows
from result_tables.defences import mitigations, submissions
from result_tables.reading import ROOT, interval, results, rows

from dpaudit.hardness import measured

TEXTS = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in PAGES}
MITIGATIONS = (ROOT / "mitigations" / "README.md").read_text(encoding="utf-8")
UNCHECKED = {  # tables with digits that no results file gives, by the first cell of their head
    "navigation source": "the specification's laws, which tests/dpaudit/deployments/"
    "attribution/test_laws.py computes",
    "factorisation": "run by tests/dpaudit/hosts/ftrl/test_matrices.py",
    "source": "what is published where",
    "`dpaudit deployment apple --config …`": "run by the page itself, "
    "and by tests/dpaudit/deployments/apple/",
    "you have": "where to start",
    "report": "sizes of reports and nonces, from the construction",
    "family": "what a family of tests looks at",
    "test": "what the tests of noisy measurement files look at",
    "sampler": "three samplers of a few lines, as the table has them",
    "audited": "audits that anyone can repeat by the commands above",
    "command": "seconds, from make bench",
    "at 39 million coordinates, two cores of an Intel Xeon": "seconds, from make bench "
    "and make flower",
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


def marked_lines() -> Iterator[tuple[str, int]]:
    for page, text in TEXTS.items():
        for found in MARKED.finditer(text):
            at = found.start(3)
            for row in found[3].splitlines(keepends=True):
                yield from ((page, at + i.start()) for i in re.finditer(r"\d", row))
                at += len(row)


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


def test_the_tables_of_mitigations() -> None:
    for lines, text in ((mitigations(), MITIGATIONS), (submissions(), MITIGATIONS)):
        rows_ = list(lines)
        assert len(rows_) > 20
        assert not [row for row in rows_ if row not in text]


def sentences() -> Iterator[tuple[str, str]]:
    """Numbers in sentences, with the words around them, by page of `docs/reproduce/` or README."""
    expected = (
        [row["found"] for row in rows("zoo") if row["expected"] == kind]
        for kind in ("found", "borderline", "missed")
    )
    should, borderline, out = (f"{sum(found)} of {len(found)}" for found in expected)
    yield (
        "blackbox",
        f"{should} that should show were found, {borderline} borderline ones, {out} out of reach",
    )
    missed = [row["specimen"] for row in rows("zoo") if not row["found"]]
    yield "blackbox", f"The {len(missed)} misses"
    yield from (("blackbox", f"`{name}`") for name in missed)
    yield from (("blackbox", words) for words in unseen())
    yield from (("predictable", words) for words in real())
    *makers, every = rows("calibrate")
    least, most = (f(row["share"]["value"] for row in makers) for f in (min, max))
    yield "blackbox", f"{every['audits']:,} audits of honest N(0, 1) noise from six makers"
    yield (
        "blackbox",
        f"{every['findings']} end in a finding, {100 * every['share']['value']:.2f} % [",
    )
    yield (
        "blackbox",
        f"[{100 * every['share']['low']:.2f}, {100 * every['share']['high']:.2f}] (Clopper–Pearson",
    )
    yield (
        "README",
        f"Of {every['audits']:,} audits of honest noise at α = 0.05, "
        f"{interval(every['share'], digits=2)} report a finding",
    )
    yield "blackbox", f"by maker {100 * least:.1f} to {100 * most:.1f} %)"
    tried = {(row["library"], row["mechanism"]) for row in rows("libraries")}
    yield (
        "README",
        f"{len(tried)} mechanisms of "
        f"{len({library.split()[0].removesuffix('-old') for library, _ in tried})} libraries",
    )
    pancake = {
        row["attacker"]: row["right"] for row in rows("dpsgd-training") if row["arm"] == "pancake"
    }
    yield "README", f"in {interval(pancake['key: likelihood'])} of the steps asked"
    yield "README", f"without the key {100 * pancake['no key: likelihood']['value']:.1f} %"
    found = rows("controls")
    yield (
        "floating_point",
        f"In {sum(r['repeats'] - r['exceeded'] for r in found):,} of "
        f"{sum(r['repeats'] for r in found):,}",
    )
    for row in found:
        if row["exceeded"]:
            yield "floating_point", f"{row['repeats'] - row['exceeded']} of {row['repeats']}"
    specimens = [
        row["verdict"] in ("broken", "leaks by its time") for row in rows("floating-point")
    ]
    yield "floating_point", f"{sum(specimens)} of {len(specimens)} lines succeed"
    (laplace,) = (
        row
        for row in rows("libraries")
        if row["case"] == "numpy:laplace laplace-support:sampler=numpy"
    )
    yield "floating_point", f"numpy's Laplace gives {100 * laplace['success']['value']:.1f} %"
    lattice = [
        row["right"] for row in rows("dpsgd-training") if row["attacker"] == "no key: low bits"
    ]
    yield "pancake", f"`reach` is right in {interval(lattice[2])} and {interval(lattice[3])}"
    off = [c.block - c.estimated_block for c in measured() if c.found and c.estimated_block >= 30]
    yield (
        "keyless",
        f"differs by −{-min(off)} to +{max(off)}, median {statistics.median(off):g}.",
    )
    for reducer, name in (("fpylll", "for fpylll"), ("BLASter", "for BLASter")):
        cells = [c for c in measured() if c.reducer == reducer and c.source != "elsewhere"]
        cells = [c for c in cells if c.clock == "wall" or c.seconds >= 1]  # as fitted
        logs = [math.log(c.estimated_seconds / c.seconds) for c in cells]
        factor = math.exp(math.sqrt(statistics.fmean(x * x for x in logs)))
        yield "keyless", f"{factor:.1f} {name}"
    lost = [str(c.estimated_block) for c in measured() if not c.found]
    yield "keyless", f"estimates of {' and '.join(sorted(lost))}"
    published = [row["agrees"] for n in (2, 3, 5, 6, 7, 8) for row in rows(f"bpia-table{n}")]
    published += [row["agrees"] for row in rows("bpia-figures")]
    yield "dp-ftrl", results("dp-ftrl-audit")["summary"]
    yield "index", f"{sum(published)} of {len(published)} cells agree"
    yield (
        "index",
        f"| {100 * min(row['success']['value'] for row in rows('dpsgd-bits')):.1f} % and more |",
    )


def real() -> Iterator[str]:
    """How many samplers of other languages are findings, and in how many noise is predicted."""
    found = [row for row in rows("real-samplers") if row["found"]]
    foretells = {"congruential", "linear-complexity", "state-recovery", "predictable"}
    predicted = sum(not foretells.isdisjoint(row["by"]) for row in found)
    yield f"{len(found)} of {len(rows('real-samplers'))} are findings; in {predicted} of them"
    right = rows("real-samplers-right")
    false = sum(row["found"] for row in right)
    high = float(scipy.special.betaincinv(false + 1, len(right) - false, 0.975))
    yield f"{len(right)} audits of thirty"
    yield f"{false} findings, 0 % [0.0, {100 * high:.1f}]"


def unseen() -> Iterator[str]:
    """What was found of the unseen half of the zoo before tests were written for it, and after."""
    for name in ("zoo-unseen-before", "zoo-unseen"):
        yield from _unseen([dict(row) for row in rows(name)])


def _unseen(found_of: list[dict[str, object]]) -> Iterator[str]:
    def share(**wanted: str) -> str:
        found = [
            row["found"]
            for row in found_of
            if all(row[key] == value for key, value in wanted.items())
            and (row["expected"] == "passed") == (wanted.get("expected") == "passed")
        ]
        return f"{sum(found)} of {len(found)}"

    must, borderline, impossible, right = (
        share(expected=mark) for mark in ("found", "borderline", "missed", "passed")
    )
    yield f"{must} that must show, {borderline} borderline ones, {impossible} impossible ones"
    yield f"{share(half='training')} of the training half, {share(half='test')} of the test half"
    yield f"accused {right} right samplers"


@pytest.mark.parametrize(("page", "words"), list(sentences()))
def test_a_number_in_a_sentence(page: str, words: str) -> None:
    assert words in TEXTS["README.md" if page == "README" else f"docs/reproduce/{page}.md"]


def test_seeds_on_the_pages_are_those_of_the_runs() -> None:
    for page, name in (
        ("README", "zoo"),
        ("README", "peers"),
        ("blackbox", "zoo"),
        ("blackbox", "zoo-unseen-before"),
        ("blackbox", "zoo-unseen"),
        ("blackbox", "calibrate"),
        ("keyless", "keyless"),
        ("keyless", "keyless-far"),
        ("keyless", "keyless-precision"),
        ("blackbox", "frontier"),
        ("floating_point", "libraries"),
        ("floating_point", "controls"),
        ("floating_point", "floating-point"),
        ("floating_point", "dpsgd-bits"),
        ("pancake", "dpsgd-training"),
        ("pool_inference", "bpia-table2"),
        ("pool_inference", "bpia-table3"),
        ("mitigations", "mitigations"),
        ("predictable", "real-samplers"),
        ("predictable", "real-samplers-right"),
        ("seed-in-noise", "mitigations"),
        ("seed-in-noise", "seed-in-noise"),
        ("mitigations", "bpia-mitigations"),
        ("dp-ftrl", "dp-ftrl"),
        ("dp-ftrl", "dp-ftrl-audit"),
        ("dp-ftrl", "dp-ftrl-attack"),
    ):
        text = TEXTS["README.md" if page == "README" else f"docs/reproduce/{page}.md"]
        assert re.search(rf"eed {results(name)['provenance']['seed']}\b", text), name


def test_the_picture_loads_nothing_and_says_what_the_demo_shows() -> None:
    svg = (ROOT / "docs" / "reproduce" / "demo.svg").read_text(encoding="utf-8")
    root = ElementTree.fromstring(svg)
    assert len(svg) < 60_000
    assert {element.tag.rpartition("}")[2] for element in root.iter()}.isdisjoint(
        {"script", "image", "foreignObject"}
    )
    assert "http" not in svg.replace("http://www.w3.org/", "")
    told = root.findtext("{http://www.w3.org/2000/svg}title") or ""
    most = {name: float(top) for name, top in re.findall(r"([\w, ]+?) at most ([\d.]+)", told)}
    assert sum(top > 10 for top in most.values()) == 1
