"""The keyless search's parts in this process: lattice, easy cases, confirmation, plan."""

import math

import numpy as np
import pytest
import torch

from dpaudit.errors import KeyFileError, UsageError
from dpaudit.noise.pancake import Pancake
from dpaudit.randomness import KeyedStream
from dpaudit.testing import check_attack
from dpaudit_attacks.keyless.candidates import (
    confirm,
    estimate,
    from_covariance,
    from_scan,
    fundamental,
    refine,
    resonance,
)
from dpaudit_attacks.keyless.form import rows_for
from dpaudit_attacks.keyless.lattice import Reduction, find_direction
from dpaudit_attacks.keyless.plan import (
    Cell,
    Job,
    beta_reached,
    covered_cells,
    describe_cells,
    jobs,
)
from dpaudit_attacks.keyless.proof import RecoveredDirection
from dpaudit_attacks.keyless.recovered import save
from dpaudit_attacks.keyless.reduction.with_blaster import BlasterReducer
from dpaudit_attacks.keyless.reduction.with_fpylll import FpylllReducer
from dpaudit_attacks.keyless.search import Rows


@pytest.fixture
def specimen(make_key):
    """Rows (n, d) of a pancake with σ = 1, and its key."""

    def make(n, *, dim, beta, gamma="2sqrtd", tag="a"):
        key = make_key(dim=dim, beta=beta, gamma=gamma, tag=tag, allow_small_gamma=True)
        stream = KeyedStream.from_seed(f"noise {tag}")
        return Pancake(key=key).sample(n, dim, stream=stream), key

    return make


def true_u(key):
    return key.direction * (key.beta**2 + key.gamma**2) / (key.gamma * math.sqrt(2 * math.pi))


def cosine(u, key):
    return abs(u @ key.direction) / np.linalg.norm(u)


def best(x, **options):
    return max(find_direction(x, **options), key=lambda c: c.score)


@pytest.mark.slow
def test_too_wide_peaks_are_not_found(specimen):
    """The other side of the threshold, so that 'found' means something."""
    pytest.importorskip("fpylll")
    x, key = specimen(4000, dim=24, beta=0.4)
    found = best(x[600:], beta=0.3, gamma=key.gamma, reduction=Reduction(block=20), check=x[:600])
    assert cosine(found.u, key) < 0.9
    assert confirm(x[:600], found.u) > 1e-6


@pytest.mark.parametrize(("beta", "says"), [(0.1, r"d \+ 2"), (0, "beta=0")])
def test_few_rows_and_bad_parameters_are_refused(beta, says):
    with pytest.raises(UsageError, match=says):
        next(find_direction(np.zeros((9, 8)), beta=beta, gamma=5.0))


@pytest.mark.parametrize(
    ("dim", "beta", "gamma", "rows", "found"),
    [
        (32, 0.05, 1.0, 4000, from_covariance),
        (2, 0.2, 6.0, 600, lambda x: from_scan(x)[:1]),
    ],
    ids=["covariance", "scan"],
)
def test_small_gamma_shows_in_the_covariance_and_few_dimensions_are_scanned(
    specimen, dim, beta, gamma, rows, found
):
    x, key = specimen(rows + 600, dim=dim, beta=beta, gamma=gamma)
    u = min((refine(x[600:], u) for u in found(x[600:])), key=lambda u: confirm(x[:600], u))
    assert cosine(u, key) > 0.99
    assert confirm(x[:600], u) < 1e-9


@pytest.mark.parametrize(("dim", "beta", "gamma", "most"), [(8, 0.05, 1.8, 4), (3, 1e-5, 4.0, 6)])
def test_a_harmonic_is_traced_to_its_fundamental(specimen, dim, beta, gamma, most):
    """At γ = 1.8, β = 0.05 the search once found 2u, with an interval that excluded the truth."""
    x, key = specimen(1024, dim=dim, beta=beta, gamma=gamma)
    check, held = x[:512], x[512:]
    for times in range(1, most + 1):
        u = fundamental(check, refine(check, times * true_u(key)))
        e = estimate(check, held, u)
        assert np.linalg.norm(u) == pytest.approx(np.linalg.norm(true_u(key)), rel=0.02)
        assert e.gamma == pytest.approx(key.gamma, rel=0.02)
        assert e.beta_low * 0.9 < key.beta < e.beta_high * 1.1


def test_a_fundamental_is_left_alone_and_noise_too():
    rng = np.random.default_rng(3)
    x = rng.standard_normal((512, 4))
    for _ in range(50):
        u = rng.standard_normal(4) * 3
        assert np.linalg.norm(fundamental(x, u)) <= np.linalg.norm(u) * 1.5


