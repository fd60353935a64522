"""The estimate of a pancake's hardness: against lattices that are built, and published values."""

import importlib
import json
import math
import tomllib
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from dpaudit.accounting import hardness
from dpaudit.accounting.hardness import blur, estimate, log_delta, log_volume, measured
from dpaudit.errors import UsageError
from dpaudit.noise.pancake import Pancake
from dpaudit.randomness import KeyedStream
from dpaudit.training.models import MODELS
from dpaudit_studies.evidence import hardness as evidence

ROOT = Path(__file__).parents[3]
SPECS = Path(importlib.import_module("dpaudit_studies").__file__).parent / "specs"


def at(d, beta, **options):
    return estimate(d, beta, 2 * math.sqrt(d), **options)


@pytest.fixture
def built(make_key):
    """C of equation (1) for the shortest of real rows, and the hidden k: independent of (3)."""

    def build(dim, beta, *, n, drawn, tag, gamma="2sqrtd"):
        key = make_key(dim=dim, beta=beta, gamma=gamma, tag=tag, allow_small_gamma=True)
        x = Pancake(key=key).sample(drawn, dim, stream=KeyedStream.from_seed(f"rows {tag}"))
        norm = np.linalg.norm(x, axis=1)
        x = x[np.argsort(np.where(norm < 2, np.inf, norm))[:n]]
        r2 = key.beta**2 + key.gamma**2
        f = r2 / (key.gamma * math.sqrt(2 * math.pi))
        s = key.beta * math.sqrt(r2) / (key.gamma * math.sqrt(2 * math.pi))
        return x, np.rint(x @ key.direction * f), f**2 / dim * x @ x.T + s**2 * np.eye(n), key

    return build


@pytest.mark.parametrize(
    ("dim", "beta", "n", "drawn"), [(8, 0.1, 40, 9000), (24, 0.01, 60, 9000), (48, 1e-5, 66, 300)]
)
def test_the_volume_is_that_of_a_lattice_that_is_built(built, dim, beta, n, drawn):
    _, _, c, key = built(dim, beta, n=n, drawn=drawn, tag="volume")
    truth = -np.linalg.slogdet(c)[1] / 2
    claimed = log_volume(dim, beta, key.gamma, rows=n, drawn=drawn)
    assert claimed / n == pytest.approx(truth / n, abs=0.02)  # of about 2 to 9


def test_fpylll_gives_the_same_volume(built):
    fpylll = pytest.importorskip("fpylll")
    _, _, c, key = built(12, 0.05, n=30, drawn=5000, tag="fpylll")
    value, vector = np.linalg.eigh(c)
    basis = np.rint(2**20 * vector / np.sqrt(value)).astype(int)
    gso = fpylll.GSO.Mat(fpylll.IntegerMatrix.from_matrix(basis.tolist()))
    gso.update_gso()
    found = gso.get_log_det(0, 30) / 2 - 30 * 20 * math.log(2)
    assert found / 30 == pytest.approx(
        log_volume(12, 0.05, key.gamma, rows=30, drawn=5000) / 30, abs=0.02
    )


def test_the_hidden_vector_has_one_standard_deviation_per_coordinate(built):
    squares = []
    for i in range(12):
        _, k, c, _ = built(16, 0.05, n=50, drawn=2000, tag=f"k{i}")
        squares.append(k @ np.linalg.solve(c, k) / len(k))
    assert np.mean(squares) == pytest.approx(1, abs=4 * math.sqrt(2 / 50 / 12))


def test_the_shortest_rows_are_as_short_as_said():
    x = np.random.default_rng(20261123).standard_normal((40_000, 8))
    norm = np.sort(np.square(x).sum(1))
    norm = norm[norm >= 4][:300]
    said = hardness._shortness(8, np.array([300.0]), 40_000)[0]
    assert said == pytest.approx(norm.mean() / 8, rel=0.02)
    longer_than_2 = np.square(x).sum(1)
    all_of_them = longer_than_2[longer_than_2 >= 4].mean() / 8
    said = hardness._shortness(8, np.array([9000.0]), 100)[0]
    assert said == pytest.approx(all_of_them, rel=0.01)


