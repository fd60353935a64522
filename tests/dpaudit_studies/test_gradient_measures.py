"""The measures on gradients: the game's ends, sums, and published values by row."""

import math

import pytest
import torch
from command_line import here

from dpaudit.errors import SpecError, UsageError
from dpaudit.experiments.measure import Cell, gather_rows, read_grid, summary
from dpaudit.experiments.placement.work import threads, threads_for
from dpaudit.experiments.published import published_value
from dpaudit.experiments.run import run_cell
from dpaudit.experiments.spec_file import load_spec
from dpaudit.queries.gradients.query import GradientQuery
from dpaudit.randomness import KeyedStream
from dpaudit.training.data import load_images
from dpaudit.training.models import make_model
from dpaudit_studies.gradients import HOST, Noise, NoiseGrid, published_name
from dpaudit_studies.printed import beside_printed

GRID = {"model": "mlp", "data": "synthetic", "batch": 24, "clip": [4], "gamma": ["2sqrtd"]}
GRID |= {"epsilon": [0.5], "beta": [1e-5]}


def cell(kind="gradient-attack", *, trials=24, seed=1, **grid):
    return Cell(kind, {"grid": {**GRID, "block": 1, **grid}, "seed": seed, "trials": trials})


def rows(*cells):
    return [
        {**c.written["grid"], "trials": c.settings["trials"], **run_cell(c).outcome} for c in cells
    ]


def noises(grid):
    return read_grid(grid, NoiseGrid).noises


def test_a_cell_has_every_noise():
    found = noises({**GRID, "clip": [4, 8], "beta": ["2^-3", 1e-5]})
    assert found == tuple(Noise(c, b, "2sqrtd", 0.5) for c in (4.0, 8.0) for b in (0.125, 1e-5))


WRONG = [{"beta": b} for b in ([], "1e-5 1e-4", ["x"], [-1], ["-2^0.5"])]
WRONG += [{"clip": [0]}, {"clip": [4, 4.0]}, {"epsilon": ["0^-1"]}, {"gamma": []}]


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_noises_that_are_none(wrong):
    with pytest.raises(SpecError, match=next(iter(wrong))):
        noises({**GRID, **wrong})


@pytest.mark.parametrize("kind", ["gradient-attack", "gradient-size"])
@pytest.mark.parametrize(
    ("name", "value"), [("wieghts", "trained"), ("weights", 3), ("batch", "24"), ("block", 1.0)]
)
def test_words_that_the_grid_does_not_have(kind, name, value):
    own = {key: value for key, value in GRID.items() if kind == "gradient-attack" or key in HOST}
    with pytest.raises(SpecError, match=f"{name}={value!r}"):
        run_cell(Cell(kind, {"grid": {**own, name: value}, "seed": 1, "trials": 4}))
    del own["model"]
    with pytest.raises(SpecError, match="'model' is missing"):
        run_cell(Cell(kind, {"grid": own, "seed": 1, "trials": 4}))


def size_cell(**options):
    made = cell("gradient-size", **options)
    grid = {k: v for k, v in made.settings["grid"].items() if k in (*HOST, "block")}
    return Cell(made.kind, {**made.settings, "grid": grid})


def test_kinds_of_neighbour_have_rows_of_their_own():
    made = [size_cell(trials=2, neighbour=n) for n in ("replace", "remove")]
    table = gather_rows("gradient-size", rows(*made))
    assert [(r["neighbour"], r["trials"]) for r in table] == [("replace", 2), ("remove", 2)]


@pytest.mark.slow
def test_thin_pancakes_give_the_batch_away_and_thick_ones_do_not():
    """At β = 100 the peaks have melted: no rule exceeds Φ(Δ/2σ) = 0.516."""
    blocks = [cell(beta=[1e-5, 100], clip=[4, 8], block=b) for b in range(1, 6)]
    table = gather_rows("gradient-attack", rows(*blocks))
    assert [(r["clip"], r["beta"]) for r in table] == [(4, 1e-5), (4, 100), (8, 1e-5), (8, 100)]
    assert all(r["trials"] == 120 and r["blocks"] == 5 for r in table)
    thin, thick, thin_8, thick_8 = (r["success"] for r in table)
    assert min(thin["value"], thin_8["value"]) >= 0.98
    for share in (thick, thick_8):
        assert share["low"] < 0.53
        assert share["high"] > 0.5
    assert table[0]["diff_median"] < table[2]["diff_median"] <= 2 * 8 / 24
    assert "97" in summary("gradient-attack", [{**table[0], "success": {"value": 0.97}}])