def test_resonance_is_what_theory_says(specimen):
    x, key = specimen(20_000, dim=16, beta=0.2)
    r2 = key.beta**2 + key.gamma**2
    assert resonance(x, true_u(key))[0] == pytest.approx(
        math.exp(-math.pi * 0.04 * r2 / key.gamma**2), abs=0.01
    )
    noise = np.random.default_rng(5).standard_normal((20_000, 2))
    assert resonance(noise, np.array([0.3, 0.0]))[0] < 0.03  # its expectation, 0.17, is taken out


def test_confirmation_is_valid_and_not_far_from_sharp():
    """On honest rows P(p ≤ a) ≤ a, and n·R² has mean 1: the bound is for this statistic."""
    rng = np.random.default_rng(17)
    u = np.array([1.1, -0.6, 2.0])
    p, square = [], []
    for _ in range(1500):
        x = rng.standard_normal((128, 3))
        p.append(confirm(x, u))
        square.append(128 * resonance(x, u)[0] ** 2)
    assert np.mean(square) == pytest.approx(1, abs=0.12)
    assert all(np.mean(np.array(p) <= a) <= a for a in (0.3, 0.1, 0.03, 0.01))
    assert confirm(x, np.array([0.1, 0.0, 0.0])) == 1
    assert confirm(x, np.array([3e7, 0.0, 0.0])) == 1


@pytest.mark.slow
def test_the_best_wrong_candidate_of_a_search_is_super_uniform():
    """60 searches of honest noise: the best candidate's p-value on rows it never saw."""
    pytest.importorskip("fpylll")
    rng = np.random.default_rng(23)
    p, own = [], []
    for _ in range(60):
        x = rng.standard_normal((500, 5))
        found = best(
            x[200:],
            beta=0.2,
            gamma=2 * math.sqrt(5),
            reduction=Reduction(block=20),
            check=x[200:360],
        )
        p.append(confirm(x[:200], found.u))
        own.append(confirm(x[200:360], found.u))
    assert min(p) > 1e-4
    assert all(
        sum(value <= a for value in p) <= 60 * a + 4 * math.sqrt(60 * a) for a in (0.01, 0.05, 0.2)
    )
    assert np.mean(own) < np.mean(p)  # the rows that ranked it would have flattered it


def test_estimates_cover(specimen):
    """β, γ and w of twenty specimens: the intervals miss about one in twenty, and never by much."""
    inside_beta = inside_gamma = 0
    for i in range(20):
        x, key = specimen(1000, dim=8, beta=0.05, tag=f"cover{i}")
        u = refine(x[:500], true_u(key) * (1 + 1e-3))
        e = estimate(x[:500], x[500:], u)
        inside_beta += e.beta_low <= key.beta <= e.beta_high
        inside_gamma += e.gamma_low <= key.gamma <= e.gamma_high
        assert e.beta == pytest.approx(0.05, rel=0.15)
        assert math.acos(min(1, abs(np.dot(e.direction, key.direction)))) < 4 * e.angle
    assert inside_beta >= 16
    assert inside_gamma >= 16


@pytest.mark.slow
def test_recovered_direction_reads_releases(specimen, make_key, tmp_path):
    """At d = 32, β = 1e-3: D is told from D′ nearly always, by what was recovered and no key."""
    pytest.importorskip("fpylll")
    x, key = specimen(3000, dim=32, beta=1e-3)
    found = best(
        x[1000:], beta=1e-3, gamma=key.gamma, reduction=Reduction(block=20), check=x[500:1000]
    )
    e = estimate(x[500:1000], x[:500], refine(x[500:1000], found.u))
    path = tmp_path / "recovered.json"
    details = {"d": 32, "w": e.direction, "beta": e.beta, "gamma": e.gamma}
    save(details, path)
    attack = RecoveredDirection(recovered=str(path), sigma=2.0)
    check_attack(attack, dim=32)
    pair, truth = torch.zeros(2, 32, dtype=torch.float64), torch.arange(1000) % 2
    pair[1, 5] = 0.5

    def right(key):
        stream = KeyedStream.from_seed("releases")
        noise = Pancake(key=key, sigma=2.0).sample(1000, 32, stream=stream, dtype=torch.float64)
        return int((attack.score(noise + pair[truth], pair).argmax(1) == truth).sum())

    assert right(key) > 980
    assert right(make_key(dim=32, tag="other")) < 650
    with pytest.raises(KeyFileError, match="exists"):
        save(details, path)
    path.chmod(0o644)
    with pytest.raises(KeyFileError, match="0600"):
        RecoveredDirection(recovered=str(path), sigma=2.0)
    with pytest.raises(UsageError, match="needs w"):
        RecoveredDirection(recovered={"beta": 1}, sigma=1.0)


