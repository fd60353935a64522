import math
import time
from types import SimpleNamespace

import pytest

from dpaudit import registry
from dpaudit.errors import DuplicatePluginError, SpecError, UnknownNameError
from dpaudit.experiments import load_spec, make_result, spec_names
from dpaudit.experiments.arm import build_arm
from dpaudit.experiments.measure import Cell, written
from dpaudit.experiments.placement.work import run_cell
from dpaudit.experiments.shipped import _files, shipped_specs
from dpaudit_studies.keyless import KeylessGrid

GOOD = """
name = "t"
seed = 3
epsilon = [0.5, 1.0]
delta = 1e-10
trials = 50
[host]
name = "histogram"
[key]
beta = [1e-4, 1e-3]
gamma = "2sqrtd"
[[source]]
name = "gaussian"
[[source]]
name = "pancake"
[[mitigation]]
name = "none"
[[mitigation]]
name = "smoothing"
tau = [0.1, 0.2, 0.3]
[[attack]]
name = "nearest-peak"
[[exclude]]
source = "gaussian"
mitigation = "smoothing"
[audit]
samples = 10000
"""


def spec(tmp_path, text):
    path = tmp_path / "s.toml"
    path.write_text(text)
    return load_spec(str(path))


def test_the_grid_is_the_product_less_what_is_excluded(tmp_path):
    cells = spec(tmp_path, GOOD).cells()
    arms = 2 * 2 * (1 + 4)  # ε × β × (gaussian·none + pancake·(none + 3 smoothings))
    assert sum(c.kind == "attack" for c in cells) == arms
    assert sum(c.kind == "audit" for c in cells) == arms
    assert len({c.id for c in cells}) == len(cells)


def test_several_hosts_and_a_source_with_a_key_of_its_own(tmp_path):
    host, source = '[host]\nname = "histogram"', '[[source]]\nname = "pancake"'
    text = GOOD.replace(host, f'[{host}\n[{host}\nlabel = "x"'.replace("]\n", "]]\n"))
    text = text.replace(source, f"{source}\nkey = {{ gamma = 9.0 }}")
    cells = spec(tmp_path, text + '[[exclude]]\nhost = "x"\nsource = ["gaussian"]\n').cells()
    assert sum(c.kind == "attack" for c in cells) == 2 * 2 * (1 + 4) + 2 * 2 * 4
    arm = next(c for c in cells if c.settings["source"]["name"] == "pancake").settings
    own = {**arm["source"], "key": {"gamma": 120.0}}
    made = build_arm({**arm, "key": {"beta": 0.5, "gamma": "2sqrtd"}, "source": own}, cell="c")
    assert (made.attacker_key.beta, made.attacker_key.gamma) == (0.5, 120.0)
    assert made.source.key is made.attacker_key


def test_a_measure_of_all_attacks_together_has_one_cell_an_arm(tmp_path):
    text = GOOD.replace("seed = 3", 'seed = 3\nmeasure = "defences"')
    text = text.replace("[audit]\nsamples = 10000", '[[attack]]\nname = "likelihood-ratio"\n')
    text += '[[exclude]]\nsource = "gaussian"\nattack = ["nearest-peak"]\n'
    cells = spec(tmp_path, text).cells()
    assert len(cells) == 2 * 2 * (1 + 4)
    names = {
        c.settings["source"]["name"]: [a["name"] for a in c.settings["attacks"]] for c in cells
    }
    both = ["nearest-peak", "likelihood-ratio"]
    assert names == {"gaussian": ["likelihood-ratio"], "pancake": both}


def test_a_cell_is_named_by_its_settings(tmp_path):
    a = spec(tmp_path, GOOD).cells()
    b = spec(tmp_path, GOOD.replace("epsilon = [0.5, 1.0]", "epsilon = [1.0]")).cells()
    assert {c.id for c in b} < {c.id for c in a}  # dropping an axis value changes no other cell
    c = spec(tmp_path, GOOD.replace("seed = 3", "seed = 4")).cells()
    assert not {x.id for x in a} & {x.id for x in c}


@pytest.mark.parametrize("name", spec_names())
def test_built_in_experiments_are_valid(name):
    assert load_spec(name).cells()


