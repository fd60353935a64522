"""Sequential audits of mechanisms: they stop when it is certain, or hopeless, and can go on."""

import math
import time

import numpy as np
import pytest
from support.in_process import InProcess

import dpaudit
from dpaudit.audit.mechanism import MechanismOptions, PrivacyClaim, run_mechanism_audit
from dpaudit.audit.mechanism.sequential import capital_text
from dpaudit.audit.mechanism.verdict import two_neighbour_blind_spots
from dpaudit.errors import SamplerTimeoutError, UsageError
from dpaudit.report import describe
from dpaudit.results.arrays import Archive

ZERO_ONE = (np.array([0.0]), np.array([1.0]))


def response(epsilon, seed=1):
    rng, keep = np.random.default_rng(seed), 1 / (1 + math.exp(-epsilon))
    return lambda v, n: np.where(rng.random((n, 1)) < keep, v, 1 - v)


def audit(release, *, epsilon=1.0, progress=None, neighbours=ZERO_ONE, **options):
    options = MechanismOptions(
        **{"seed": "7", "samples": 2_000, "sequential": True, "real_numbers": True, **options}
    )
    claim = PrivacyClaim(epsilon, 0.0)
    return run_mechanism_audit(
        InProcess(release), neighbours=neighbours, claim=claim, options=options, progress=progress
    )


def test_a_false_claim_ends_it_early_and_a_true_one_does_not():
    found = audit(response(2.0))
    assert (found.verdict, found.samples < 1_000) == ("finding", True)
    assert found.reason.endswith(f"stopped after {found.samples:,} releases")
    assert found.epsilon.low > 1
    (test,) = found.tests
    assert (test.finding, test.p <= 0.0075) == (True, True)
    true = audit(response(1.0))
    assert true.verdict == "no-finding"
    assert 0.6 < true.epsilon.low <= 1.0
    assert true.epsilon.confidence == 0.99


def test_it_stops_on_its_own_calls_only():
    drawn = []

    def counted(v, n):
        drawn.append(n)
        return half(v, n)

    half = response(2.0)
    assert audit(counted).samples == sum(drawn)


def test_a_hopeless_audit_gives_up_and_says_how_sure_it_is():
    result = audit(response(0.2), samples=20_000)
    how = result.details["sequential"]
    assert (result.verdict, how["stopped"]) == ("no-finding", "futile")
    assert 4_000 <= result.samples < 10_000
    assert how["mistake"] <= 0.01
    assert "given up after" in result.reason
    assert "probability of at most 0.0" in result.reason


def test_the_looks_are_kept_shown_and_drawn():
    seen, notes = [], []

    class Progress:
        def __call__(self, done, total):
            seen.append((done, total))

        def note(self, text):
            notes.append(text)

    result = audit(response(2.0), progress=Progress())
    looks = result.details["sequential"]["looks"]
    assert [n for n, _, _ in looks] == [n for n, _ in seen]
    assert looks[-1][1] >= result.details["sequential"]["needed"] - 1
    assert "capital" in notes[-1]
    assert "ε ≥ 1" in notes[-1]
    charts = [b for s in describe(result).sections for b in s.blocks if getattr(b, "panels", None)]
    assert charts[0].title == "Capital against the claim, as releases came"
    marks = charts[0].panels[0].series[0].marks
    assert len(marks) == len(looks)
    assert marks[-1].alarm


def test_capital_in_a_line():
    text = capital_text([(1, -1.0, 0.0), (2, 0.5, 0.0), (3, 2.0, 0.0)], 2.0)
    assert text == "capital ▁▅█ 10^2.0 of 10^2.0"


def test_it_goes_on_where_it_was(tmp_path):
    file = tmp_path / "kept.npz"
    first = audit(response(1.1), samples=1_000, resume=file)
    assert first.verdict == "no-finding"
    with Archive(file) as kept:
        assert len(kept.read("rows", most=1 << 20)) == first.samples
    second = audit(response(1.1, seed=2), samples=1_500, resume=file)
    assert (
        second.details["sequential"]["looks"][: len(first.details["sequential"]["looks"])]
        == (first.details["sequential"]["looks"])
    )
    assert second.samples > first.samples
    again = audit(response(1.1, seed=3), samples=second.samples // 2, resume=file)
    assert again.samples == second.samples  # nothing is left to draw


def test_what_is_kept_survives_a_mechanism_that_dies(tmp_path):
    file, calls, honest = tmp_path / "kept.npz", [], response(1.0)

    def dies(v, n):
        calls.append(n)
        if len(calls) > 30:
            raise RuntimeError("gone")
        return honest(v, n)

    with pytest.raises(Exception, match="gone"):
        audit(dies, resume=file)
    with Archive(file) as kept:
        before = len(kept.read("rows", most=1 << 20))
    assert before > 50
    assert audit(honest, resume=file).samples > before


def test_a_resumed_audit_has_a_seed_of_its_own(tmp_path):
    """A seeded source would otherwise release again what was counted before."""
    file = tmp_path / "kept.npz"
    how = {"neighbours": "0,1", "epsilon": 1.0, "sequential": True, "seed": 1, "resume": file}
    dpaudit.audit_mechanism("naive-laplace:scale=2", samples=1000, real_numbers=True, **how)
    dpaudit.audit_mechanism("naive-laplace:scale=2", samples=1500, real_numbers=True, **how)
    with Archive(file) as kept:
        rows = kept.read("rows", most=1 << 20)
    assert len(np.unique(rows)) > 0.99 * len(rows)


@pytest.mark.parametrize("broken", [b"", b"PK\x03\x04 nothing", None])
def test_a_file_that_is_none_is_refused(tmp_path, broken):
    file = tmp_path / "kept.npz"
    if broken is None:
        np.savez(file, header=np.frombuffer(b'{"drawn": 3}', np.uint8))
    else:
        file.write_bytes(broken)
    with pytest.raises(UsageError, match=r"resume=.*kept\.npz: .*name another file, or delete it"):
        audit(response(1.0), resume=file)


def test_a_place_that_cannot_be_written_is_refused_before_anything_is_drawn(tmp_path):
    drawn = []

    def counted(v, n):
        drawn.append(n)
        return np.zeros((n, 1))

    for path in (tmp_path / "none" / "kept.npz", tmp_path):
        with pytest.raises(UsageError, match=r"resume=.*: cannot be written; name a file"):
            audit(counted, resume=path)
    assert not drawn


def test_a_file_of_another_audit_is_refused(tmp_path):
    file = tmp_path / "kept.npz"
    audit(response(1.0), samples=1_000, resume=file)
    with pytest.raises(UsageError, match=r"was begun with claim=\(1, 0\)-DP, not \(2, 0\)-DP"):
        audit(response(1.0), epsilon=2.0, resume=file)


def test_what_does_not_go_together_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"resume=x\.npz: belongs to --sequential"):
        MechanismOptions(resume="x.npz")
    with pytest.raises(UsageError, match=r"attack=reach: .* leave --sequential or --attack out"):
        dpaudit.audit_mechanism(
            "numpy:laplace", neighbours="0,1", epsilon=1, attack="reach", sequential=True
        )
    with pytest.raises(UsageError, match=r"resume=.*: keeps releases of query results"):
        dpaudit.audit_datasets(
            lambda dataset: sum(dataset),
            neighbours=([1, 2], [2]),
            epsilon=1,
            sequential=True,
            resume=tmp_path / "x.npz",
            in_process=True,
        )


