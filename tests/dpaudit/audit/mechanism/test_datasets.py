"""Data sets: files, records, what a question asks, and audits of two of them."""

import dataclasses
import datetime
import math
import shlex
import sys

import numpy as np
import pytest

import dpaudit
from dpaudit.audit.mechanism.datasets import json_text, read_dataset, records_of
from dpaudit.audit.mechanism.encoding import Encoding
from dpaudit.audit.mechanism.neighbour_search import promise
from dpaudit.audit.mechanism.question import Question, question_of, with_pair_in
from dpaudit.audit.options import DataOptions
from dpaudit.errors import SamplerCrashError, SamplerOutputError, SamplerTimeoutError, UsageError
from dpaudit.protocols import Dataset, Request
from dpaudit.targets.endpoints.worker import PythonTarget
from tests.command_line import here

PEOPLE = "age,city,score\n30,Bonn,0.5\n41,,1e3\n7,Graz,\n"


@pytest.fixture(autouse=True)
def no_classifiers(monkeypatch):
    """Fixed statistics are enough here, and take no seconds."""
    monkeypatch.setattr("dpaudit.audit.mechanism.judge.learned_scores", lambda *_, **__: [])


ROWS = [
    {"age": 30, "city": "Bonn", "score": 0.5},
    {"age": 41, "city": None, "score": 1000.0},
    {"age": 7, "city": "Graz", "score": None},
]


def audited(release, first, second, *, samples=1000, **more):
    pair = {"neighbours": (first, second), "epsilon": 1, "seed": 1}
    return dpaudit.audit_datasets(release, samples=samples, **pair, **more)


def test_files_become_records(tmp_path):
    (tmp_path / "people.csv").write_text(PEOPLE)
    (tmp_path / "people.json").write_text(json_text(ROWS))
    for name in ("people.csv", "people.json"):
        assert read_dataset(tmp_path / name, name="dataset") == ROWS
    np.save(tmp_path / "x.npy", np.eye(2))
    assert read_dataset(tmp_path / "x.npy", name="dataset").tolist() == [[1, 0], [0, 1]]
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    pd.DataFrame({"a": [1, 2], "b": ["x", None]}).to_parquet(tmp_path / "p.parquet")
    found = read_dataset(tmp_path / "p.parquet", name="dataset")
    assert found == [{"a": 1, "b": "x"}, {"a": 2, "b": None}]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", ""),
        ("a.csv", "x,x\n1,2\n"),
        ("a.csv", "x,y\n1\n"),
        ("a.json", "[1,"),
        ("a.json", "[" * 100_000),
        ("a.txt", "1"),
        ("none.csv", None),
    ],
)
def test_broken_files_are_usage_errors(tmp_path, name, text):
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(UsageError, match=r"^dataset="):
        read_dataset(tmp_path / name, name="dataset")


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


NUMBERS = ((0, 1), ([0, 0], [1, 0]), "0,1", "a.npy;b.npy", (0, "one"))
DATASETS = {
    "[1, 2]; [1, NaN]": ([1, 2], [1, math.nan]),
    **{str(pair): pair for pair in (([1, 2], [1, 2, 3]), (["a"], ["b"]), ([], [1]))},
}


def test_which_neighbours_are_data_sets():
    assert not any(question_of(DataOptions(neighbours=neighbours)) for neighbours in NUMBERS)
    for text, pair in DATASETS.items():
        given = DataOptions(neighbours=text if ";" in text else pair)
        assert repr(question_of(given).pair) == repr(pair)


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
        ({"neighbours": "search", "dataset": [1], "bounds": "a"}, "bounds=a"),
        ({"neighbours": "[1];[1"}, "is not two data sets"),
        ({"neighbours": "a.csv;b.csv;c.csv"}, "3 files, expected two"),
    ],
)
def test_questions_that_do_not_fit_are_refused(given, says):
    with pytest.raises(UsageError, match=says):
        question_of(DataOptions(**given))


def _noisy(length, rng):
    return round(length + rng.laplace(), 2)


def test_two_data_sets_are_audited_in_this_process():
    rng = np.random.default_rng(1)
    pair = ["a", "b"], ["a", "b", "c"]
    result = audited(lambda data: _noisy(len(data), rng), *pair, samples=4000)
    assert result.verdict == "no-finding"
    assert 0.5 < result.epsilon.low < 1
    assert result.details["datasets"] == ["2 records: 'a', 'b'", "3 records: 'a', 'b', 'c'"]