EPSILON, KEY = "epsilon = [0.5, 1.0]", "[key]\nbeta = [1e-4, 1e-3]"
SOURCE, SMOOTHED = '[[source]]\nname = "gaussian"', 'mitigation = "smoothing"\n[audit]'


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("trials = 50", "trails = 50", "'trials'"),
        ("trials = 50", "trials = '50'", "wrong type; it must be a whole number"),
        ("trials = 50", "trials = 0", "trials=0"),
        ("trials = 50", f"trials = {10**18}", f"trials={10**18} .*at most 1,000,000,000"),
        ("trials = 50", "trials = 50\nminutes = 'x'", "minutes='x'"),
        ("trials = 50", "trials = 50\nkeys = 10_000_000", "keys=10000000"),
        ("trials = 50", 'trials = 50\nfigure = "x"', "figure='x'"),
        ("trials = 50", "trials = 50\ncolumn = [3]", "column=3"),
        ("seed = 3", "seed = 1.5", "wrong type"),
        ("delta = 1e-10", "delta = 1.0", "delta=1.0"),
        ("delta = 1e-10", "delta = -1e-10", "delta=-1e-10"),
        ("delta = 1e-10", 'delta = 1e-10\ncalibration = "exakt"', "calibration='exakt'"),
        (EPSILON, "epsilon = []", "empty"),
        (EPSILON, "epsilon = [-1]", "epsilon=-1"),
        (EPSILON, "", "'epsilon'"),
        (EPSILON, "epsilon = [1.0, inf]", "epsilon=inf"),
        (EPSILON, "epsilon = [true]", "epsilon=True"),
        (EPSILON, "epsilon = [1.0, 1.0]", "epsilon 1.0 is there twice"),
        ("tau = [0.1, 0.2, 0.3]", f"tau = {[0.1] * 60_000}", "480,016 cells .*at most 100,000"),
        ("[host]", "[host", "not TOML"),
        (SMOOTHED, SMOOTHED.replace("smoo", "smo"), "'smoothing'"),
        (SMOOTHED, SMOOTHED.replace(" =", "s ="), "'mitigation'"),
        ('[[attack]]\nname = "nearest-peak"', "[[attack]]\nx = 1", "table with a name"),
        ('name = "t"', 'name = ""', "name=''"),
        (KEY, "[key]\nbeta = []", "grid is empty"),
        (KEY, "[key]\nbeta = [1e-4, 1e-4]", r"\[key\] .*is there twice"),
        (KEY, "[key]\nbeta = [1e-4, nan]", "key beta=nan"),
        (KEY, "[key]\nbeta = 2020-01-01", "key beta=2020-01-01"),
        (KEY, f"[key]\nbeta = {1 << 70}", "within 64 bits"),
        (SOURCE, f"{SOURCE}\nlabel = [1]", "label=.*must be text"),
        ("samples = 10000", "sampels = 1", "'samples'"),
        ("samples = 10000", 'samples = "many"', r"\[audit\] samples='many'"),
        ("samples = 10000", "samples = 0", r"\[audit\] samples=0"),
        ("samples = 10000", "alpha = 1.5", r"\[audit\] alpha=1.5"),
        ("samples = 10000", "time_limit = inf", r"\[audit\] time_limit=inf"),
        ("[audit]", '[published]\nfile = "hist-da"\n[audit]', r"\[published\] on=None"),
        (
            "[audit]",
            '[published]\nfile = "hist-da"\nours = "x"\n[published.on]\n[audit]',
            "ours='x'",
        ),
    ],
)
def test_bad_specs(tmp_path, old, new, says):
    assert old in GOOD
    with pytest.raises(SpecError, match=says):
        spec(tmp_path, GOOD.replace(old, new, 1))


@pytest.mark.parametrize(("axes", "values"), [(9, 10), (40, 1000)])  # a billion, and 10^120
@pytest.mark.parametrize("table", ["grid", "key"])
def test_a_billion_cells_are_counted_and_not_made(tmp_path, axes, values, table):
    grid = "".join(f"a{i} = {list(range(values))}\n" for i in range(axes))
    text = GOOD.replace(
        "[key]\n", f"[grid]\n{grid}[key]\n" if table == "grid" else f"[key]\n{grid}"
    )
    began = time.process_time()
    with pytest.raises(SpecError, match=r"(000,000|10\^15) cells .*at most 100,000"):
        spec(tmp_path, text)
    assert time.process_time() - began < 1


