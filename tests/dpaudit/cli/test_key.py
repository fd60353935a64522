"""`dpaudit key hardness`, and what `key new` and `key show` say of it."""

import json

import pytest
from command_line import here as dpaudit

from dpaudit.accounting.hardness import estimate
from dpaudit.cli.commands import key as key_commands


@pytest.fixture
def key(tmp_path):
    made = dpaudit("key", "new", "--dim", 96, "--beta", 1e-4, "--out", "k.json", cwd=tmp_path)
    assert made.returncode == 0
    return tmp_path, made, json.loads((tmp_path / "k.json").read_text())["secret"]


def test_a_key_within_reach_is_made_with_a_warning_of_one_sentence(key):
    _, made, _ = key
    warnings = [row for row in made.stderr.splitlines() if "within reach" in row]
    assert len(warnings) == 1
    assert "lattice reduction" in warnings[0]
    assert "2^32.3 operations (under a second on one core)" in warnings[0]
    assert warnings[0].endswith("dpaudit key hardness k.json")
    assert "within reach" not in made.stdout


def test_a_key_beyond_reach_is_made_without(tmp_path):
    made = dpaudit("key", "new", "--dim", 256, "--beta", 1e-4, "--out", "k.json", cwd=tmp_path)
    assert "within reach" not in made.stdout + made.stderr


def test_a_small_gamma_is_found_by_the_covariance(tmp_path):
    small = ("--gamma", 1, "--allow-small-gamma", "--out", "k.json")
    made = dpaudit("key", "new", "--dim", 4096, "--beta", 1e-3, *small, cwd=tmp_path)
    assert "by covariance eigenvalue" in made.stderr


@pytest.mark.slow
def test_show_has_the_estimate(key):
    folder, _, _ = key
    text = dpaudit("key", "show", "k.json", cwd=folder).stdout
    assert "without_the_key        lattice reduction, 184 rows, block size 10, 2^32.3" in text
    shown = json.loads(dpaudit("key", "show", "k.json", "--format", "json", cwd=folder).stdout)
    assert shown["without_the_key"]["rows"] == 184
    assert shown["dim"] == 96


@pytest.mark.slow
def test_a_key_file_and_its_numbers_give_the_same(key):
    folder, _, _ = key
    of_key = dpaudit("key", "hardness", "k.json", cwd=folder)
    of_numbers = dpaudit("key", "hardness", "--dim", 96, "--beta", 1e-4)
    assert (of_key.returncode, of_numbers.returncode) == (0, 0)
    assert of_key.stdout == of_numbers.stdout
    for words in ("184 rows, the shortest of 30,000; block size 10", "2^32.3", "under a second"):
        assert words in of_key.stdout
    assert " 96  0.0001   200  4-deep-LLL  BLASter  1 of 1      2.7  wall" in of_key.stdout


@pytest.mark.slow
def test_the_secret_is_never_shown(key):
    folder, made, secret = key
    for args in (("show",), ("show", "--format", "json"), ("hardness",)):
        done = dpaudit("key", args[0], "k.json", *args[1:], cwd=folder)
        assert done.returncode == 0
        assert secret not in done.stdout + done.stderr
    hard = dpaudit("key", "hardness", "k.json", "--format", "json", cwd=folder)
    assert "secret" not in hard.stdout
    assert secret not in hard.stdout + hard.stderr + made.stdout + made.stderr


def test_the_document_says_what_the_module_says():
    args = ("--dim", 128, "--beta", 1e-6, "--dtype", "float32", "--drawn", "1k", "--tau", 1e-6)
    done = dpaudit("key", "hardness", *args, "--step", 1e-7, "--format", "json")
    document = json.loads(done.stdout)
    found = estimate(128, 1e-6, 2 * 128**0.5, dtype="float32", step=1e-7, tau=1e-6, drawn=1000)
    for name in ("rows", "block", "log2_operations", "seconds", "effective_beta", "attack"):
        assert document[name] == getattr(found, name)
    assert document["effective_beta"] > 2e-5
    assert len(document["measured"]) == 5
    assert {"seconds", "found", "keys", "estimated_block"} <= set(document["measured"][0])


@pytest.mark.slow
def test_where_no_lattice_helps_it_says_so():
    text = dpaudit("key", "hardness", "--dim", 12, "--beta", 0.7).stdout
    assert "cheapest attack  search over directions" in text
    assert "lattice          reduction is not expected to succeed" in text
    blurred = dpaudit("key", "hardness", "--dim", 128, "--beta", 1e-6, "--tau", 0.001).stdout
    assert "as a pancake of β = 0.0226 would be" in blurred
    assert "beyond reach" in blurred


@pytest.mark.parametrize(
    "args",
    ["", "--dim 8", "--beta 0.1", "k.json --dim 8 --beta 0.1"],
)  # fmt: skip
def test_one_of_a_file_and_numbers(args):
    done = dpaudit("key", "hardness", *args.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert "give a key's file, or both --dim and --beta, e.g." in done.stderr


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("nowhere.json",), "nowhere.json"),
        (("--dim", 1, "--beta", 0.1), "dim=1"),
        (("--dim", 8, "--beta", -1), "beta=-1"),
        (("--dim", 8, "--beta", 1, "--gamma", "x"), "gamma="),
        (("--dim", 8, "--beta", 1, "--dtype", "int8"), "dtype=int8: choose from: float64"),
        (("--dim", 8, "--beta", 1, "--tau", -1), "tau=-1"),
    ],
)
def test_bad_input_is_a_usage_error(args, says):
    done = dpaudit("key", "hardness", *args)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("seconds", "says"),
    [
        (0.2, "under a second"),
        (70, "about 70 s"),
        (3600, "about 60 minutes"),
        (86400, "about 24 hours"),
        (864000, "about 10 days"),
        (3.2e9, "about 101 years"),
        (2.0**90, "2^65 years or more"),
        (float("inf"), "2^975 years or more"),
    ],
)
def test_times_in_words(seconds, says):
    assert key_commands._time(seconds) == says
