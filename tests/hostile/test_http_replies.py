"""Hostile replies to ``http://…`` samplers: inconclusive in time, never an internal error."""

from __future__ import annotations

import contextlib
import gzip
import socket
import threading

import numpy as np
import pytest
from hostile.fuzzing import fuzzed, refuses_or_reads
from hostile.mutated_bytes import mutations
from hypothesis import given

from dpaudit.errors import SamplerError, SamplerTimeoutError
from dpaudit.samplers.endpoints import exchange
from dpaudit.samplers.endpoints.http import HttpSampler
from dpaudit.samplers.endpoints.http_mechanism import HttpMechanism

VALUES = np.arange(8.0).tobytes()
OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
VALID = [
    OK + b"Content-Length: 64\r\nContent-Type: application/octet-stream\r\n\r\n" + VALUES,
    OK + b"Connection: close\r\n\r\n" + VALUES,
    CHUNKED + b"10\r\n" + VALUES[:16] + b"\r\n30;x=y\r\n" + VALUES[16:] + b"\r\n0\r\nA: b\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"Content-Length: 64\r\n\r\n" + VALUES,
    b"HTTP/1.0 200\r\n\r\n" + VALUES,
]
REFUSED = [
    b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1/\x1b[2J\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 500 \x1b]52;c;AAAA\x07\r\nContent-Length: 9\r\n\r\nNo \x1b[2Jway",
    OK + b"Content-Encoding: gzip\r\nContent-Length: 30\r\n\r\n" + gzip.compress(VALUES),
    OK + b"Content-Length: 64, 65\r\n\r\n" + VALUES + b"x",
    OK + b"Content-Length: 63\r\n\r\n" + VALUES,
    OK + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n" + VALUES,
    CHUNKED + b"f" * 5000 + b"\r\n" + VALUES, CHUNKED + b"-40\r\n" + VALUES + b"\r\n0\r\n\r\n",
    CHUNKED + b"40\r\n" + VALUES + b"\r\n-1\r\n" + VALUES,
    b"HTTP/1.1 500 No\r\nTransfer-Encoding: chunked\r\n\r\n-40\r\n" + VALUES,
    CHUNKED + b"40\r\n" + VALUES + b"\r\n" + b"1\r\nx\r\n" * 1000 + b"0\r\n\r\n",
    OK + b"A: b\r\n" * 101 + b"\r\n" + VALUES, OK + b"A" * 70_000 + b"\r\n\r\n" + VALUES,
    b"HTTP/1.1 200 " + b"x" * 70_000 + b"\r\n\r\n" + VALUES,
    b"HTTP/1.1 99999999999999999999 OK\r\n\r\n" + VALUES, b"HTTP/2.0 200 OK\r\n\r\n" + VALUES,
    b"\x16\x03\x01\x02\x00\x01" + VALUES, b"SSH-2.0-OpenSSH_9.2\r\n",
    OK + b"Content-Length: 64\r\n\r\n" + b"\xff" * 64, b"",
]  # fmt: skip
WORDS = [
    b"\r\n", b"\r\n\r\n", b"\0", b"\x1b[2J", b"Content-Length: ", b"Transfer-Encoding: chunked\r\n",
    b"-1", b"0x40",
]  # fmt: skip
WORDS += [
    b"HTTP/1.1 100 Continue\r\n\r\n", b"Content-Length: 64\r\n", b"\xff", b": ", b" folded\r\n",
    b"=?utf-8?b?/w==?=",
]  # fmt: skip


class Replies(HttpSampler):
    """Connected to a socket that says ``reply`` and ends."""

    reply = b""
    asked = b'{"n": 4, "d": 2}'

    def _connect(self, deadline):
        # theirs stays open, so that the question can be sent
        ours, self.theirs = socket.socketpair()
        wire = exchange._Wire(ours)
        wire.send = self.answer
        return exchange._Reader(wire, buffer_size=1 << 16)

    def answer(self, question):
        assert question.endswith(self.asked)
        self.theirs.sendall(self.reply)
        self.then()

    def then(self):
        self.theirs.shutdown(socket.SHUT_WR)

    def _hang_up(self):
        super()._hang_up()
        if hasattr(self, "theirs"):
            self.theirs.close()


def ask(reply, timeout=5.0):
    sampler = Replies("//127.0.0.1:9/noise", seed="1")
    sampler.reply = reply
    with sampler:
        return sampler.draw(4, 2, timeout=timeout)


class Released(HttpMechanism):
    """The same for releases, of which the reply's length tells how long they are."""

    reply = b""
    asked = b'{"value": [1.5], "n": 4}'
    _connect, answer, then = Replies._connect, Replies.answer, Replies.then

    def _hang_up(self):
        super()._hang_up()
        if hasattr(self, "theirs"):
            self.theirs.close()


def released(reply):
    mechanism = Released("http://127.0.0.1:9/release")
    mechanism.reply = reply
    with mechanism:
        return mechanism.release(np.array([1.5]), 4, timeout=5.0)


@given(data=mutations([*VALID, *VALID, *REFUSED], words=WORDS))
@fuzzed
def test_mutated_releases(data):
    data = data[: 1 << 17]
    if refuses_or_reads(lambda: released(data), size=max(len(data), 64)):
        assert len(data) >= 32


@pytest.mark.parametrize("reply", VALID)
def test_valid_releases_are_read(reply):
    assert released(reply).tobytes() == VALUES


@pytest.mark.parametrize("reply", REFUSED)
def test_releases_that_are_none(reply):
    assert not refuses_or_reads(lambda: released(reply), size=len(reply))


@given(data=mutations([*VALID, *VALID, *REFUSED], words=WORDS))
@fuzzed
def test_mutated_replies(data):
    data = data[: 1 << 17]  # what the socket holds
    if refuses_or_reads(lambda: ask(data), size=max(len(data), 64)):
        assert len(data) >= 64


@pytest.mark.parametrize("reply", VALID)
def test_valid_replies_are_read(reply):
    assert ask(reply).tobytes() == VALUES


@pytest.mark.parametrize("reply", REFUSED)
def test_replies_that_are_none(reply):
    assert not refuses_or_reads(lambda: ask(reply), size=len(reply))
    with pytest.raises(SamplerError) as caught:
        ask(reply)
    assert caught.value.exit_code == 3
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 1000


ENDLESS = {
    "status lines": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "one status line": (b"HTTP/1.1 200 ", b"x"),
    "headers": (OK, b"A: b\r\n"),
    "chunks of nothing": (CHUNKED, b"1;" + b"x" * 50 + b"\r\nx\r\n"),
    "chunk extensions": (CHUNKED + b"40;", b"x"),
    "trailers": (CHUNKED + b"40\r\n" + VALUES + b"\r\n0\r\n", b"A: b\r\n"),
    "a refusal": (b"HTTP/1.1 500 No\r\n\r\n", b"no "),
    "a negative chunk": (CHUNKED + b"40\r\n" + VALUES + b"\r\n-1\r\n", b"x"),
    "bytes": (b"HTTP/1.1 200 OK\r\n\r\n", b"x"),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ENDLESS)
@pytest.mark.parametrize("drip", [True, False])
def test_replies_without_an_end(kind, drip):
    """However slowly or quickly it comes: within the time limit, in little memory."""
    start, again = ENDLESS[kind]
    stop = threading.Event()

    class Endless(Replies):
        def then(self):
            threading.Thread(target=feed, args=(self.theirs,), daemon=True).start()

    def feed(theirs):
        with contextlib.suppress(OSError):
            while not stop.wait(0.02 if drip else 0):
                theirs.sendall(again if drip else again * 500)

    sampler = Endless("//127.0.0.1:9/noise", seed="1")
    sampler.reply = start
    try:
        with sampler, pytest.raises(SamplerError) as caught:
            sampler.draw(4, 2, timeout=0.3)
    finally:
        stop.set()
    assert caught.value.exit_code == 3
    if drip and kind not in ("a refusal", "a negative chunk", "bytes"):
        assert isinstance(caught.value, SamplerTimeoutError)
