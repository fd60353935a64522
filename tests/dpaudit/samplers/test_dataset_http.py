"""Mechanisms on data sets behind an HTTP endpoint: what is asked, answered and refused."""

import json
import math

import numpy as np
import pytest
from command_line import here
from support.http_server import OK, answer

from dpaudit.errors import SamplerCrashError, SamplerOutputError, SamplerTimeoutError
from dpaudit.samplers.endpoints import dataset_http
from dpaudit.samplers.endpoints.dataset_http import DatasetEndpoint


def says(text, head=OK):
    return lambda send, n, dataset, _: send(answer(text.encode(), head)) or True


def released(server, dataset, n=2, timeout=20.0):
    with DatasetEndpoint(f"http://{server.host}/release") as mechanism:
        return mechanism.release_any(dataset, n, timeout=timeout)


def test_the_data_set_is_posted_and_releases_are_any_json(serve):
    server = serve(says('[{"Bonn": [1, null]}, "yes", NaN, -Infinity]'))
    rows = [{"age": 3, "city": None, "x": math.inf}]
    found = released(server, rows, n=4)
    assert repr(found) == "[{'Bonn': [1, None]}, 'yes', nan, -inf]"
    kind, path, head, asked = server.requests[0]
    assert (kind, path, head["content-type"]) == ("POST", "/release", "application/json")
    assert asked == {"dataset": rows, "n": 4}


def test_arrays_and_frames_are_posted_as_records(serve):
    pd = pytest.importorskip("pandas")
    server = serve(says("[1, 2]"))
    for dataset, wanted in (
        (np.eye(2, dtype=int), [[1, 0], [0, 1]]),
        (pd.DataFrame({"a": [1, 2], "b": ["x", "y"]}), [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]),
    ):
        released(server, dataset)
        assert server.requests[-1][3]["dataset"] == wanted
    assert server.connections == 2


@pytest.mark.parametrize(
    ("text", "head", "kind", "match"),
    [
        ("[1]", OK, SamplerOutputError, r"with 1 releases, wanted a JSON array of 2 .*\(release n"),
        ('{"a": 1}', OK, SamplerOutputError, "with dict, wanted a JSON array of 2"),
        ("[1, \x1b[2J", OK, SamplerOutputError, "is no JSON"),
        ("[" * 100_000, OK, SamplerOutputError, "is no JSON"),
        ("[1, " + "[" * 50 + "]" * 51, OK, SamplerOutputError, "nested"),
        ("", OK, SamplerOutputError, "gave 0 bytes"),
        ("no\x1b[31m", "HTTP/1.1 500 Oh\r\n", SamplerCrashError, "status 500 Oh; it says 'no"),
        ("[1, 2]", f"{OK}Content-Encoding: gzip\r\n", SamplerOutputError, "gzip"),
    ],
)
def test_answers_that_are_no_releases_are_one_sentence(serve, text, head, kind, match):
    with pytest.raises(kind, match=f"^mechanism http://.*{match}") as caught:
        released(serve(says(text, head)), [1])
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 500


def test_a_late_answer_and_one_too_large(serve, monkeypatch):
    with pytest.raises(SamplerTimeoutError, match=r"timeout=0\.2"):
        released(serve(lambda send, n, d, server: server.stop.wait(20)), [1], timeout=0.2)
    monkeypatch.setattr(dataset_http, "_MOST", 5)
    with pytest.raises(SamplerOutputError, match="more than 5 bytes"):
        released(serve(says("[1, 2]")), [1])


@pytest.mark.parametrize(("clipped", "code"), [(True, 0), (False, 1)])
def test_an_endpoint_is_audited_at_two_files(serve, tmp_path, monkeypatch, clipped, code):
    monkeypatch.setattr("dpaudit.audit.epsilon.judge.learned_scores", lambda *_, **__: [])
    rng = np.random.default_rng(1)

    def total(send, n, dataset, _):
        exact = sum(min(row["age"], 10 if clipped else 1000) for row in dataset)
        send(answer(json.dumps([{"sum": x} for x in rng.laplace(exact, 10, n).round(1)]).encode()))
        return True

    (tmp_path / "a.csv").write_text("age\n3\n7\n")
    (tmp_path / "b.csv").write_text("age\n3\n7\n90\n")
    ended = here(
        *("mechanism", f"http://{serve(total).host}/sum", "--claim-epsilon", "1"),
        *("--neighbours", "a.csv;b.csv", "--seed", "1", "--samples", "2000"),
        cwd=tmp_path,
    )
    assert ended.returncode == code, ended.stderr
    assert "Second: 3 records" in ended.stdout
