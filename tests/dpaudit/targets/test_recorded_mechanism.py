"""Mechanisms that run elsewhere: recorded at two neighbours, or behind an endpoint."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from command_line import here as dpaudit
from support.http_server import OK, answer

from dpaudit.errors import SamplerCrashError, SamplerOutputError, SamplerTimeoutError, UsageError
from dpaudit.protocols import Dataset, Request, Session
from dpaudit.targets.endpoints import http
from dpaudit.targets.endpoints.http import HttpTarget
from dpaudit.targets.resolve import open_mechanism

ZERO, ONE = np.array([0.0]), np.array([1.0])


def recorded(folder, scale, *, rows=6000, at=(0.0, 1.0)):
    """Rounded Laplace noise around two values, whose last bits say nothing."""
    rng = np.random.default_rng(1)
    for i, value in enumerate(at):
        released = np.round((value + rng.laplace(0, scale, rows)) * 1024) / 1024
        np.save(folder / f"at-{i}.npy", released)
    return "file:at-0.npy;at-1.npy"


def audit(*words):
    done = dpaudit("mechanism", *words, "--seed", "1", "--format", "json")
    return done.returncode, json.loads(done.stdout) if done.stdout else {}, done.stderr


def test_each_file_is_read_in_order_and_by_its_neighbour(here):
    np.save(here / "a.npy", np.arange(8.0).reshape(4, 2))
    (here / "b.csv").write_text("x,y\n10,11\n12,13\n")
    pair = (np.array([3.0, 4.0]), np.array([3.0, 5.0]))
    with open_mechanism("file:a.npy; b.csv", seed="1", neighbours=pair).open(
        timeout=60
    ) as mechanism:
        assert mechanism.facts.available == 2
        np.testing.assert_array_equal(mechanism.facts.neighbours, pair)
        second = mechanism.ask(Request(1, input=pair[1].copy()), timeout=1).values
        first = mechanism.ask(Request(2, input=pair[0].copy()), timeout=1).values
        after = mechanism.ask(Request(1, input=pair[1].copy()), timeout=1).values
        np.testing.assert_array_equal(first, [[0, 1], [2, 3]])
        np.testing.assert_array_equal([*second, *after], [[10, 11], [12, 13]])
        with pytest.raises(UsageError, match=r"value=\[3.0, 6.0\]"):
            mechanism.ask(Request(1, input=np.array([3.0, 6.0])), timeout=1)
        with pytest.raises(SamplerOutputError, match="has 0 of its 2 rows left"):
            mechanism.ask(Request(1, input=pair[1]), timeout=1)


def test_rows_of_different_lengths_are_refused(here):
    np.save(here / "a.npy", np.zeros((4, 2)))
    np.save(here / "b.npy", np.zeros((4, 3)))
    with pytest.raises(UsageError, match="rows of 2 and of 3 numbers"):
        open_mechanism("file:a.npy;b.npy", seed="1")
    with pytest.raises(UsageError, match=r"no\.npy: no such file"):
        open_mechanism("file:a.npy;no.npy", seed="1")


@pytest.mark.slow
@pytest.mark.parametrize(("scale", "code"), [(1.0, 0), (0.4, 1)])
@pytest.mark.parametrize("named", [True, False])
def test_an_audit_of_recordings(here, scale, code, named):
    target = recorded(here, scale, at=(0.0, 1.0) if named else (41.0, 42.0))
    words = [target, "--claim-epsilon", "1", *(["--neighbours", "0,1"] if named else [])]
    status, result, error = audit(*words)
    assert status == code, error
    assert result["neighbours"] == ([[0.0], [1.0]] if named else [[], []])
    # all but what a fair coin may ask for more
    assert result["samples_requested"] == 2 * int(6000 - 5 * 6000**0.5)
    assert result["samples"] == pytest.approx(result["samples_requested"], abs=4)
    assert not result["advice"]
    page = dpaudit("mechanism", *words, "--seed", "1", "--out", here / "out")
    assert page.returncode == code
    assert ("the two recordings" in (here / "out" / "report.html").read_text()) != named


@pytest.mark.slow
def test_attacks_on_recordings_need_the_query_results(here):
    target = recorded(here, 1.0)
    status, _, error = audit(target, "--claim-epsilon", "1", "--attack", "reach")
    assert status == 2
    assert "attack=reach: needs the query results" in error
    for more in ([], ["--neighbours", "0,1"]):
        status, _, error = audit(target, "--claim-epsilon", "1", "--attack", "sensitivity", *more)
        assert status == 2
        assert "attack=sensitivity: chooses neighbours itself" in error
    words = (target, "--claim-epsilon", "1", "--neighbours", "0,1", "--attack", "timing")
    assert "cannot be timed" in audit(*words)[2]
    status, result, error = audit(
        target, "--claim-epsilon", "1", "--attack", "reach", "--neighbours", "0,1"
    )
    assert (status, result["attack"]) == (0, "reach"), error


@pytest.mark.slow
def test_too_few_recorded_releases_are_inconclusive(here):
    status, _, _ = audit(recorded(here, 1.0, rows=1171), "--claim-epsilon", "1")
    assert status == 3
    status, _, _ = audit(recorded(here, 1.0, rows=1172), "--claim-epsilon", "1")
    assert status == 0


def releases(scale):
    rng = np.random.default_rng(1)

    def behave(send, n, value, server):
        released = np.round((value[0] + rng.laplace(0, scale, n)) * 1024) / 1024
        send(answer(released.astype("<f8").tobytes()))
        return True

    return behave


@pytest.mark.parametrize(("scale", "code"), [(1.0, 0), (0.4, 1)])
def test_an_audit_of_an_endpoint(serve, scale, code):
    server = serve(releases(scale))
    status, result, error = audit(
        f"http://{server.host}/release", "--neighbours", "0,1", "--claim-epsilon", "1",
        "--samples", "5e3",
    )  # fmt: skip
    assert status == code, error
    assert result["samples"] == 10_000
    assert server.connections == 1
    kind, path, head, asked = server.requests[0]
    assert (kind, path, head["content-type"]) == ("POST", "/release", "application/json")
    assert asked["value"] in ([0.0], [1.0])


def test_the_length_of_an_answer_tells_that_of_a_release(serve):
    server = serve(lambda send, n, value, _: send(answer(np.tile(value, n).tobytes())) or True)
    value = np.array([0.1, 2.0**-1074, -1e308])
    with open_mechanism(f"http://{server.host}/", seed="1").open(timeout=60) as mechanism:
        assert isinstance(mechanism, Session)
        np.testing.assert_array_equal(
            mechanism.ask(Request(4, input=value), timeout=20).values, [value] * 4
        )


def test_answers_that_are_no_releases(serve):
    def odd(send, n, value, _):
        send(answer(b"x" * 20))

    def cut(send, n, value, _):
        send("HTTP/1.1 200 OK\r\nContent-Length: 32\r\n\r\n", b"x" * 16)

    def more(send, n, value, server):
        send(answer(b"\0" * 16) + b"y")
        return True

    def endless(send, n, value, _):
        send(f"HTTP/1.1 200 OK\r\nContent-Length: {1 << 40}\r\n\r\n", b"x" * 16)

    for behave, match in (
        (odd, "gave 20 bytes, wanted n rows"),
        (cut, "gave 16 bytes of 32 and then the end"),
        (more, "more than its Content-Length"),
        (endless, "gave more than 2147483648 bytes"),
    ):
        with (
            open_mechanism(f"http://{serve(behave).host}/", seed="1").open(timeout=60) as mechanism,
            pytest.raises(SamplerOutputError, match=match),
        ):
            mechanism.ask(Request(2, input=ZERO), timeout=20)


# ---------------------------------------------------------------- of data sets


def says(text, head=OK):
    return lambda send, n, dataset, _: send(answer(text.encode(), head)) or True


def released(server, dataset, n=2, timeout=20.0):
    with HttpTarget(f"//{server.host}/release", role="mechanism").open(timeout=60) as mechanism:
        return mechanism.ask(Request(n, input=Dataset(dataset)), timeout=timeout).values


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
    monkeypatch.setattr(http, "_MOST_TEXT", 5)
    with pytest.raises(SamplerOutputError, match="more than 5 bytes"):
        released(serve(says("[1, 2]")), [1])
