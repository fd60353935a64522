"""Shards: every cell in exactly one, and a merge that is one run or says why it cannot be."""

import json
import shutil
from dataclasses import replace

import command_line
import pytest
from planted import SPEC as PLANTED
from planted import install

from dpaudit import registry
from dpaudit.errors import StoreError, UsageError
from dpaudit.experiments import Store, load_spec, run_experiment
from dpaudit.experiments.merge import merge
from dpaudit.experiments.shard import Shard
from dpaudit.experiments.store.queries import attempts, trial_columns
from dpaudit.types import to_dict

SPEC = """
name = "small"
seed = 3
epsilon = [0.5, 1.0]
delta = 1e-10
trials = 20
keep_trials = true
host = { name = "histogram", table = "uniform", bins = [16, 64] }
key = { beta = 1e-3, gamma = "2sqrtd" }
source = [{ name = "gaussian" }, { name = "pancake" }]
attack = [{ name = "nearest-peak" }]
"""
CELLS = 8


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """One run of the whole, ``one``, and three shards, ``1`` to ``3``, by the command line."""
    folder = tmp_path_factory.mktemp("shards")
    (folder / "small.toml").write_text(SPEC)
    for out, more in (("one", ()), *((str(i), ("--shard", f"{i}/3")) for i in (1, 2, 3))):
        told = command_line.here("run", "small.toml", "--out", out, *more, cwd=folder)
        assert told.returncode == 0, told.stderr
    return folder


@pytest.fixture
def parts(made, tmp_path):
    """The three shards, to change."""
    for name in "123":
        shutil.copytree(made / name, tmp_path / name)
    return [tmp_path / name for name in "123"]


def changed(part, change, *, keep=True):
    """The store ``part`` made again, with each result as ``change`` gives it."""
    with Store.read(part) as store:
        spec, shard, results = store.spec, store.shard, store.results()
    shutil.rmtree(part)
    with Store.create(part, spec=spec, shard=shard) as store:
        store.add_all([(9 * keep, change(result)) for result in results])


def document(folder):
    """``results.json`` without times."""
    found = json.loads((folder / "results.json").read_text())
    for cell in (found, *found["cells"]):
        cell.pop("seconds", None)
        cell["provenance"].pop("started")
    return json.dumps(found)


def rows(folder):
    with Store.read(folder) as store:
        return {r.cell: to_dict(r.outcome) for r in store.results()}


# ---------------------------------------------------------------- shares


@pytest.mark.parametrize("text", ["0/3", "4/3", "1", "1/0", "a/b", "1/3/3", "-1/3", "١/٣", ""])
def test_what_is_no_shard(text):
    with pytest.raises(UsageError, match="must be I/N"):
        Shard.parse(text)


def test_each_cell_is_in_one_shard_and_similar_cells_are_in_different_ones(tmp_path):
    path = tmp_path / "s.toml"
    path.write_text(f"{SPEC}[audit]\nsamples = 1000\n")
    cells = load_spec(str(path)).cells()
    assert len(cells) == 16
    for of in (1, 2, 3, 7, 50):
        shares = [Shard(i + 1, of).share(cells) for i in range(of)]
        assert sorted(p for share in shares for p, _ in share) == list(range(len(cells)))
        assert all(cells[p] is cell for share in shares for p, cell in share)
        assert all(share == tuple(sorted(share, key=lambda item: item[0])) for share in shares)
        for kinds in ({"audit"}, {"attack"}, {"audit", "attack"}):
            sizes = [sum(cell.kind in kinds for _, cell in share) for share in shares]
            assert max(sizes) - min(sizes) <= 1


def test_no_shard_has_all_cells_of_one_value_of_an_axis(tmp_path):
    """β alternates: dealt by position, one of two shards would have all cells of one β."""
    path = tmp_path / "s.toml"
    many = f"epsilon = {[i / 8 for i in range(1, 9)]}"
    text = SPEC.replace("epsilon = [0.5, 1.0]", many).replace("beta = 1e-3", "beta = [1e-3, 2.0]")
    path.write_text(text)
    cells = load_spec(str(path)).cells()
    for i in (1, 2):
        betas = [cell.settings["key"]["beta"] for _, cell in Shard(i, 2).share(cells)]
        assert len(betas) == 32
        assert 8 <= betas.count(2.0) <= 24


# ---------------------------------------------------------------- what a merge is