def test_few_releases_that_take_long_are_enough_for_a_blatant_leak():
    result = audit(lambda v, n: np.full((n, 1), v[0]) + np.arange(n)[:, None] / 64, samples=60)
    assert (result.verdict, result.samples <= 120) == ("finding", True)
    with pytest.raises(UsageError, match=r"samples=19: .* at least 20 releases"):
        audit(response(1.0), samples=19)


def test_time_that_is_up_is_inconclusive():
    def slow(v, n):
        time.sleep(0.02)
        if sum(calls) > 400:
            raise SamplerTimeoutError("slow: the time limit was reached")
        calls.append(n)
        return honest(v, n)

    calls, honest = [], response(1.0)
    result = audit(slow)
    assert (result.verdict, result.samples >= 300) == ("inconclusive", True)


def test_releases_that_depend_on_each_other_are_inconclusive():
    rng = np.random.default_rng(1)
    result = audit(lambda v, n: v + np.full((n, 1), rng.laplace()))
    assert result.verdict == "inconclusive"
    assert "an audit needs independent releases" in result.reason


def test_data_sets_whose_releases_are_all_the_same_are_inconclusive():
    result = dpaudit.audit_datasets(
        lambda dataset: {"label": "same"},
        neighbours=([1], [1, 2]),
        epsilon=1,
        sequential=True,
        samples=1000,
        in_process=True,
    )
    assert result.verdict == "inconclusive"


def test_releases_at_data_sets_are_encoded_as_they_come():
    rng = np.random.default_rng(1)

    def release(dataset):
        big = rng.random() < (0.2 if len(dataset) == 3 else 0.8)
        return {"label": "big" if big else "small", "noise": rng.normal()}

    how = {"neighbours": ([1, 2, 3], [1, 2, 3, 4]), "sequential": True, "samples": 2000, "seed": 1}
    found = dpaudit.audit_datasets(release, epsilon=1, in_process=True, **how)
    assert (found.verdict, found.samples < 1_500) == ("finding", True)
    assert any("label" in text for text in found.advice)
    true = dpaudit.audit_datasets(release, epsilon=2, in_process=True, **how)
    assert true.verdict == "no-finding"
    assert true.epsilon.low <= math.log(4)


def test_claims_of_every_kind():
    normal = np.random.default_rng(2)
    for claim, name in (({"mu": 0.5}, "μ"), ({"rho": 0.1}, "ρ"), ({"renyi": (4, 0.4)}, "D_4")):
        result = dpaudit.audit_mechanism(
            lambda v, n: v + normal.normal(size=n),
            neighbours=(0, 1),
            sequential=True,
            samples=5e3,
            seed=1,
            real_numbers=True,
            in_process=True,
            **claim,
        )
        assert result.verdict == "finding", claim
        shown = result.mu if result.stated is None else result.stated.shown
        assert shown.low >= {"μ": 0.5, "ρ": 0.1, "D_4": 0.4}[name]


def test_no_audit_of_so_few_releases_finds_a_rare_secret_trigger():
    """The stated share q is where the best audit there is finds it nine times in ten."""
    alpha, drawn = 0.01, 20_000
    spots = two_neighbour_blind_spots(
        draws=drawn // 2, drawn=drawn, claim=PrivacyClaim(1.0, 0.0), alphas=(alpha, alpha)
    )
    (spot,) = (s for s in spots if s.flaw == "cheating in a secret share of releases")
    rng = np.random.default_rng(3)
    # the best audit accuses wherever the trigger was seen, and else with probability α
    triggered = rng.binomial(drawn, spot.size, 40_000) > 0
    accuses = triggered | (rng.random(40_000) < alpha)
    assert 0.87 < accuses.mean() < 0.9
    assert "arXiv" not in spot.says
    assert f"no audit of {drawn:,} releases" in spot.says
