"""The keyless search as the battery runs it: child processes, deadline, evidence."""

import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from psutil import Process, pid_exists

from dpaudit.audit.block import SampleBlock
from dpaudit.claims import Claim
from dpaudit.noise.pancake import Pancake
from dpaudit.randomness import KeyedStream
from dpaudit_attacks.keyless import search as searching
from dpaudit_attacks.keyless.candidates import confirm, resonance
from dpaudit_attacks.keyless.keyless_search import KeylessSearch
from dpaudit_attacks.keyless.plan import Job
from dpaudit_attacks.keyless.search import Rows, Search

LAW = Claim.parse("gaussian:sigma=1")


def run(blocks, *, limit, claim=LAW, **options):
    test = KeylessSearch(claim, KeyedStream.from_seed(1), **options)
    for i, x in enumerate(blocks):
        test.update(SampleBlock(i, x, claim=claim, spread=np.random.default_rng(0)))
    try:
        test.search(deadline=time.monotonic() + limit)
        return test.evidence(alpha=0.001)
    finally:
        test.close()


def honest(dims, rows=2000, seed=3):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((rows, d)) for d in dims]


def children():
    return [p for p in Process().children(recursive=True) if "keyless" in " ".join(p.cmdline())]


@pytest.mark.slow
def test_a_pancake_is_found_among_dimensions(make_key):
    pytest.importorskip("fpylll")
    keys = {d: make_key(dim=d, beta=0.05) for d in (8, 64)}
    blocks = [
        Pancake(key=k).sample(3000, d, stream=KeyedStream.from_seed(d)) for d, k in keys.items()
    ]
    evidence = run(blocks, limit=60, planned=4)
    assert evidence.p < 1e-20
    d = evidence.details["d"]
    assert abs(np.dot(evidence.details["w"], keys[d].direction)) > 0.999
    assert evidence.interval.low < 0.055
    assert evidence.interval.high > 0.045
    assert evidence.details["gamma"] == pytest.approx(2 * math.sqrt(d), rel=0.02)
    assert "recovered" in evidence.effect
    assert not children()


@pytest.mark.slow
def test_honest_noise_passes_and_says_how_far_it_got():
    pytest.importorskip("fpylll")
    evidence = run(honest([5]), limit=60, block=30)
    assert evidence.p == 1
    assert "d=5 (β ≤ " in evidence.effect
    (spot,) = evidence.blind_spots
    assert "beyond d=5 (β ≤ " in spot.says
    assert "at γ ≤ 20√d, or with a fresh direction" in spot.says
    assert not evidence.details["broken"]
    (cell,) = evidence.details["covered"]
    assert cell["d"] == 5
    assert cell["gamma"] == pytest.approx(20 * math.sqrt(5))
    assert 0.1 < cell["beta"] <= 0.25


@pytest.mark.timeout(90)  # without a deadline it would take hours
def test_the_deadline_ends_it(monkeypatch):
    """By a clock that passes the deadline once searches run, however slow the machine is."""
    pytest.importorskip("fpylll")

    def clock():
        return time.monotonic() + (7200 if children() else 0)

    monkeypatch.setattr(searching, "time", SimpleNamespace(monotonic=clock))
    evidence = run(honest([64, 96, 128], rows=4000), limit=3600)
    assert evidence.p == 1
    assert "stopped by the time limit" in evidence.effect
    assert not children()


def test_other_claims_and_no_time():
    laplace = run(honest([8]), limit=5, claim=Claim.parse("laplace:scale=1"))
    assert (laplace.p, laplace.blind_spots) == (1.0, ())
    test = KeylessSearch(LAW, KeyedStream.from_seed(1))
    assert "not searched" in test.evidence(alpha=0.01).effect
    assert test.evidence(alpha=0.01).p == 1


def test_other_processes_and_dimensions_are_left_out():
    test = KeylessSearch(LAW, KeyedStream.from_seed(1))
    for process, d in ((1, 8), (0, 1), (0, 257)):
        test.update(SampleBlock(0, honest([d])[0], claim=LAW, spread=None, process=process))
    test.search(deadline=time.monotonic() + 5)
    assert "no rows" in test.evidence(alpha=0.01).effect


@pytest.mark.slow
def test_a_child_that_dies_is_survived(monkeypatch):
    rows = Rows(4)
    rows.add(honest([4])[0])
    search = Search({4: rows})
    # the first lacks β and γ
    search.run([Job("nonsense", 4), Job("easy", 4)], deadline=time.monotonic() + 30)
    assert [[job.kind for job in jobs] for jobs in (search.broken, search.completed)] == [
        ["nonsense"],
        ["easy"],
    ]
    monkeypatch.setattr(searching.sys, "executable", "/bin/false")
    search = Search({4: rows})
    search.run([Job("easy", 4)], deadline=time.monotonic() + 30)
    assert (len(search.broken), search.p) == (1, 1)


def test_candidates_are_paid_for():
    """The i-th candidate's p-value counts i·(i+1) times."""
    rng = np.random.default_rng(4)
    rows = Rows(3)
    rows.add(rng.standard_normal((2048, 3)))
    rows.held_out = np.round(rows.held_out * 2) / 2  # resonates at u = 2·e: exp(2πi·2·x) = 1
    search = Search({3: rows})
    line = {"u": [0.7, 1.3, 0.1], "reduction": "x", "rows": 9, "seconds": 0.0, "cpu": 0.0}
    for _ in range(9):
        search.judge(Job("lattice", 3), line)
    assert search.p == 1
    few = Rows(3)
    few.add(rows.check[:1])
    rows.held_out = rows.held_out[:40]
    search.judge(Job("lattice", 3), {**line, "u": [2.0, 0.0, 0.0]})
    assert search.p == pytest.approx(110 * 4 * math.exp(-40 / 4))