@pytest.mark.slow
def test_a_merge_is_the_one_run_byte_for_byte(made, tmp_path):
    told = command_line.here("runs", "merge", tmp_path / "all", *(made / i for i in "123"))
    assert (told.returncode, "report" in told.stderr) == (0, True)
    assert "pancake" in told.stdout
    assert document(tmp_path / "all") == document(made / "one")
    assert (tmp_path / "all" / "report.html").is_file()
    with Store.read(tmp_path / "all") as merged, Store.read(made / "one") as one:
        assert trial_columns(merged) == trial_columns(one)
        assert (merged.spec, merged.cells, merged.shard) == (one.spec, CELLS, "")
        assert {a.worker[:9] for a in attempts(merged)} == {f"shard {i}/3" for i in (1, 2, 3)}
    told = command_line.here("run", "small.toml", "--out", tmp_path / "all", "--resume", cwd=made)
    assert told.returncode == 0
    with Store.read(tmp_path / "all") as merged:
        assert len(attempts(merged)) == CELLS


@pytest.mark.slow
def test_a_shard_has_no_table_and_says_what_comes_next(made):
    assert not (made / "1" / "report.html").exists()
    again = ("run", "small.toml", "--out", "1", "--shard", "1/3", "--resume")
    told = command_line.here(*again, cwd=made)
    assert "3 of its 3 cells are done" in told.stdout
    assert "dpaudit runs merge OUT 1" in told.stderr
    listed = json.loads(command_line.here("runs", "list", made, "--format", "json").stdout)
    found = {r["shard"]: r["cells"] for r in listed}
    assert found == {"": 8, "1/3": 3, "2/3": 3, "3/3": 2}


def test_a_shard_without_cells_is_a_part(made, tmp_path):
    told = command_line.here("run", "small.toml", "--shard", "9/9", "--format", "json", cwd=made)
    assert told.returncode == 0
    assert json.loads(told.stdout)["cells"] == 0
    assert merge(tmp_path / "all", [made / "runs/small-9of9", *(made / i for i in "123")]) == 0


@pytest.mark.slow
def test_an_interrupted_shard_resumes_with_its_own_cells_only(made, tmp_path):
    spec = load_spec(str(made / "small.toml"))

    def stop(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_experiment(spec, out=tmp_path / "1", shard=Shard(1, 3), on_done=stop)
    assert len(rows(tmp_path / "1")) == 1
    run_experiment(spec, out=tmp_path / "1", shard=Shard(1, 3), resume=True)
    assert rows(tmp_path / "1") == rows(made / "1")
    for other in (Shard(2, 3), None):
        with pytest.raises(StoreError, match="holds shard '1/3'"):
            run_experiment(spec, out=tmp_path / "1", shard=other, resume=True)
    with pytest.raises(StoreError, match="holds the whole experiment"):
        run_experiment(spec, out=made / "one", shard=Shard(1, 3), resume=True)


def test_every_built_in_experiment_is_made_again_from_a_shards_spec(tmp_path):
    """Ids depend on the order of options in the spec, which the store of a shard must keep."""
    for name in ("calibrate", "dpsgd-bits", "keyless", "bpia-mitigations"):
        spec = load_spec(name)
        run = json.loads(json.dumps(to_dict(spec)))
        with Store.create(tmp_path / name, spec=run, shard="1/1"):
            pass
        with pytest.raises(StoreError, match=f"of {len(spec.cells())} cells") as told:
            merge(tmp_path / "out", [tmp_path / name])
        assert spec.cells()[0].id in str(told.value)


# ---------------------------------------------------------------- what is missing


def test_missing_cells_are_named_with_their_shards(made, tmp_path):
    with Store.read(made / "2") as store:
        lost = store.results()
    told = command_line.here("runs", "merge", tmp_path / "all", made / "1", made / "3")
    assert told.returncode == 2
    assert "shard 2/3 (not among the parts)" in told.stderr
    assert all(result.cell in told.stderr for result in lost)
    assert not (tmp_path / "all").exists()


@pytest.mark.slow
def test_partial_then_the_rest_by_a_part_or_by_a_run(made, tmp_path):
    out = tmp_path / "all"
    told = command_line.here("runs", "merge", out, made / "1", made / "3", "--partial")
    assert told.returncode == 3
    assert f"dpaudit run small.toml --out {out} --resume" in told.stderr
    assert len(rows(out)) == 5
    shutil.copytree(out, tmp_path / "by run")
    assert merge(out, [made / "2"]) == 0
    told = command_line.here(
        "run", "small.toml", "--out", tmp_path / "by run", "--resume", cwd=made
    )
    assert told.returncode == 0
    assert rows(out) == rows(tmp_path / "by run") == rows(made / "one")


def test_twice_is_once(made, tmp_path):
    parts = [made / i for i in "12312"]
    for _ in range(2):
        assert merge(tmp_path / "all", parts) == 0
    with Store.read(tmp_path / "all") as store:
        assert len(attempts(store)) == CELLS


# ---------------------------------------------------------------- what does not fit


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("outcome", {"success": 0.123}, "another success"),
        ("provenance", {"source": "0" * 64}, "source of dpaudit"),
        ("provenance", {"versions": {"dpaudit": "0.0.9"}}, "version of dpaudit"),
        ("settings", {"seed": "4"}, "not one of the experiment"),
        ("kind", "audit", "not one of the experiment"),
    ],
)
def test_parts_that_contradict_each_other(parts, made, tmp_path, field, value, says):
    def change(r):
        return replace(r, **{field: value if field == "kind" else {**getattr(r, field), **value}})

    shutil.copytree(parts[1], tmp_path / "2 again")
    changed(tmp_path / "2 again", change)
    with pytest.raises(StoreError, match=says):
        merge(tmp_path / "all", [*parts, tmp_path / "2 again"])
    assert not (tmp_path / "all").exists()
    merge(tmp_path / "all", parts)
    with pytest.raises(StoreError, match=says):
        merge(tmp_path / "all", [tmp_path / "2 again"])
    assert rows(tmp_path / "all") == rows(made / "one")


