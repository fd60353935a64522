"""An experiment's verdict: what attacks show, compared with the claimed ε; who attacks; names."""

from __future__ import annotations

import math

import pytest
from support import documents

from dpaudit.experiments import make_document
from dpaudit.report import document_of, experiment_sentence, render_report, summary_table
from dpaudit.report.formats.checks import checked
from dpaudit.report.rows import arm_labels, success_allowed
from dpaudit.types import CellResult

NO_KEY = {"epsilon": 2.0, "delta": 0.0}


def shown(success, epsilon, **changes):
    found = documents.attack(success, low=success - 0.02, high=min(1.0, success + 0.02))
    return found | {"epsilon_lower_bound": epsilon} | changes


def arm(source="gaussian", mitigation="none", *, attacks, **changes):
    """An honest arm at ε = 2 without a key and without an audit, unless changed."""
    plain = {"settings": NO_KEY, "epsilon_claimed": 2.0, "audit": None}
    return documents.row(source, mitigation, attacks, **(plain | changes))


def experiment(*rows):
    return document_of(documents.experiment() | {"rows": list(rows)})


def text(document):
    """The page's text without the glossary."""
    return documents.Page(render_report(document).split('<dl class="glossary">')[0]).text


def badge(document):
    html = render_report(document)
    return html.split('class="badge">', 1)[1].split("</strong>")[0].rsplit(">", 1)[1]


HONEST = arm(attacks=[shown(0.78, 0.982)])
PANCAKE = documents.experiment()["rows"][1]
FLOATS = arm("laplace", attacks=[shown(0.999, 5.4)])


@pytest.mark.slow
def test_what_the_claim_allows_is_no_success_of_an_attack():
    document = experiment(HONEST)
    assert experiment_sentence(document.rows) == (
        "No attack shows more than the claimed ε. The strongest is on gaussian: "
        "the attacker identifies the right candidate in 78.0 % [76.0, 80.0] of 2,000 releases "
        "(guessing: 50 %); we can show ε ≥ 0.982, which is consistent with the claimed ε = 2. "
        "No black-box audit was run."
    )
    assert badge(document) == "Within the claim"
    assert checked(document).verdict == "no-finding"
    said = text(document)
    assert "is a lower bound that holds with 95 % confidence" in said
    assert "key holder" not in said.lower()
    assert "Attack succeeds" not in said
    assert '<tr class="marked">' not in render_report(document)


@pytest.mark.slow
@pytest.mark.parametrize(("bound", "finding"), [(2.0, False), (2.01, True), (0.0, False)])
def test_the_shown_epsilon_decides(bound, finding):
    document = experiment(arm(attacks=[shown(0.9, bound)]))
    assert (checked(document).verdict == "finding") is finding
    assert (badge(document) == "Attack succeeds") is finding
    assert ('<tr class="marked">' in render_report(document)) is finding


@pytest.mark.slow
def test_more_than_is_claimed_is_named_with_both_numbers_and_who_attacks():
    assert experiment_sentence(experiment(PANCAKE, HONEST).rows) == (
        "pancake passes the black-box audit, yet its key holder identifies the right candidate in "
        "99.9 % [99.6, 100.0] of 2,000 releases (guessing: 50 %) and shows ε ≥ 6.1, where 0.25 is "
        "claimed."
    )
    floats = experiment(FLOATS)
    assert experiment_sentence(floats.rows) == (
        "laplace: the attacker identifies the right candidate in 99.9 % [97.9, 100.0] of 2,000 "
        "releases (guessing: 50 %) and shows ε ≥ 5.4, where 2 is claimed; no black-box audit was "
        "run."
    )
    assert badge(floats) == "Attack succeeds"
    assert "key holder" not in text(floats).lower()
    audited = experiment(FLOATS | {"audit": PANCAKE["audit"]})
    assert "passes the black-box audit, yet an attacker identifies" in experiment_sentence(
        audited.rows
    )


def test_of_several_attacks_the_one_that_shows_too_much_is_told():
    quiet, loud = shown(0.95, 1.5), shown(0.9, 2.6, attack="counts")
    sentence = experiment_sentence(experiment(arm(attacks=[quiet, loud])).rows)
    assert "in 90.0 %" in sentence
    assert "shows ε ≥ 2.6, where 2 is claimed" in sentence


def test_a_mitigation_stops_an_attack_that_stays_within_the_claim():
    rows = [
        PANCAKE,
        PANCAKE | {"mitigation": "rotation", "label": "b", "attacks": [shown(0.55, 0.1)]},
    ]
    sentence = experiment_sentence(experiment(*rows).rows)
    assert sentence.endswith("with rotation no attack here shows more than is claimed.")


@pytest.mark.slow
def test_audits_are_told_where_no_attack_shows_anything():
    found = PANCAKE["audit"] | {"verdict": "finding"}
    quiet = [shown(0.5, 0.0)]
    none = experiment(arm(attacks=quiet), arm("laplace", attacks=quiet, audit=found))
    assert experiment_sentence(none.rows).endswith(
        " The black-box audit reports a finding on laplace."
    )
    assert badge(none) == "Attacks fail"
    assert experiment_sentence(experiment(arm(attacks=[])).rows).endswith(
        " No black-box audit was run."
    )


