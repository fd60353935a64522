"""Data sets: files, records, what a question asks, and audits of two of them."""

import dataclasses
import datetime
import math
import shlex
import sys

import numpy as np
import pytest

import dpaudit
from dpaudit.audit.epsilon.datasets import described, json_text, read_dataset, records_of
from dpaudit.audit.epsilon.kept_pair import with_pair_in
from dpaudit.audit.epsilon.question import Question, question_of
from dpaudit.errors import (
    SamplerCrashError,
    SamplerOutputError,
    SamplerTimeoutError,
    UsageError,
)
from dpaudit.samplers.endpoints.dataset_function import DatasetFunction
from tests.command_line import here

PEOPLE = "age,city,score\n30,Bonn,0.5\n41,,1e3\n7,Graz,\n"


@pytest.fixture(autouse=True)
def no_classifiers(monkeypatch):
    """Fixed statistics are enough here, and take no seconds."""
    monkeypatch.setattr("dpaudit.audit.epsilon.judge.learned_scores", lambda *_, **__: [])


ROWS = [
    {"age": 30, "city": "Bonn", "score": 0.5},
    {"age": 41, "city": None, "score": 1000.0},
    {"age": 7, "city": "Graz", "score": None},
]


def test_files_become_records(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text(PEOPLE)
    assert read_dataset(path, name="dataset") == ROWS
    path = tmp_path / "people.json"
    path.write_text(json_text(ROWS))
    assert read_dataset(path, name="dataset") == ROWS
    np.save(tmp_path / "x.npy", np.eye(2))
    assert read_dataset(tmp_path / "x.npy", name="dataset").tolist() == [[1, 0], [0, 1]]


def test_parquet_becomes_records(tmp_path):
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    pd.DataFrame({"a": [1, 2], "b": ["x", None]}).to_parquet(tmp_path / "p.parquet")
    found = read_dataset(tmp_path / "p.parquet", name="dataset")
    assert found == [{"a": 1, "b": "x"}, {"a": 2, "b": None}]


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.csv", "", "no header"),
        ("a.csv", "x,x\n1,2\n", "one name"),
        ("a.csv", "x,y\n1\n", "row 1 has 1 cells"),
        ("a.json", "[1,", "is no .json file"),
        ("a.json", "[" * 100_000, "is no .json file"),
        ("a.txt", "1", "is a file .csv"),
    ],
)
def test_broken_files_are_usage_errors(tmp_path, name, text, says):
    (tmp_path / name).write_text(text)
    with pytest.raises(UsageError, match=rf"^dataset=.*{says}"):
        read_dataset(tmp_path / name, name="dataset")
    with pytest.raises(UsageError, match="check the path"):
        read_dataset(tmp_path / "none.csv", name="dataset")


def test_data_sets_are_put_together_in_their_form():
    whole = np.array([[1.0, 2.0], [3.0, 4.0]])
    assert records_of(whole).make([]).shape == (0, 2)
    assert records_of((1, 2)).make([1]) == (1,)
    for array in (np.array([1, 2]), np.array(["a", "b"]), np.array([True]), np.float32([1])):
        of = records_of(array)
        assert of.make([]).dtype == array.dtype
        assert of.make(of.records).dtype.kind == array.dtype.kind
    assert records_of(np.array(["a"])).make(["long"]).tolist() == ["long"]
    assert records_of(np.int8([1])).make([1 << 53]).tolist() == [1 << 53]
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"n": [1, 2], "c": ["x", "y"]})
    of = records_of(frame)
    assert of.make([]).dtypes.equals(frame.dtypes)
    assert of.make(of.records).equals(frame)
    assert of.make([]).columns.tolist() == ["n", "c"]
    assert of.make([{"n": math.nan, "c": "x"}])["n"].isna().all()


def test_data_sets_are_described_briefly():
    assert described([0.0] * 30 + [1.0]) == "31 records: 0.0 (30 times), 1.0"
    assert described([{"a": 1}]) == "1 record: {'a': 1}"
    assert len(described([list(range(1000))] * 1000)) < 300