def test_times_and_positions_of_a_part_do_not_count(parts, made, tmp_path):
    changed(parts[1], lambda r: replace(r, seconds=99.0))  # and every position is 9
    merge(tmp_path / "all", [*parts, made / "2"])
    with Store.read(tmp_path / "all") as merged, Store.read(made / "one") as one:
        assert [r.cell for r in merged.results()] == [r.cell for r in one.results()]


def test_another_experiment_a_whole_run_and_a_foreign_shard(parts, made, tmp_path):
    with Store.read(parts[0]) as store:
        spec = store.spec
    for name, change, shard, says in (
        ("seed", {"seed": 4}, "1/3", "another experiment or other settings"),
        ("evil", {}, "\x1b[31m1/3", r"its shard is '\\x1b\[31m1/3'"),
        ("odd", {"epsilon": 7}, "1/3", "not as dpaudit wrote it"),
    ):
        Store.create(tmp_path / name, spec=spec | change, shard=shard).close()
        with pytest.raises(StoreError, match=says):
            merge(tmp_path / "all", [*(parts if name == "seed" else ()), tmp_path / name])
    with pytest.raises(StoreError, match="holds no shard"):
        merge(tmp_path / "all", [made / "one"])
    with pytest.raises(StoreError, match="not a merge; choose another OUT"):
        merge(parts[0], parts)
    assert not (tmp_path / "all").exists()


@pytest.mark.slow
def test_a_failure_stays_one_until_a_part_has_a_result(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(install(tmp_path / "site")))
    registry._scan.cache_clear()
    flag, spec_file, out = tmp_path / "flag", tmp_path / "planted.toml", tmp_path / "all"
    spec_file.write_text(f'{PLANTED}what = ["fine", "file:{flag}"]\n')
    spec = load_spec(str(spec_file))
    run_experiment(spec, out=tmp_path / "fails", shard=Shard(1, 1))
    told = command_line.here("runs", "merge", out, tmp_path / "fails")
    assert told.returncode == 3
    assert "OSError: not yet" in told.stderr
    merge(out, [tmp_path / "fails"])
    with Store.read(out) as store:
        assert len(attempts(store)) == 2
    flag.touch()
    run_experiment(spec, out=tmp_path / "works", shard=Shard(1, 1))
    for name, parts in (("a", ["fails", "works"]), ("b", ["works", "fails"]), ("all", ["works"])):
        assert merge(tmp_path / name, [tmp_path / part for part in parts]) == 0
        with Store.read(tmp_path / name) as store:
            assert (len(store.results()), store.failures()) == (2, [])
    registry._scan.cache_clear()