@pytest.mark.slow
def test_a_cell_is_repeatable_and_each_block_its_own():
    first, again, other = (
        run_cell(c).outcome for c in (cell(beta=[0.3]), cell(beta=[0.3]), cell(beta=[0.3], block=2))
    )
    assert first == again
    assert first["changes"] != other["changes"]


@pytest.mark.slow
def test_the_table_adds_up_blocks():
    made = rows(cell(beta=[0.3, 0.5], trials=10), cell(beta=[0.3, 0.5], trials=7, block=2))
    table = gather_rows("gradient-attack", made)
    for at, row in enumerate(table):
        correct = sum(r["counts"][at]["correct"] for r in made)
        assert row["success"]["value"] == correct / 17
        assert row["success"]["low"] < correct / 17 < row["success"]["high"]
        assert row["gamma"] == 2 * math.sqrt(12_730)
        norms = sorted(n for r in made for n in r["changes"][0]["norms"])
        assert row["diff_median"] == norms[8]


def test_sigma_is_the_papers():
    table = gather_rows(
        "gradient-attack", rows(cell(batch=128, clip=[4, 8], epsilon=[0.125], trials=1))
    )
    assert [r["sigma"] for r in table] == pytest.approx(
        [3.1855753735998977, 6.3711507471997955], rel=1e-9
    )


@pytest.mark.parametrize(
    ("made", "error", "says"),
    [
        (cell(trials=25), SpecError, "trials=25"),
        (cell(gamma=["1"]), UsageError, "below 2√d"),
        (
            Cell("gradient-size", {"grid": {"model": "lenet6"}, "seed": 1, "trials": 4}),
            UsageError,
            "model=lenet6",
        ),
        (Cell("gradient-attack", {**cell().settings, "device": "cuda:99"}), UsageError, "cuda:99"),
    ],
    ids=["pairs", "gamma", "network", "device"],
)
def test_a_cell_that_cannot_run_is_refused(made, error, says):
    with pytest.raises(error, match=says):
        run_cell(made)


def test_one_thread_for_small_vectors_all_for_large_ones():
    before = torch.get_num_threads()
    with threads(threads_for(1000)):
        assert torch.get_num_threads() == 1
    with threads(threads_for(1 << 21)):
        assert torch.get_num_threads() == 2
    assert torch.get_num_threads() == before


@pytest.mark.slow
def test_sizes_are_those_of_the_mean_loss():
    """The gradient of the mean loss, for the batch and each neighbour: no per-sample gradient."""
    made = size_cell(trials=3)
    (row,) = rows(made)
    network, images = make_model("mlp", seed=1).double(), load_images("synthetic")
    stream = KeyedStream.from_seed(1).child("cell", made.id).child("records")
    block = GradientQuery(model="mlp", data="synthetic", batch=24, seed=1).block(3, stream=stream)

    def mean(records):
        x, y = images.batch(records, dtype=torch.float64)
        loss = torch.nn.functional.cross_entropy(network(x), y)
        gradients = torch.autograd.grad(loss, list(network.parameters()))
        return torch.cat([g.reshape(-1) for g in gradients])

    q = mean(block.records)
    assert row["squares"] == [pytest.approx(float(q.square().sum()), rel=1e-9)]
    for i, other in enumerate(block.others):
        swapped = mean([*block.records[:i], other, *block.records[i + 1 :]])
        square = float((swapped - q).square().sum())
        assert row["changes"][i] == pytest.approx(square, rel=1e-9)