@pytest.mark.parametrize(
    ("neighbours", "asks"),
    [
        ((0, 1), None),
        (([0, 0], [1, 0]), None),
        ("0,1", None),
        ("a.npy;b.npy", None),
        (([1, 2], [1, 2, 3]), ([1, 2], [1, 2, 3])),
        ((["a"], ["b"]), (["a"], ["b"])),
        ("[1, 2]; [1, NaN]", ([1, 2], [1, math.nan])),
        (([], [1]), ([], [1])),
        ((0, "one"), None),
    ],
)
def test_which_neighbours_are_data_sets(neighbours, asks):
    found = question_of(neighbours)
    assert repr(found and found.pair) == repr(asks)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"neighbours": "search"}, "neighbours=search: needs a data set"),
        ({"neighbours": (0, 1), "dataset": [1]}, "dataset: belongs to a search"),
        ({"neighbours": (["a"], ["b"]), "bounds": (0, 1)}, "bounds: belongs to a search"),
        ({"neighbours": (["a"], ["a"])}, "are equal"),
        ({"neighbours": "search", "dataset": [1], "adjacency": "x"}, "adjacency=x"),
        ({"neighbours": "search", "dataset": 3}, "has no records"),
        ({"neighbours": "search", "dataset": []}, "dataset: has no records, so"),
        ({"neighbours": "search", "dataset": np.zeros(1, "i4,f8")}, "has no records; pass"),
        ({"neighbours": "search", "dataset": [1], "bounds": "a"}, "bounds=a: write"),
        ({"neighbours": "[1];[1"}, "is not two data sets"),
        ({"neighbours": "a.csv;b.csv;c.csv"}, "3 files, wanted two"),
    ],
)
def test_questions_that_do_not_fit_are_refused(given, says):
    with pytest.raises(UsageError, match=says):
        question_of(**given)


def _noisy(length, rng):
    return round(length + rng.laplace(), 2)


def test_two_data_sets_are_audited_in_this_process():
    rng = np.random.default_rng(1)
    result = dpaudit.audit_mechanism(
        lambda data: _noisy(len(data), rng),
        neighbours=(["a", "b"], ["a", "b", "c"]),
        epsilon=1,
        samples=4000,
        seed=1,
    )
    assert result.verdict == "no-finding"
    assert 0.5 < result.epsilon.low < 1
    assert result.details["datasets"] == ["2 records: 'a', 'b'", "3 records: 'a', 'b', 'c'"]


def test_a_length_that_depends_on_the_data_is_found_and_named():
    rng = np.random.default_rng(1)
    result = dpaudit.audit_mechanism(
        lambda data: [float(x) for x in rng.normal(size=len(data))],
        neighbours=([1, 1], [1, 1, 1]),
        epsilon=1,
        samples=1000,
        seed=1,
    )
    assert result.verdict == "finding"
    said = " ".join(result.advice)
    assert "release#length is 2, in 1 of those at the first and 0 at the second" in said


def test_features_replace_the_encoding():
    rng = np.random.default_rng(1)

    def release(data):
        return object() if rng.random() < 0.1 + 0.1 * len(data) else 1.0

    asked = {"neighbours": ([], [1]), "epsilon": 1, "samples": 2000, "seed": 1}
    with pytest.raises(SamplerOutputError, match=r"type=builtins\.object.*features="):
        dpaudit.audit_mechanism(release, **asked)
    result = dpaudit.audit_mechanism(release, features=lambda r: [r == 1.0], **asked)
    assert result.verdict == "no-finding"
    assert 0.1 < result.epsilon.low < math.log(2)
    with pytest.raises(UsageError, match="runs in this process"):
        dpaudit.audit_mechanism(release, features="m:f", **asked)


def test_texts_that_are_rare_are_no_sign_of_dependence(monkeypatch):
    """Their order is fitted to the learning half, which then looks unlike the other half."""
    monkeypatch.setattr("dpaudit.audit.epsilon.encoding._FREQUENT", 5)
    rng = np.random.default_rng(1)
    result = dpaudit.audit_mechanism(
        lambda data, n: [f"count {len(data) + x:.2f}" for x in rng.laplace(size=n)],
        neighbours=([1], [1, 2]),
        epsilon=1,
        samples=20_000,
        seed=1,
    )
    assert result.verdict == "no-finding"
    assert result.epsilon.low > 0.8


def test_a_pair_is_written_and_read_again(tmp_path):
    rng = np.random.default_rng(1)
    pair = [{"a": math.nan}], [{"a": 1.0}]
    result = dpaudit.audit_mechanism(
        lambda data: _noisy(len(data), rng), neighbours=pair, epsilon=1, samples=1000, seed=1
    )
    with_pair_in(result, tmp_path)
    paths = [tmp_path / name for name in ("first.json", "second.json")]
    assert [repr(read_dataset(p, name="x")) for p in paths] == [repr(p) for p in pair]


def test_the_words_ask_again():
    question = Question(pair=([1], [2]), features="m:f")
    result = dpaudit.audit_mechanism(
        lambda data: float(np.random.default_rng().normal()),
        neighbours=([1], [2, 3]),
        epsilon=1,
        samples=1000,
        seed=1,
    )
    assert question.words(result) == ["--neighbours", "[1];[2, 3]", "--features", "m:f"]