def test_columns_name_a_key_holder_only_where_there_is_a_key():
    def headers(*rows):
        return [c.header for c in summary_table(experiment(*rows).rows)]

    assert "Key holder’s success\n[95 % interval]" in headers(PANCAKE)
    assert "ε to key holder" in headers(PANCAKE)
    for rows in ((HONEST,), (HONEST, PANCAKE)):
        assert "Attacker’s success\n[95 % interval]" in headers(*rows)
        assert "ε by theory" in headers(*rows)


@pytest.mark.slow
def test_an_attack_without_a_key_is_no_key_holder_s():
    keyless = PANCAKE | {"attacks": [PANCAKE["attacks"][0] | {"keyless": True}]}
    document = experiment(keyless)
    assert "yet an attacker identifies" in experiment_sentence(document.rows)
    assert "key holder" not in text(document).lower()
    both = experiment(PANCAKE, keyless | {"label": "b"})
    assert summary_table(both.rows)[2].header.startswith("Attacker’s")


def test_an_arm_without_a_claim_allows_nothing():
    assert checked(experiment(arm(attacks=[shown(0.9, 0.1)], epsilon_claimed="nan"))).verdict == (
        "finding"
    )
    assert checked(experiment(arm(attacks=[shown(0.9, 9.0)], epsilon_claimed="inf"))).verdict == (
        "no-finding"
    )


def test_the_success_that_a_claim_allows():
    at_two = experiment(HONEST).rows[0]
    assert success_allowed(at_two) == pytest.approx(math.exp(2) / (1 + math.exp(2)))
    at_zero = experiment(arm(attacks=[], epsilon_claimed=0.0, settings={"delta": 0.1})).rows[0]
    assert success_allowed(at_zero) == pytest.approx(0.55)  # total variation distance δ
    assert success_allowed(experiment(arm(attacks=[shown(0.5, 0, chance=0.1)])).rows[0]) is None


def test_arms_that_differ_in_options_only_have_names_of_their_own():
    def smoothed(eta):
        settings = NO_KEY | {"host": "histogram"} | ({} if eta is None else {"eta": eta})
        changes = {"label": "pancake, smoothing", "settings": settings}
        return arm("pancake", "smoothing", attacks=[shown(0.5, 0)], **changes)

    labels = arm_labels(experiment(smoothed(0.01), smoothed(1e-6)).rows)
    assert labels == ["pancake, smoothing, eta 0.01", "pancake, smoothing, eta 1e-06"]
    alike = [smoothed(0.01), smoothed(0.01), smoothed(None)]
    assert arm_labels(experiment(*alike).rows) == [
        "pancake, smoothing, eta 0.01 (1)",
        "pancake, smoothing, eta 0.01 (2)",
        "pancake, smoothing",
    ]
    named = [{"label": "a"}, {"label": "a"}, {"label": "a (1)"}]
    labels = arm_labels(experiment(*(smoothed(0.01) | n for n in named)).rows)
    assert labels == ["a (2)", "a (3)", "a (1)"]


def test_options_of_a_run_reach_the_names_of_its_arms():
    """Two mitigations of one name that differ in an option, as the cells of a run store them."""
    none, interval = {"low": 0.0, "high": "inf", "says": ""}, documents.attack(0.5, low=0, high=1)
    outcome = interval | {"sigma": 1.0, "epsilon_key_holder": none, "l2_error": 1, "l2_expected": 1}

    def cell(eta):
        table = {"name": "smoothing", "label": "smoothing", "eta": eta}
        return CellResult(
            cell=f"{eta}",
            kind="attack",
            settings={
                "epsilon": 1.0,
                "delta": 0.0,
                "host": {"name": "histogram", "table": "us-counties"},
                "source": {"name": "gaussian", "label": "honest"},
                "mitigation": table,
            },
            outcome=outcome,
            seconds=1.0,
            provenance={},
        )

    spec = {"name": "x", "title": "x", "story": "", "columns": ()}
    rows = make_document(spec, [cell(0.01), cell(1e-6)], command="").rows
    assert arm_labels(rows) == ["honest, smoothing, eta 0.01", "honest, smoothing, eta 1e-06"]
    assert rows[0].settings["host"] == "histogram:table=us-counties"


def test_a_backdoor_that_the_named_defences_do_not_cover_is_told_too():
    other = PANCAKE | {"source": "seed", "label": "seed"}
    behind = other | {"mitigation": "smoothing", "label": "seed, smoothed"}
    said = experiment_sentence(experiment(PANCAKE, HONEST, other, behind).rows)
    assert said.endswith(
        "where 0.25 is claimed. More than is claimed is also shown on seed (99.9 % [99.6, 100.0]) "
        "and seed, smoothed (99.9 % [99.6, 100.0])."
    )
    rotated = PANCAKE | {
        "mitigation": "rotation",
        "label": "pancake, rotated",
        "attacks": [shown(0.5, 0.0)],
    }
    said = experiment_sentence(experiment(PANCAKE, HONEST, rotated, other).rows)
    assert "with rotation no attack on it beats chance. More than is claimed" in said