def test_the_count_is_exact_where_combinations_are_excluded(tmp_path):
    taus = [i / 1000 for i in range(1000)]
    text = GOOD.replace("tau = [0.1, 0.2, 0.3]", f"tau = {taus}")
    text = text.replace("[audit]\nsamples = 10000", "")
    assert len(spec(tmp_path, text).cells()) == 2 * 2 * (1 + 1001)
    again = f'[[mitigation]]\nname = "smoothing"\nlabel = "again"\ntau = {taus}\n[[exclude]]\n'
    again += 'source = "gaussian"\nmitigation = "again"\n[[exclude]]'
    text = text.replace("[[exclude]]", again)
    text = text.replace('source = "gaussian"\nmitigation = "smoothing"', 'source = "gaussian"')
    text = text.replace("beta = [1e-4, 1e-3]", f"beta = {[i / 100 for i in range(1, 26)]}")
    with pytest.raises(SpecError, match=f"{2 * 25 * (1 + 2 * 1000):,} cells"):
        spec(tmp_path, text)


def test_unknown_names_and_what_cannot_be_run(tmp_path):
    attack = '[[attack]]\nname = "nearest-peak"\n'
    for error, says, call in (
        (UnknownNameError, "'nearest-peak'", lambda: spec(tmp_path, GOOD.replace("peak", "peek"))),
        (UnknownNameError, "'demo'", lambda: load_spec("dmeo")),
        (SpecError, "nowhere.toml", lambda: load_spec("nowhere.toml")),
        (
            SpecError,
            "at least one",
            lambda: spec(tmp_path, "attack = []\n" + GOOD.replace(attack, "")),
        ),
        (SpecError, "device=cuda", lambda: load_spec("gpm-fig5", device="cuda")),
    ):
        with pytest.raises(error, match=says):
            call()


def test_the_device_is_part_of_a_cell_only_where_it_is_no_cpu():
    on_cpu, on_cuda = (load_spec("gpm-table2", device=device).cells() for device in ("cpu", "cuda"))
    assert all("device" not in c.settings for c in on_cpu)
    assert all(c.settings["device"] == "cuda" for c in on_cuda)
    assert on_cpu == load_spec("gpm-table2").cells()
    assert not {c.id for c in on_cpu} & {c.id for c in on_cuda}


TABLES = """
name = "t"
seed = 1
trials = 2
measure = "keyless"
[grid]
case = [
  { name = "lattice", d = 12, beta = 1e-3, rows = 40, block = 30, seconds = 1 },
  { name = "lattice", d = 16, beta = 0.01, rows = 40, block = 30, seconds = 1.5, label = "far" },
]
"""


def test_a_table_stands_for_its_label_in_ids_and_a_joined_axis_is_one_value(tmp_path):
    cells = spec(tmp_path, TABLES).cells()
    case = "lattice:d=12,beta=1e-3,rows=40,block=30,seconds=1"
    assert [c.label for c in cells] == [f"case {case}", "case far"]
    text = {"grid": {"case": case}, "seed": "1", "trials": 2}
    assert cells[0].id == Cell("keyless", text).id  # as dpaudit wrote it before axes were tables
    assert cells[0].grid(KeylessGrid).case.beta == 1e-3
    joined = 'name = "t"\nmeasure = "pool-inference"\n[grid]\n'
    joined += 'setting = "news"\nepsilon = [4.0, 8.0]\nobservations = [7, 30]\n'
    for old, new, shown in (("", "", ["7 30", "7 30"]), ("[7, 30]", "7", ["7", "7"])):
        cells = spec(tmp_path, joined.replace(old, new) if old else joined).cells()
        assert [c.written["grid"]["observations"] for c in cells] == shown


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("d = 12", 'd = "12"', r"grid case='lattice:d=12.*': d: expected `int`, got `str`"),
        ("d = 12, ", "", "missing required field `d`"),
        ("d = 12", "dim = 12, d = 12", "unknown field `dim`"),
        ('name = "lattice", d = 16', "d = 16", "missing required field `name`"),
        ("case = [", "cases = 1\ncase = [", "grid cases=1: not known; did you mean 'case'"),
        ("case = [", "case = 'lattice:d=12'\ncases = [", "grid cases=.*: not known"),
        ("d = 16, beta = 0.01", "d = 12, beta = 1e-3", "far"),
    ],
)
def test_axes_of_another_type(tmp_path, old, new, says):
    text = TABLES.replace(old, new)
    if says == "far":  # a label tells two apart
        assert len(spec(tmp_path, text).cells()) == 2
        text, says = text.replace(', label = "far"', "").replace("1.5", "1"), "is there twice"
    with pytest.raises(SpecError, match=says):
        spec(tmp_path, text)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.01, "0.01"), (1e-3, "1e-3"), (1e-5, "1e-5"), (0.125, "0.125"), (1.5e-7, "1.5e-7"),
     (4.0, "4"), (20000, "20000"), (-0.02, "-0.02"), (-0.001, "-1e-3"), (0.0, "0"),
     (1e22, "1e22"), (math.inf, "inf"), (True, "true"), ("2^-3", "2^-3")],
)  # fmt: skip
def test_how_ids_write_a_value(value, text):
    assert written([value]) == text
    assert written([value, value]) == f"{text} {text}"