def test_a_long_pair_is_asked_again_by_files(tmp_path):
    """Of a search without --out by the search, which leaves them; with it, by the files."""
    (tmp_path / "d.json").write_text(str([0.25] * 90))
    question = question_of("search", str(tmp_path / "d.json"), bounds="0:1")
    result = dpaudit.audit_mechanism(
        lambda data: len(data), neighbours=([0.25] * 90, [0.25] * 89), epsilon=1, samples=1000
    )
    words = question.words(result)
    assert words == [
        *("--dataset", str(tmp_path / "d.json"), "--neighbours", "search"),
        *("--adjacency", "add-remove", "--bounds", "0:1", "--out", "found"),
    ]
    found = [t for t in result.tests if t.finding]
    tests = (dataclasses.replace(found[0], reproduce=shlex.join(["dpaudit", "m", *words])),)
    kept = with_pair_in(dataclasses.replace(result, tests=tests), tmp_path)
    again = shlex.split(kept.tests[0].reproduce)
    files = f"{tmp_path}/first.json;{tmp_path}/second.json"
    assert again == ["dpaudit", "m", "--neighbours", files]
    assert question_of(files).pair == ([0.25] * 90, [0.25] * 89)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["list", "array", "frame"])
def test_a_pair_of_python_is_asked_again_by_what_can_give_it(kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.py").write_text("def counted(data):\n    return len(data)\n")
    pair = [0.25] * 90, [0.25] * 89
    make = {
        "list": list,
        "array": np.array,
        "frame": lambda x: pytest.importorskip("pandas").DataFrame({"x": x}),
    }[kind]
    result = dpaudit.audit_mechanism(
        "python:./m.py:counted",
        neighbours=tuple(map(make, pair)),
        epsilon=1,
        samples=1000,
        seed=1,
    )
    again = next(t.reproduce for t in result.tests if t.finding)
    if kind == "frame":
        assert again == ("dpaudit.audit_mechanism(…, alpha=0.01, seed='1')")
        return
    suffix = {"list": "json", "array": "npy"}[kind]
    assert f"--neighbours 'first.{suffix};second.{suffix}'" in again
    assert any("first write the data sets" in text for text in result.advice)
    kept = with_pair_in(result, tmp_path)
    assert f"{tmp_path}/first.{suffix};{tmp_path}/second" in kept.tests[0].reproduce
    assert not any("first write the data sets" in text for text in kept.advice)


def test_arrays_are_asked_again_as_arrays(tmp_path):
    rows = np.arange(6.0).reshape(3, 2)
    result = dpaudit.audit_mechanism(
        lambda data: data.shape[0], neighbours=(rows, rows[:2]), epsilon=1, samples=1000
    )
    with_pair_in(result, tmp_path)
    again = question_of(f"{tmp_path}/first.npy;{tmp_path}/second.npy")
    assert [one.tolist() for one in again.pair] == [rows.tolist(), rows[:2].tolist()]
    np.save(tmp_path / "v.npy", np.arange(3.0))
    assert question_of(f"{tmp_path}/v.npy;{tmp_path}/v.npy") is None  # query results
    np.save(tmp_path / "w.npy", np.arange(2.0))
    assert question_of(f"{tmp_path}/v.npy;{tmp_path}/w.npy").pair[1].tolist() == [0.0, 1.0]


MODULE = """
import numpy as np
rng = np.random.default_rng()

def groups(data):
    return {row["city"]: round(rng.laplace(), 3) for row in data}

def count(data):
    return len(data) + round(rng.laplace(), 3)

def first(release):
    return [len(release)]
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "release.py").write_text(MODULE)
    (tmp_path / "a.csv").write_text("city\nBonn\nGraz\n")
    (tmp_path / "b.csv").write_text("city\nBonn\n")
    return tmp_path


def test_files_go_to_a_function_in_a_process_of_its_own(folder):
    options = ["--claim-epsilon", "1", "--samples", "1000", "--seed", "1"]
    pair = ["--neighbours", "a.csv;b.csv", *options]
    ended = here("mechanism", "python:./release.py:groups", *pair, cwd=folder)
    assert ended.returncode == 1, ended.stderr
    assert "release#length is 2, in 1 of those at the first" in _said(ended)
    assert "--neighbours 'a.csv;b.csv'" in _said(ended)
    ended = here(
        *("mechanism", "python:./release.py:groups", "--features", "./release.py:first", *pair),
        cwd=folder,
    )
    assert "release[0] is 2, in 1 of those at the first" in _said(ended)
    ended = here("mechanism", "numpy:laplace", *pair, cwd=folder)
    assert ended.returncode == 2
    assert "takes query results, not data sets" in ended.stderr


def test_a_process_that_died_or_was_stopped_is_started_again(folder):
    (folder / "hard.py").write_text(
        "import os, time\ndef length(data):\n"
        "    if 'dies' in data: os._exit(3)\n"
        "    if 'waits' in data: time.sleep(60)\n"
        "    return len(data)\n"
    )
    with DatasetFunction(f"{folder}/hard.py:length") as mechanism:
        assert mechanism.release_any([1], 2, timeout=60) == [1, 1]
        with pytest.raises(SamplerCrashError):
            mechanism.release_any(["dies"], 2, timeout=60)
        assert mechanism.release_any([], 2, timeout=60) == [0, 0]
        with pytest.raises(SamplerTimeoutError):
            mechanism.release_any(["waits"], 2, timeout=0.2)
        assert mechanism.release_any([1, 2], 2, timeout=60) == [2, 2]


def test_records_that_never_differ_are_a_usage_error():
    with pytest.raises(UsageError, match="records are all the same"):
        dpaudit.audit_mechanism(
            lambda data: len(data),
            dataset=[datetime.date(2020, 1, 1)],
            neighbours="search",
            adjacency="replace",
            epsilon=1,
        )


def test_a_search_of_what_cannot_be_imported_is_a_usage_error(folder):
    (folder / "none.py").write_text("import no_such_module\n")
    ended = here(
        *("mechanism", "python:./none.py:f", "--dataset", "a.csv", "--neighbours", "search"),
        *("--claim-epsilon", "1", "--samples", "1000"),
        cwd=folder,
    )
    assert ended.returncode == 2
    assert "dpaudit: module=./none.py: cannot be imported" in ended.stderr


@pytest.mark.slow
def test_a_search_leaves_its_pair_as_files(folder):
    ended = here(
        *("mechanism", "python:./release.py:groups", "--dataset", "a.csv"),
        *("--neighbours", "search", "--claim-epsilon", "1", "--samples", "1000"),
        *("--seed", "1", "--time-limit", "30", "--out", "found"),
        cwd=folder,
    )
    assert ended.returncode == 1, ended.stderr
    assert "pairs of neighbours (add-remove) were tried" in _said(ended)
    assert "--neighbours 'found/first.json;found/second.json'" in _said(ended)
    sizes = [
        len(read_dataset(folder / "found" / f"{n}.json", name="x")) for n in ("first", "second")
    ]
    assert abs(sizes[0] - sizes[1]) == 1


def _said(ended):
    """What was printed, as one line."""
    return " ".join(ended.stdout.split())


PROGRAM = """
import csv, json, random, sys
rows = list(csv.DictReader(open(sys.argv[1])))
for _ in range(int(sys.argv[2])):
    print(json.dumps([len(rows), None] if random.random() < 0.5 else "none"))
"""


@pytest.mark.slow
def test_a_program_gets_a_file_and_writes_json(folder):
    (folder / "program.py").write_text(PROGRAM)
    ended = here(
        *("mechanism", f"command:{sys.executable} program.py {{dataset}} {{n}}"),
        *("--neighbours", "a.csv;b.csv", "--claim-epsilon", "1", "--samples", "1000"),
        cwd=folder,
    )
    assert ended.returncode == 1, ended.stderr
    assert "Releases differ most in this: release" in _said(ended)


def test_a_generator_seeded_in_every_call_is_seen():
    result = dpaudit.audit_mechanism(
        lambda data, n: [(len(data), x) for x in np.random.default_rng(1).normal(size=n)],
        neighbours=([1], [1, 2]),
        epsilon=1,
        samples=2000,
        seed=1,
    )
    assert result.verdict == "inconclusive"
    assert "independent releases" in result.reason


def test_releases_of_query_results_may_be_anything_too(folder):
    rng = np.random.default_rng(1)
    result = dpaudit.audit_mechanism(
        lambda value: "yes" if value + rng.laplace() > 0.5 else None,
        neighbours=(0, 1),
        epsilon=1,
        samples=2000,
        seed=1,
    )
    assert result.verdict == "no-finding"
    assert 0.3 < result.epsilon.low < 1
    (folder / "say.py").write_text(
        "import random\ndef say(value):\n"
        "    return {'said': 'yes'} if random.random() < 0.1 + 0.8 * value else {}\n"
    )
    ended = here(
        *("mechanism", "python:./say.py:say", "--neighbours", "0,1"),
        *("--claim-epsilon", "1", "--samples", "1000", "--seed", "1"),
        cwd=folder,
    )
    assert ended.returncode == 1, ended.stderr
    assert "--neighbours 0,1 --samples 1000" in _said(ended)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["scores:s.csv", "--neighbours", "a.csv;b.csv"], "neighbours=a.csv;b.csv: recorded"),
        (
            ["python:./release.py:count", "--neighbours", "a.csv;b.csv", "--attack", "reach"],
            "attack",
        ),
        (
            ["python:./release.py:count", "--neighbours", "0,1", "--bounds", "0:1"],
            "bounds: belongs",
        ),
    ],
)
def test_options_that_do_not_fit_data_sets_are_usage_errors(folder, words, says):
    ended = here("mechanism", *words, "--claim-epsilon", "1", cwd=folder)
    assert ended.returncode == 2
    assert says in ended.stderr