def test_root_hermite_factors_are_the_published_ones():
    deltas = np.exp(log_delta(np.array([2.0, 20.0, 40.0, 50.0, 100.0, 808.0])))
    assert deltas == pytest.approx([1.0219, 1.0142, 1.01295, 1.0121, 1.0093, 1.0024], abs=6e-5)


def test_block_sizes_as_first_worked_out():
    first = {(128, 1e-4): 30, (128, 5e-4): 66, (192, 1e-5): 54, (256, 1e-6): 66, (256, 1e-5): 101}
    for (d, beta), block in first.items():
        found = at(d, beta)
        assert (found.attack, found.block) == ("lattice", pytest.approx(block, abs=1))
    assert found.log2_operations == pytest.approx(58, abs=0.5)  # the paper's smallest setting
    assert found.lattice.log2_core_svp == pytest.approx(0.292 * found.block)
    assert found.within_reach
    assert not at(256, 1e-3).within_reach
    assert at(38_958_922, 1e-3).log2_operations > 1e6
    assert at(10**12, 1e-300).seconds == math.inf


def test_blur_is_what_rounding_adds():
    import torch

    x = np.random.default_rng(20261123).standard_normal(100_000)
    for said, rounded in (
        (blur("float32"), x.astype("float32")),
        (blur("float16"), x.astype("float16")),
        (blur("bfloat16"), torch.from_numpy(x).to(torch.bfloat16).double().numpy()),
        (blur(step=0.1), np.rint(x / 0.1) * 0.1),
    ):
        assert np.std(rounded - x) == pytest.approx(said, rel=0.01)
    assert blur(step=0.3, tau=0.4) == pytest.approx(math.hypot(0.3 / math.sqrt(12), 0.4))


def test_float32_noise_cannot_have_a_smaller_beta(make_key):
    """The measured phase of rounded noise is that of ``effective_beta``; drawn noise: √3 times."""
    import torch

    key = make_key(dim=256, beta=1e-9)
    noise = Pancake(key=key)
    f = math.hypot(key.beta, key.gamma) ** 2 / (key.gamma * math.sqrt(2 * math.pi))

    def beta_of(x):
        turns = np.asarray(x, np.float64) @ key.direction * f
        return np.std(turns - np.rint(turns)) * math.sqrt(2 * math.pi)

    said = estimate(256, 1e-9, key.gamma, dtype="float32").effective_beta
    assert said == pytest.approx(8.1e-7, rel=0.01)
    stream = KeyedStream.from_seed("float32")
    rounded = noise.sample(3000, 256, stream=stream.child(0)).astype(np.float32)
    assert beta_of(rounded) == pytest.approx(said, rel=0.06)
    drawn = noise.sample(3000, 256, stream=stream.child(1), dtype=torch.float32).numpy()
    assert beta_of(drawn) == pytest.approx(math.sqrt(3) * said, rel=0.06)


def test_blur_hides_from_the_lattice_what_a_larger_beta_would():
    for options in ({"tau": 1e-3}, {"step": 1e-3 * math.sqrt(12)}):
        same = at(128, math.hypot(1e-6, 1e-3 * 2 * math.sqrt(128)))
        assert at(128, 1e-6, **options).block == pytest.approx(same.block, abs=1)
    assert at(128, 1e-6, tau=0.5).lattice is None


@pytest.mark.parametrize(("gamma", "samples"), [(1.0, 5e2), (1.5, 2e5), (2.0, 4e9)])
def test_the_covariance_needs_as_many_samples_as_measured(gamma, samples):
    (found,) = (a for a in estimate(32, 1e-3, gamma).attacks if a.name == "covariance")
    assert 2**found.log2_samples == pytest.approx(samples, rel=0.3)


