"""Pages and words of proofs: level, distance, counterexample, what is not covered, certificate."""

from __future__ import annotations

import copy
import math

import pytest
from support import documents, proofs

from dpaudit.report import document_of, render_report
from dpaudit.report.figures.law import exact_and_claimed, proved_profile
from dpaudit.report.formats.checks import checked
from dpaudit.report.proofs import law_table, log_ratio, profile_table, proof_sentence
from dpaudit.types import ProvedBounds

Page = documents.Page


def result_of(kind: str, **changes):
    document = copy.deepcopy(proofs.proof(kind))
    document["result"] |= changes
    return document_of(document).result


@pytest.fixture(scope="module")
def pages():
    kinds = {name: name.split() for name in proofs.EVERY_KIND}
    return {name: render_report(getattr(proofs, k)(v)) for name, (k, v) in kinds.items()}


@pytest.mark.slow
def test_a_counterexample_has_its_output_both_probabilities_and_its_coins(pages):
    text = " ".join(Page(pages["proof refuted"]).text.split())
    assert "Run by Python itself on the coins below, the unmodified program returned 0" in text
    assert "P(0) ≥ 0.2449, but discrete-laplace:scale=3 gives it at most 0.1651" in text
    assert "1267650600228229401496703205376" in text
    assert "Counterexample" not in Page(pages["proof proved"]).text


@pytest.mark.parametrize("name", proofs.EVERY_KIND)
def test_hostile_names_are_only_text(name):
    kind, verdict = name.split()
    html = render_report(documents.made_hostile(getattr(proofs, kind)(verdict)))
    page = Page(html)
    assert page.ordered
    assert page.scripts() == page.count("img") == 0
    assert not any(a.startswith("on") for _, attributes in page.tags for a in attributes)
    assert "<script>alert(1)</script>" in page.text
    assert "\x1b" not in html
    assert "\u202e" not in html
    html.encode("utf-8")


def test_bounds_of_the_table_hold_the_law():
    result = result_of("proved", residual=0.01)
    output, low, high, *_ = (column.cells for column in law_table(result))
    assert output[:2] == ["0", "-1"]
    assert all(p - 1e-9 < float(x) <= p for x, (_, p) in zip(low, result.law, strict=True))
    assert all(float(h) >= p + 0.01 for h, (_, p) in zip(high, result.law, strict=True))
    assert all(float(h) < p + 0.01 + 1e-9 for h, (_, p) in zip(high, result.law, strict=True))
    ratios = law_table(result)[-1].cells
    assert ratios[-1].endswith("∞")  # the claim gives this output no probability


def test_a_log_ratio_holds_all_that_its_parts_may_be():
    low, high = log_ratio(0.2, 0.3, ProvedBounds(low=0.1, high=0.4))
    assert low <= math.log(0.2 / 0.4)
    assert high >= math.log(0.3 / 0.1)
    assert high < math.log(0.3 / 0.1) + 1e-12
    assert log_ratio(0.1, 0.1, ProvedBounds(low=0.0, high=0.0)) == (math.inf, math.inf)


def test_the_profile_has_the_claim_first_and_once():
    result = result_of("privacy")
    again = result.profile[0]
    epsilons = profile_table(result_of("privacy", profile=[
        {"epsilon": p.epsilon, "delta": proofs.between(p.delta.low, p.delta.high), "near": p.near}
        for p in (*result.profile, again)
    ]))[0].cells  # fmt: skip
    assert epsilons == ["1", "0", "3/4", "2"]


@pytest.mark.slow
def test_figures_mark_the_claim_and_the_counterexample():
    law = exact_and_claimed(result_of("refuted"), prefix="law")
    assert law is not None
    assert "var(--alarm)" in law.svg
    assert "; 0: between 0.2449 and 0.245, claimed between 0.2449 and 0.245" in law.alt
    assert "The 4 likeliest of 127 outputs are drawn" in law.caption
    proved = exact_and_claimed(result_of("proved", claimed=[], residual=0.0), prefix="law")
    assert proved is not None
    assert "claimed" not in proved.alt
    profile = proved_profile(result_of("privacy"), prefix="profile")
    assert profile is not None
    assert "claimed δ 1e-09" in profile.points
    assert "10⁻" in profile.svg
    assert "$" not in profile.svg
    assert proved_profile(result_of("privacy", claim_delta="much"), prefix="profile") is None
    assert exact_and_claimed(result_of("undecided"), prefix="law") is None


@pytest.mark.parametrize(
    ("kind", "verdict", "outcomes"),
    [
        ("proved", "no-finding", ["pass"]),
        ("refuted", "finding", ["finding"]),
        ("undecided", "inconclusive", ["error", "undecided"]),
    ],
)
def test_other_programs_get_the_verdict_they_know(kind, verdict, outcomes):
    told = checked(document_of(proofs.proof(kind)))
    assert (told.verdict, [c.outcome for c in told.checks]) == (verdict, outcomes)
    assert told.blind_spots == ("the coins: they are taken as uniform", "time, memory and power")


def test_a_claimed_delta_from_a_file_is_read_only_if_small():
    assert "(1, 1e-99999999999)-DP" in proof_sentence(result_of(
        "privacy", claim_delta="1e-99999999999"
    ))  # fmt: skip
    assert "(1, 1/0)-DP" in proof_sentence(result_of("privacy", claim_delta="1/0"))