@pytest.mark.parametrize("source", ["seed-in-noise", "norm-channel"])
def test_a_source_of_which_only_the_secret_matters_needs_no_key_table(source):
    settings = load_spec("seed-in-noise").cells()[0].settings
    assert settings["key"] == {}
    bare = build_arm({**settings, "source": {"name": source}}, cell="c")
    shaped = {"beta": 1e-4, "gamma": "2sqrtd"}
    keyed = build_arm({**settings, "source": {"name": source}, "key": shaped}, cell="c")
    assert bare.key.secret == keyed.key.secret
    assert bare.with_key(1).key.secret != bare.key.secret
    with pytest.raises(SpecError, match="needs the attacker's key"):
        _ = bare.attacker_key
    assert build_arm({**settings, "source": {"name": "gaussian"}}, cell="c").key is None


def test_the_owner_of_a_seed_knows_the_source_and_the_mitigation():
    settings = {
        **load_spec("seed-in-noise").cells()[0].settings,
        "source": {"name": "seed-in-noise", "code": "signs", "label": "x"},
        "mitigation": {"name": "smoothing", "tau": 0.03},
    }
    arm = build_arm(settings, cell="c")
    pairs = arm.host.neighbours(20, stream=arm.stream.child("pairs"))
    released = arm.mitigation.release(pairs[:, 1], arm.source, stream=arm.stream.child("release"))
    found = arm.attack({"name": "seed-reader"}).noise(released - pairs[:, 1]).found
    assert found.sum() >= 18


def test_the_holder_of_a_bare_secret_is_a_key_holder():
    settings = {
        **load_spec("seed-in-noise").cells()[0].settings,
        "mitigation": {"name": "none", "label": "none"},
        "attack": {"name": "seed-reader", "label": "seed-reader"},
        "trials": 5,
    }
    result = run_cell(Cell("attack", settings))
    described = {"name": "t", "title": "t", "story": "", "columns": ()}
    (row,) = make_result(described, [result], command="").rows
    assert row.has_key(row.attacks[0])
    assert row.attacks[0].successes == 5


def test_one_name_in_two_packages_is_refused_and_a_package_that_is_gone_left_out(
    tmp_path, monkeypatch
):
    packages = {"first_specs": ["a", "b"], "second_specs": ["b"], "gone_specs": []}
    for package, names in packages.items():
        (tmp_path / package / "specs").mkdir(parents=True)
        (tmp_path / package / "__init__.py").touch()
        for name in names:
            (tmp_path / package / "specs" / f"{name}.toml").touch()
    monkeypatch.syspath_prepend(tmp_path)
    plugins = {p: SimpleNamespace(target=p, on_disk=p != "gone_specs") for p in packages}
    monkeypatch.setattr(registry, "plugins", lambda kind: plugins)
    read = _files.__wrapped__
    with pytest.raises(DuplicatePluginError, match=r"specs=b: .*first_specs.*second_specs"):
        read("specs", ".toml")
    del plugins["second_specs"]
    assert list(read("specs", ".toml")) == ["a", "b"]


def test_our_packages_ship_each_experiment_once():
    assert {"demo", "gpm-fig4"} <= set(shipped_specs())