def test_rows_are_split_by_place_and_bounded():
    rng = np.random.default_rng(1)
    x = rng.standard_normal((40_000, 6))
    rows = Rows(6)
    for start in range(0, len(x), 777):
        rows.add(x[start : start + 777])
    assert (rows.held_out == x[:2048:4]).all()
    assert (rows.check == x[1:2048:4]).all()
    norm = np.linalg.norm(rows.pool, axis=1)
    assert len(norm) <= 2 * (4 * 6 + 64)
    assert norm.min() >= 2
    free = np.linalg.norm(np.concatenate([x[2:2048:4], x[3:2048:4], x[2048:]]), axis=1)
    assert np.sort(norm)[:80] == pytest.approx(np.sort(free[free >= 2])[:80])


REDUCERS = {"fpylll": (FpylllReducer(),), "both": (FpylllReducer(), BlasterReducer())}


@pytest.mark.parametrize("reducers", REDUCERS.values(), ids=REDUCERS)
def test_no_dimension_is_planned_without_a_lattice(reducers):
    """Once all of d ≥ 88 were left out, as the β wanted there takes more than 230 rows."""
    for d in (2, 3, 4, 7, 12, 24, 48, 64, 80, 87, 88, 89, 96, 100, 113, 128):
        for shrink in (0.8, 1.0):
            plan = jobs({d: shrink}, seconds=15, reducers=reducers)
            for times in (2, 20):
                job = next(job for job in plan if job.gamma == pytest.approx(times * d**0.5))
                assert job.kind == "lattice"
                assert d + 6 <= job.rows <= reducers[-1].most_rows
                assert 1e-9 <= job.beta <= 0.25


def test_the_plan_covers_every_dimension_in_time_then_goes_on():
    dims = dict.fromkeys((2, 3, 4, 5, 7, 8, 12, 13, 16), 0.7) | dict.fromkeys((24, 32, 48), 0.8)
    dims |= {64: 0.8, 96: 0.936, 128: 0.944}  # what the default audit draws
    plan = jobs(dims, seconds=15, reducers=REDUCERS["both"])
    spent, first = 0.0, []
    for job in plan:
        spent += job.cost
        if spent > 30:
            break
        first.append(job)
    reached = {job.d: job.beta for job in first if job.gamma == 2 * math.sqrt(job.d)}
    assert reached.keys() == dims.keys()
    assert all(job.easy for job in first if job.gamma == 2 * math.sqrt(job.d))
    assert reached[96] > 3e-4
    assert reached[128] > 1.05e-4
    assert {job.d for job in first[:2]} == {96, 128}  # they decide when all end
    assert max(job.cost for job in first) <= 15
    more = [job.cost for job in plan[len(first) :]]
    assert more == sorted(more)
    assert {job.d for job in plan if job.gamma > 10 * math.sqrt(job.d)} == dims.keys()
    none = jobs(dims, seconds=15)
    assert {(job.kind, job.d) for job in none} == {("easy", d) for d in dims}


def test_what_is_covered_is_counted_once():
    done = [Job("easy", 8), Job("lattice", 8, 0.1, 5.0), Job("lattice", 8, 0.2, 5.0)]
    done += [Job("lattice", 8, 0.05, 50.0), Job("lattice", 8, 0.04, 20.0)]
    assert covered_cells(done) == (Cell(8, 0.2, 5.0), Cell(8, 0.05, 50.0))
    said = describe_cells((Cell(16, 0.1, 8.0), Cell(4, 0.2, 4.0), Cell(4, 0.1, 40.0)))
    assert said == "d=16 (β ≤ 0.1), d=4 (β ≤ 0.2) at γ ≤ 2√d; d=4 (β ≤ 0.1) at γ ≤ 20√d"


def test_rows_and_reach_follow_the_estimate():
    reach = [beta_reached(d, gamma=2 * math.sqrt(d), block=40) for d in (8, 16, 32, 64)]
    assert reach == sorted(reach, reverse=True)
    assert rows_for(32, beta=0.01, gamma=11.3) < rows_for(32, beta=0.05, gamma=11.3)
    # where even a strong reduction is not enough
    best_n = math.sqrt(32 * math.log(11.3 * 1.9 / 0.1) / 0.0129)
    assert rows_for(32, beta=0.1, gamma=11.3) == pytest.approx(best_n, rel=0.15)