def test_the_variance_along_w_by_its_sum_and_by_its_formula():
    below, above = (estimate(9, 1e-9, g).attacks for g in (1.9999999, 2.0))
    sums, formula = (next(a for a in e if a.name == "covariance") for e in (below, above))
    assert sums.log2_samples == pytest.approx(formula.log2_samples, abs=1e-3)


def test_the_cheapest_attack_by_gamma_and_dimension():
    assert estimate(4096, 1e-3, 1.0).attack == "covariance"
    assert estimate(64, 1e-3, 16.0).attack == "lattice"
    assert estimate(2, 0.3, 2.9).attack == "directions"
    wide = at(12, 0.7)
    assert (wide.attack, wide.lattice, wide.rows, wide.block) == ("directions", None, None, None)
    assert estimate(32, 1e-3, 0.3).lattice is None
    assert all(at(d, 0.55).lattice and at(d, 0.59).lattice is None for d in (8, 32, 256))
    # as many rows as the asymptotic results take are too few in float64
    assert at(48, 1e-99, rows=50).lattice is None
    assert at(48, 1e-3, rows=87).block == 2


def test_what_makes_it_harder():
    for hard in (
        [at(d, 1e-4) for d in (64, 96, 128, 192, 256, 4096, 65536)],
        [at(128, b) for b in (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1)],
        [estimate(128, 1e-4, g * math.sqrt(128)) for g in (2, 20, 200)],
        [at(24, 0.1, drawn=n) for n in (10**7, 30_000, 400, 1)],
        [at(12, b) for b in (0.1, 0.2, 0.3, 0.4)],
        [at(256, 1e-8, dtype=t) for t in ("float64", "float32", "bfloat16")],
    ):
        assert all(a.log2_operations < b.log2_operations for a, b in pairwise(hard))


def test_no_other_number_of_rows_is_cheaper():
    best = at(128, 1e-4)
    others = [at(128, 1e-4, rows=n).log2_operations for n in range(130, 700, 5)]
    assert best.log2_operations <= min(others) + 1e-3
    assert at(128, 1e-4, rows=best.rows).block == best.block


def test_a_sieve_of_the_whole_lattice_is_taken_where_it_is_cheaper():
    found = at(24, 0.4).lattice
    assert found.block == found.rows
    assert found.log2_operations == pytest.approx(0.292 * found.rows + 16.4, abs=0.1)
    by_blocks = at(64, 0.01).lattice
    assert by_blocks.block < by_blocks.rows
    assert by_blocks.log2_operations == pytest.approx(
        0.292 * by_blocks.block + 16.4 + math.log2(8 * by_blocks.rows), abs=0.1
    )


def test_where_it_was_found_the_estimate_says_so():
    """Each measured find has a block size by (5), not far above the one that it took."""
    for cell in measured():
        if cell.found:
            assert cell.estimated_block <= cell.block + 19
        else:
            assert cell.estimated_block >= 54
        if cell.source != "elsewhere" and (cell.clock == "wall" or cell.seconds >= 1):
            assert 1 / 4 < cell.estimated_seconds / cell.seconds < 4


@pytest.mark.parametrize("name", evidence.RUNS)
def test_a_run_says_which_reducer_it_measures(name):
    """What is installed would decide otherwise, and the table names fpylll."""
    cases = tomllib.loads((SPECS / f"{name}.toml").read_text("utf-8"))["grid"]["case"]
    assert {case["by"] for case in cases} == {"fpylll"}


def test_constants_and_table_are_those_of_the_benchmark():
    table = ROOT / "dpaudit" / "accounting" / "hardness.csv"
    assert evidence.table(measured()) == table.read_text("utf-8")
    of_runs = {cell for cell in measured() if cell.source in evidence.RUNS}
    assert of_runs == set(evidence.from_results(evidence.RUNS))
    for reducer, (first, second, _) in hardness.FITTED.items():
        cells = evidence.fitted_to([cell for cell in measured() if cell.reducer == reducer])
        best = evidence.off_by(cells, *evidence.fit(cells))
        assert best <= evidence.off_by(cells, first, second) < 1.1 * best  # kept while so close
        assert evidence.off_by(cells, 2 * first, 2 * second) > 1.1 * best