def test_a_length_that_depends_on_the_data_is_found_and_named():
    rng = np.random.default_rng(1)
    result = audited(lambda data: rng.normal(size=len(data)).tolist(), [1, 1], [1, 1, 1])
    assert result.verdict == "finding"
    said = " ".join(result.advice)
    assert "release#length is 2, in 1 of those at the first and 0 at the second" in said


def test_features_replace_the_encoding():
    rng = np.random.default_rng(1)

    def release(data):
        return object() if rng.random() < 0.1 + 0.1 * len(data) else 1.0

    with pytest.raises(SamplerOutputError, match=r"type=builtins\.object.*features="):
        audited(release, [], [1], samples=2000)
    result = audited(release, [], [1], samples=2000, features=lambda r: [r == 1.0])
    assert result.verdict == "no-finding"
    assert 0.1 < result.epsilon.low < math.log(2)
    with pytest.raises(UsageError, match="runs in this process"):
        audited(release, [], [1], features="m:f")


@pytest.mark.slow
def test_texts_that_are_rare_are_no_sign_of_dependence(monkeypatch):
    """Their order is fitted to the learning half, which then looks unlike the other half."""
    monkeypatch.setattr("dpaudit.audit.mechanism.encoding._FREQUENT", 5)
    rng = np.random.default_rng(1)

    def release(data, n):
        return [f"count {len(data) + x:.2f}" for x in rng.laplace(size=n)]

    result = audited(release, [1], [1, 2], samples=20_000)
    assert result.verdict == "no-finding"
    assert result.epsilon.low > 0.8


def test_a_pair_is_written_and_read_again(tmp_path):
    pair, rng = ([{"a": math.nan}], [{"a": 1.0}]), np.random.default_rng(1)
    with_pair_in(audited(lambda data: _noisy(len(data), rng), *pair), tmp_path)
    paths = [tmp_path / name for name in ("first.json", "second.json")]
    assert [repr(read_dataset(p, name="x")) for p in paths] == [repr(p) for p in pair]


def test_the_words_ask_again():
    question = Question(pair=([1], [2]), features="m:f")
    result = audited(lambda data: float(np.random.default_rng().normal()), [1], [2, 3])
    assert question.repeat_options(result) == ["--neighbours", "[1];[2, 3]", "--features", "m:f"]


@pytest.mark.slow
def test_a_long_pair_is_asked_again_by_files(tmp_path):
    """Of a search without --out by the search, which leaves them; with it, by the files."""
    (tmp_path / "d.json").write_text(str([0.25] * 90))
    question = question_of(
        DataOptions(neighbours="search", dataset=str(tmp_path / "d.json"), bounds="0:1")
    )
    result = audited(len, [0.25] * 90, [0.25] * 89)
    words = question.repeat_options(result)
    assert words == [
        *("--dataset", str(tmp_path / "d.json"), "--neighbours", "search"),
        *("--adjacency", "add-remove", "--bounds", "0:1", "--out", "found"),
    ]
    found = [t for t in result.tests if t.finding]
    tests = (dataclasses.replace(found[0], reproduce=shlex.join(["dpaudit", "m", *words])),)
    kept = with_pair_in(dataclasses.replace(result, tests=tests), tmp_path)
    files = f"{tmp_path}/first.json;{tmp_path}/second.json"
    assert shlex.split(kept.tests[0].reproduce) == ["dpaudit", "m", "--neighbours", files]
    assert question_of(DataOptions(neighbours=files)).pair == ([0.25] * 90, [0.25] * 89)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "suffix"), [("list", "json"), ("array", "npy"), ("frame", None)])