def test_means_and_medians_are_of_squares():
    one = {"model": "lenet5-tanh", "converged": False, "published_as": "lenet", "note": None}
    two = [
        {**one, "squares": [1.0], "changes": [4.0, 16.0]},
        {**one, "squares": [49.0], "changes": [25.0]},
    ]
    (row,) = gather_rows("gradient-size", two)
    assert (row["l2_mean"], row["l2_median"]) == (5.0, 5.0)
    assert (row["l2_diff_mean"], row["l2_diff_median"]) == (math.sqrt(15), 4.0)
    assert row["published_l2_diff_median"] == pytest.approx(0.02401797258625956)
    assert row["ratio"] == 4.0 / row["published_l2_diff_median"]


def test_a_network_that_is_not_trained_yet_has_a_row_that_says_how(tmp_path, monkeypatch):
    monkeypatch.setenv("DPAUDIT_CHECKPOINTS", str(tmp_path))
    grid = {"model": "vgg19-bn", "weights": "trained", "data": "synthetic-colour"}
    grid |= {"norm": "record", "block": 1}
    made = Cell("gradient-size", {"grid": grid, "seed": 1, "trials": 1})
    (row,) = gather_rows("gradient-size", rows(made))
    assert "dpaudit train vgg19-bn" in row["note"]
    assert row["l2_mean"] is row["ratio"] is None
    assert row["published_l2_mean"] == pytest.approx(13.126215996497953)
    assert (row["printed_l2"], row["printed_l2_diff"]) == (13, 0.81)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "cells", "published", "trials_each", "in_print"),
    [("gpm-fig6", 384, 384, 1000, 0), ("gpm-table2", 144, 74, 100, 144)],
)
def test_every_published_value_finds_its_row(name, cells, published, trials_each, in_print):
    """Without running anything: the rows of a whole table, compared with the published file."""
    spec = load_spec(name)
    dims = {"lenet5-tanh": 61_706, "vgg19-bn": 38_958_922}
    dims |= {"resnet50": 23_520_842, "mobilenet-v2": 2_236_682}
    found, printed, trials = [], [], {}
    for c in spec.cells():
        grid = c.settings["grid"]
        for s in noises(grid):
            row = {"clip": s.clip, "beta": s.beta, "gamma_as": s.gamma_as, "epsilon": s.epsilon}
            root = math.sqrt(dims[grid["model"]])
            row |= {"success": {"value": 1.0}, "converged": grid["weights"] == "trained"}
            row |= {"gamma": float(s.gamma_as.removesuffix("sqrtd")) * root}
            row |= {"published_as": published_name(grid["model"])}
            key = (grid["model"], grid["weights"], s)
            if key not in trials:
                found.append(published_value(spec.published, row))
                printed.append(beside_printed("table2", row, trials=100)["printed"])
            trials[key] = trials.get(key, 0) + spec.trials
    assert len(trials) == cells
    assert sum(value is not None for value in found) == published
    assert sum(value is not None for value in printed) == in_print
    assert set(trials.values()) == {trials_each}


@pytest.mark.parametrize("name", ["gpm-fig6", "gpm-table2", "gpm-table2-small", "gpm-table3"])
def test_columns_and_figures_name_what_rows_have(name):
    spec = load_spec(name)
    grid = {"model": "mlp", "data": "synthetic", "norm": "record", "weights": "untrained"}
    grid |= {"dtype": "float32", "block": 1}
    if spec.measure == "gradient-attack":
        grid = {**spec.cells()[0].settings["grid"], **GRID, "norm": "record"}
    made = Cell(spec.measure, {"grid": grid, "seed": 1, "trials": 1})
    known = {*gather_rows(spec.measure, rows(made))[0], "published", "agrees"}
    assert {column["key"] for column in spec.columns} <= known
    for figure in spec.figures:
        assert {figure["x"], figure["y"], figure["series"], *figure["panels"]} <= known


def test_a_table_without_columns_is_refused_before_the_run(tmp_path):
    path = tmp_path / "x.toml"
    path.write_text(
        'name = "x"\nmeasure = "gradient-attack"\n[grid]\nmodel = "mlp"\nclip = 4\nbeta = 1e-3\n'
        'gamma = "2sqrtd"\nepsilon = 0.5\n'
    )
    done = here("run", path, "--out", tmp_path / "out")
    assert (done.returncode, "[[column]] is missing" in done.stderr) == (2, True)
    assert not (tmp_path / "out").exists()