@pytest.mark.parametrize(
    ("args", "options", "says"),
    [
        ((1, 0.1, 3), {}, "dim=1"),
        ((8, 0.0, 3), {}, "beta=0.0"),
        ((8, 0.1, math.inf), {}, "gamma=inf"),
        ((8, math.nan, 3), {}, "beta=nan"),
        ((8, 0.1, 3), {"dtype": "float8"}, "dtype=float8.*float64"),
        ((8, 0.1, 3), {"rows": 9}, "rows=9.*10"),
        ((8, 0.1, 3), {"tau": -1.0}, "tau=-1.0"),
        ((8, 0.1, 3), {"step": math.nan}, "step=nan"),
        ((8, 0.1, 3), {"drawn": 0}, "samples=0"),
    ],
)
def test_bad_numbers_are_refused(args, options, says):
    with pytest.raises(UsageError, match=says):
        estimate(*args, **options)


def test_the_cells_of_the_frontier_are_read_one_per_cell(tmp_path, monkeypatch):
    monkeypatch.setattr(evidence, "RESULTS", tmp_path)
    read = evidence.from_points
    assert list(read()) == []
    plain = {"d": 96, "beta": 1e-4, "gamma": 19.6, "n": 225, "dtype": "float64", "step": 0.0}
    plain |= {"searched_beta": 1e-4, "searched_gamma": 19.6, "differences": False, "directions": 1}
    plain |= {"reducer": "blaster", "block": 2, "reduction": "deep LLL", "found": True}
    points = [
        plain | {"cpu_seconds": 2.0},
        plain | {"cpu_seconds": 4.0, "block": 30, "reduction": "BKZ-30"},
        plain | {"found": False, "cpu_seconds": 99.0, "block": 64, "reduction": "BKZ-64"},
        *(plain | {"cpu_seconds": 7.0} | odd for odd in ({"dtype": "float32"}, {"step": 0.1})),
        plain | {"cpu_seconds": 7.0, "searched_beta": 1e-3},
    ]
    path = tmp_path / "keyless-frontier" / "points.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(points))
    (cell,) = read()
    assert (cell.dim, cell.rows, cell.found, cell.keys) == (96, 225, 2, 3)
    assert (cell.reduction, cell.block, cell.seconds) == ("BKZ-30", 30, 3.0)
    assert (cell.reducer, cell.source) == ("BLASter", "keyless-frontier")


@pytest.mark.slow
def test_the_papers_settings_are_those_of_the_experiments():
    """Each (d, γ, β) of the specs of Figure 5, Figure 6 and Table 2, once."""

    def spec(name):
        return tomllib.loads((SPECS / f"gpm-{name}.toml").read_text(encoding="utf-8"))

    def number(text):
        base, _, power = str(text).partition("^")
        return float(base) ** float(power or 1)

    fig5 = spec("fig5")
    want = {
        (d, g, b)
        for d in fig5["host"]["bins"]
        for g in fig5["key"]["gamma"]
        for b in fig5["key"]["beta"]
    }
    for grid in (spec("fig6")["grid"], spec("table2")["grid"]):
        models = grid["model"] if isinstance(grid["model"], list) else [grid["model"]]
        want |= {
            (MODELS[m].parameters, g, number(b))
            for m in models
            for g in grid["gamma"]
            for b in grid["beta"]
        }
    settings = list(evidence.paper())
    shown = [(row["dim"], row["gamma"], row["beta"]) for row in settings]
    assert set(shown) == want
    assert len(shown) == len(want) == 93
    assert [row["beta"] for row in settings if row["within_reach"]] == [1e-5]