def test_a_pair_of_python_is_asked_again_by_what_can_give_it(kind, suffix, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.py").write_text("def counted(data):\n    return len(data)\n")
    frame = pytest.importorskip("pandas").DataFrame
    make = {"list": list, "array": np.array, "frame": lambda x: frame({"x": x})}[kind]
    result = audited("python:./m.py:counted", make([0.25] * 90), make([0.25] * 89))
    again = next(t.reproduce for t in result.tests if t.finding)
    if kind == "frame":
        assert again == "dpaudit.audit_datasets(…, alpha=0.01, seed='1')"
        return
    assert f"--neighbours 'first.{suffix};second.{suffix}'" in again
    assert any("first write the data sets" in text for text in result.advice)
    kept = with_pair_in(result, tmp_path)
    assert f"{tmp_path}/first.{suffix};{tmp_path}/second" in kept.tests[0].reproduce
    assert not any("first write the data sets" in text for text in kept.advice)


def test_arrays_are_asked_again_as_arrays(tmp_path):
    rows = np.arange(6.0).reshape(3, 2)
    with_pair_in(audited(lambda data: data.shape[0], rows, rows[:2]), tmp_path)
    again = question_of(DataOptions(neighbours=f"{tmp_path}/first.npy;{tmp_path}/second.npy"))
    assert [one.tolist() for one in again.pair] == [rows.tolist(), rows[:2].tolist()]
    np.save(tmp_path / "v.npy", np.arange(3.0))
    assert (
        question_of(DataOptions(neighbours=f"{tmp_path}/v.npy;{tmp_path}/v.npy")) is None
    )  # query results
    np.save(tmp_path / "w.npy", np.arange(2.0))
    assert question_of(DataOptions(neighbours=f"{tmp_path}/v.npy;{tmp_path}/w.npy")).pair[
        1
    ].tolist() == [0.0, 1.0]


MODULE = """
import numpy as np, random
rng = np.random.default_rng()
def groups(data):
    return {row["city"]: round(rng.laplace(), 3) for row in data}
def count(data):
    return len(data) + round(rng.laplace(), 3)
def first(release):
    return [len(release)]
def say(value):
    return {'said': 'yes'} if random.random() < 0.1 + 0.8 * value else {}
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "release.py").write_text(MODULE)
    (tmp_path / "a.csv").write_text("city\nBonn\nGraz\n")
    (tmp_path / "b.csv").write_text("city\nBonn\n")
    return tmp_path


PROGRAM_CALL = f"command:{sys.executable} program.py {{dataset}} {{n}}"
AUDIT = ("--claim-epsilon", "1", "--samples", "1000", "--seed", "1")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            ("python:./release.py:groups", "--neighbours", "a.csv;b.csv"),
            ("release#length is 2, in 1 of those at the first", "--neighbours 'a.csv;b.csv'"),
        ),
        (("python:./release.py:groups", "--features", "./release.py:first"), ("release[0] is 2",)),
        (("python:./release.py:say", "--neighbours", "0,1"), ("--neighbours 0,1",)),
        ((PROGRAM_CALL,), ("differ most in this: rel",)),
    ],
)
def test_files_go_to_a_function_in_a_process_of_its_own(folder, words, says):
    """Releases of query results may be anything too; a program gets a file and writes JSON."""
    (folder / "program.py").write_text(PROGRAM)
    pair = [] if "--neighbours" in words else ["--neighbours", "a.csv;b.csv"]
    ended = here("mechanism", *words, *pair, *AUDIT, cwd=folder)
    assert ended.returncode == 1, ended.stderr
    assert all(text in _said(ended) for text in says)


@pytest.mark.slow
def test_a_process_that_died_or_was_stopped_is_started_again(folder):
    (folder / "hard.py").write_text(
        "import os, time\ndef length(data):\n"
        "    if 'dies' in data: os._exit(3)\n"
        "    if 'waits' in data: time.sleep(60)\n"
        "    return len(data)\n"
    )
    with PythonTarget.on_datasets(f"{folder}/hard.py:length").open(timeout=60) as mechanism:
        assert mechanism.ask(Request(2, input=Dataset([1])), timeout=60).values == [1, 1]
        with pytest.raises(SamplerCrashError):
            mechanism.ask(Request(2, input=Dataset(["dies"])), timeout=60)
        assert mechanism.ask(Request(2, input=Dataset([])), timeout=60).values == [0, 0]
        with pytest.raises(SamplerTimeoutError):
            mechanism.ask(Request(2, input=Dataset(["waits"])), timeout=0.2)
        assert mechanism.ask(Request(2, input=Dataset([1, 2])), timeout=60).values == [2, 2]


def test_records_that_never_differ_are_a_usage_error():
    asked = {"dataset": [datetime.date(2020, 1, 1)], "adjacency": "replace", "epsilon": 1}
    with pytest.raises(UsageError, match="records are all the same"):
        dpaudit.audit_datasets(len, neighbours="search", **asked)


@pytest.mark.slow
def test_a_search_leaves_its_pair_as_files(folder):
    search = ("--dataset", "a.csv", "--neighbours", "search", "--time-limit", "30")
    words = ("mechanism", "python:./release.py:groups", *search, *AUDIT, "--out", "found")
    ended = here(*words, cwd=folder)
    assert ended.returncode == 1, ended.stderr
    assert "pairs of neighbours (add-remove) were tried" in _said(ended)
    assert "--neighbours 'found/first.json;found/second.json'" in _said(ended)
    paths = [folder / "found" / f"{n}.json" for n in ("first", "second")]
    sizes = [len(read_dataset(path, name="x")) for path in paths]
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


def test_a_generator_seeded_in_every_call_is_seen():
    def release(data, n):
        return [(len(data), x) for x in np.random.default_rng(1).normal(size=n)]

    result = audited(release, [1], [1, 2], samples=2000)
    assert result.verdict == "inconclusive"
    assert "independent releases" in result.reason


def test_releases_of_query_results_may_be_anything_too():
    rng = np.random.default_rng(1)
    release = lambda value: "yes" if value + rng.laplace() > 0.5 else None  # noqa: E731
    result = dpaudit.audit_mechanism(release, neighbours=(0, 1), epsilon=1, samples=2000, seed=1)
    assert result.verdict == "no-finding"
    assert 0.3 < result.epsilon.low < 1


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("scores:s.csv --neighbours a.csv;b.csv", "neighbours=a.csv;b.csv: recorded"),
        ("numpy:laplace --neighbours a.csv;b.csv", "takes query results, not data sets"),
        ("python:./release.py:count --neighbours a.csv;b.csv --attack reach", "attack"),
        ("python:./release.py:count --neighbours 0,1 --bounds 0:1", "bounds: belongs"),
        ("python:./none.py:f --dataset a.csv --neighbours search", "cannot be imported"),
    ],
)
def test_options_that_do_not_fit_data_sets_are_usage_errors(folder, words, says):
    (folder / "none.py").write_text("import no_such_module\n")
    ended = here("mechanism", *words.split(), "--claim-epsilon", "1", cwd=folder)
    assert ended.returncode == 2
    assert says in ended.stderr


def _column(encoding, rows, name):
    return rows[:, encoding.names.index(name)]


def test_numbers_stay_as_they_are():
    x = np.random.default_rng(1).normal(size=(2, 100, 3))
    encoding = Encoding.fit(x[0], x[1])
    assert np.array_equal(encoding.rows(x[0]), x[0])
    assert encoding.names == ["release[0]", "release[1]", "release[2]"]
    one = x[:, :, 0]
    for side in (one, one.tolist()):
        encoding = Encoding.fit(side[0], side[1])
        assert encoding.names == ["release"]
        assert np.array_equal(encoding.rows(side[1])[:, 0], one[1])


@pytest.mark.parametrize("odd", [None, "text", b"bytes", math.inf, -math.inf, math.nan, (), {}])
def test_an_odd_release_among_numbers_is_a_kind(odd):
    some = [1.0, 2.0, 3.0] * 10
    encoding = Encoding.fit(some, some[:-6] + [odd] * 6)
    rows = encoding.rows([1.0, odd])
    assert np.isfinite(rows).all()
    kinds = _column(encoding, rows, "kind of release")
    assert kinds[0] != kinds[1]


def test_lengths_keys_and_order_are_columns():
    encoding = Encoding.fit([{"a": 1, "b": 2}] * 9, [{"b": 2, "a": 1}] * 9)
    assert encoding.names == ["text of release#keys"]
    encoding = Encoding.fit([[1.0]] * 9, [[1.0, 5.0]] * 9)
    rows = encoding.rows([[1.0], [1.0, 5.0]])
    assert _column(encoding, rows, "release#length").tolist() == [1, 2]
    assert _column(encoding, rows, "release#sum").tolist() == [1, 6]


def test_what_a_data_frame_holds_is_a_column_wherever_it_stands():
    def frame(oldest, cities):
        return {"age": np.array([30.0, oldest, 40.0]), "city": cities}

    one, other = frame(50.0, ["Bonn", "Graz", "Bonn"]), frame(90.0, ["Graz", "Oslo", "Bonn"])
    encoding = Encoding.fit([one] * 9, [other] * 9)
    moved = {"age": other["age"][::-1], "city": other["city"][::-1]}
    rows = encoding.rows([one, other, moved])
    assert _column(encoding, rows, "release.age#max").tolist() == [50, 90, 90]
    assert _column(encoding, rows, "release.city#count of 'Bonn'").tolist() == [2, 1, 1]
    assert _column(encoding, rows, "release.city#count of 'Oslo'").tolist() == [0, 1, 1]
    many = {"id": [str(i) for i in range(17)]}
    assert not any("#count" in name for name in Encoding.fit([many] * 9, [{}] * 9).names)


def test_numbers_in_texts_are_columns():
    texts = [f"total: {i / 10} of 5e2" for i in range(20)]
    encoding = Encoding.fit(texts, texts)
    rows = encoding.rows(["total: -2.5 of 5e2"])
    assert _column(encoding, rows, "release#number[0]")[0] == -2.5


def test_rare_texts_have_hashes_that_stay():
    encoding = Encoding.fit(["yes"] * 9 + ["no"] * 9, ["yes"] * 18)
    first = encoding.rows(["never", "other", "never", "yes"])[:, 0]
    assert first[0] == first[2] != first[1]
    assert first[0] == pytest.approx(2.682967, abs=1e-6)
    assert first[3] in (0, 1)


def test_the_counting_half_changes_nothing():
    rng = np.random.default_rng(2)
    some = [{"k": "abc"[i]} for i in rng.integers(3, size=200)]
    encoding = Encoding.fit(some[:100], some[100:])
    alone = [encoding.rows([release]) for release in some]
    assert np.array_equal(np.concatenate(alone), encoding.rows(some))
    assert np.array_equal(encoding.rows([*some, {"new": [1]}])[:-1], encoding.rows(some))


def test_new_places_are_counted_not_refused():
    users = [{f"user{i}": 1.0} for i in range(40)]
    encoding = Encoding.fit(users, users)
    rows = encoding.rows([{"stranger": 1.0}, {}])
    assert np.isfinite(rows).all()


def test_lists_and_arrays_of_one_block_or_many_agree():
    rng = np.random.default_rng(3)
    equal = rng.normal(size=(50, 3)).tolist()
    mixed = [*equal[:25], *rng.normal(size=(25, 4)).tolist()]
    encoding = Encoding.fit(mixed, mixed[::-1])
    assert np.array_equal(encoding.rows(equal), encoding.rows([*equal, [1.0]])[:-1])


def _leaky(kind, which, n, rng):
    """Releases that give the neighbour away with 1/2 against 1/8."""
    leak = (rng.random(n) < (0.5 if which else 0.125)).tolist()
    noise = rng.normal(size=n).tolist()
    both = list(zip(leak, noise, strict=True))
    return {
        "none": [None if x else v for x, v in both],
        "text": [f"{'high' if x else 'low'} {v:.2f}" for x, v in both],
        "length": [[v] * (2 if x else 3) for x, v in both],
        "key": [{"a": v, **({"b": 1.0} if x else {})} for x, v in both],
        "order": [{"a": v, "b": 1} if x else {"b": 1, "a": v} for x, v in both],
        "bytes": [bytes([i % 256, x]) for i, x in enumerate(leak)],
        "infinite": [math.inf if x else v for x, v in both],
        "type": [(1 if x else 1.0) for x in leak],
        "nested": [{"a": [(v, {"deep": x})]} for x, v in both],
        "big": [(1 << 62) + x for x in leak],
    }[kind]  # fmt: skip


@pytest.mark.parametrize(
    "kind", ["none", "text", "length", "key", "order", "bytes", "infinite", "type", "nested", "big"]
)
def test_leaks_of_every_kind_are_found_and_none_made_up(kind):
    rng = np.random.default_rng(4)
    first, second, same = (_leaky(kind, side, 4000, rng) for side in (0, 1, 1))
    assert promise(first, second, delta=0.0, rng=rng) > 1.1  # ln 4 = 1.39
    assert promise(same, second, delta=0.0, rng=rng) < 0.15


@pytest.mark.slow
def test_bounds_after_encoding_cover():
    """Honest randomized response as text, ε = 1: the bound is above it at most as often as α."""
    rng, alpha, runs = np.random.default_rng(5), 0.2, 150
    p = 1 / (1 + math.e)
    wrong = 0
    for _ in range(runs):
        yes = [["no", "yes"][int(b)] for b in rng.random(400) < p]
        no = [["no", "yes"][int(b)] for b in rng.random(400) < 1 - p]
        wrong += promise(yes, no, delta=0.0, rng=rng, level=alpha / 2) > 1
    assert wrong <= 1.5 * alpha * runs