def test_a_candidate_that_shrinks_to_nothing_is_none(stream):
    rows = Rows(3)
    rows.add(stream.numpy().standard_normal((4000, 3)))
    search = Search({3: rows})
    line = {"u": [1e-9, 0.0, 0.0], "reduction": "LLL", "rows": 4, "seconds": 0.1, "cpu": 0.1}
    search.judge(Job("lattice", 3), line)
    assert search.best is None
    assert search.candidates == 1  # it was tried, and is paid for


PARENT = """
import time, numpy as np
from dpaudit_attacks.keyless.plan import Job
from dpaudit_attacks.keyless.search import Rows, Search
rows = Rows(96)
rows.add(np.random.default_rng(1).standard_normal((3000, 96)))
Search({96: rows}).run([Job('lattice', 96, 1e-3, 19.6, 40)], deadline=time.monotonic() + 100)
"""


def gone(pid):
    return not pid_exists(pid) or Process(pid).status() == "zombie"


@pytest.mark.slow
def test_nothing_outlives_its_parent():
    pytest.importorskip("fpylll")
    parent = subprocess.Popen([sys.executable, "-c", PARENT])
    try:
        until, found = time.monotonic() + 30, []
        while not found and time.monotonic() < until:
            below = Process(parent.pid).children()
            found = [p.pid for p in below if "worker" in " ".join(p.cmdline())]
            time.sleep(0.05)
        assert found
    finally:
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait()
    until = time.monotonic() + 10
    while not gone(found[0]) and time.monotonic() < until:
        time.sleep(0.05)
    assert gone(found[0])


@pytest.mark.slow
def test_without_fpylll_it_says_so(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    evidence = run(honest([4]), limit=20)
    assert evidence.p == 1
    assert "pip install 'dpaudit[lattice]'" in evidence.effect
    assert "pip install 'dpaudit[lattice]'" in evidence.blind_spots[0].says


def test_what_an_unfinished_search_completed_counts():
    """The stage that runs is BKZ-48: what BKZ-44 reaches in fewer β is covered."""
    rows = Rows(96)
    rows.add(np.random.default_rng(1).standard_normal((3000, 96)))
    test = KeylessSearch(LAW, KeyedStream.from_seed(1))
    test._rows = {96: rows}
    test._search = search = Search({96: rows})
    job = Job("lattice", 96, 7e-4, 2 * math.sqrt(96), 48, rows=252, reducer="blaster")
    search.unfinished = [(job, "BKZ-48")]
    (cell,) = test.evidence(alpha=0.01).details["covered"]
    assert 5e-4 < cell["beta"] < 7e-4
    search.unfinished = [(job, "deep LLL")]
    assert test.evidence(alpha=0.01).details["covered"] == []
    search.unfinished = [(replace(job, beta=1e-5), "BKZ-44")]
    (cell,) = test.evidence(alpha=0.01).details["covered"]
    assert cell["beta"] == 1e-5  # never more than it searched


def test_float32_is_named_where_its_rounding_is_wider_than_what_was_searched():
    """Drawn in float32, γ = 2√256 blurs β to 1.4e-6 or more."""
    for beta, said in ((1e-6, True), (2e-6, False)):
        test = KeylessSearch(LAW, KeyedStream.from_seed(1))
        test._search = search = Search({})
        search.completed = [Job("lattice", 256, beta, 32.0, 44)]
        (spot,) = test.evidence(alpha=0.01).blind_spots
        assert ("float32 noise at d=256, which is as if β ≥ 1e-06" in spot.says) is said


def test_above_the_measured_dimensions_reach_is_what_was_found_there():
    pytest.importorskip("blaster_core")
    (spot,) = KeylessSearch.reach(dim=256, seconds=10_000)
    assert 0 < spot.size <= 1e-7
    assert KeylessSearch.reach(dim=256, seconds=0.1) == ()
    assert KeylessSearch.reach(dim=257, seconds=10_000) == ()


@pytest.mark.slow
def test_the_best_of_many_on_the_ranking_rows_is_ordinary_on_those_held_out():
    """Of 400 on honest rows, the largest 512·R² is above 5; on the held-out rows it has mean 1."""
    rng = np.random.default_rng(8)
    ranked, held, p = [], [], []
    for _ in range(60):
        rows = Rows(6)
        rows.add(rng.standard_normal((2048, 6)))
        u = rng.standard_normal((400, 6))
        u *= rng.uniform(0.25, 3, (400, 1)) / np.linalg.norm(u, axis=1, keepdims=True)
        best = u[resonance(rows.check, u).argmax()]
        ranked.append(512 * resonance(rows.check, best)[0] ** 2)
        held.append(512 * resonance(rows.held_out, best)[0] ** 2)
        p.append(confirm(rows.held_out, best))
    assert np.mean(ranked) > 5
    assert np.mean(held) < 1.4
    for share in (0.5, 0.1, 0.01):
        assert np.mean(np.array(p) <= share) <= share


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_sixty_searches_of_honest_noise_confirm_nothing():
    pytest.importorskip("fpylll")
    for i in range(60):
        evidence = run(honest([3, 8, 12], seed=100 + i), limit=2)
        assert evidence.p > 0.01, i
