"""Hostile replies to ``http://…`` samplers: inconclusive in time, never an internal error."""

from __future__ import annotations

import contextlib
import gzip
import socket
import threading
import time

import numpy as np
import pytest
from hostile.fuzzing import fuzz, made_up, refuses_or_reads

from dpaudit.errors import SamplerCrashError, SamplerError, SamplerOutputError, SamplerTimeoutError
from dpaudit.protocols import Request
from dpaudit.targets.endpoints import http
from dpaudit.targets.endpoints.http import HttpTarget

VALUES = np.arange(8.0).tobytes()
OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
WHOLE = OK + b"Content-Length: 64\r\nContent-Type: application/octet-stream\r\n\r\n" + VALUES
VALID = [
    WHOLE,
    OK + b"Connection: close\r\n\r\n" + VALUES,
    CHUNKED + b"10\r\n" + VALUES[:16] + b"\r\n30;x=y\r\n" + VALUES[16:] + b"\r\n0\r\nA: b\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"Content-Length: 64\r\n\r\n" + VALUES,
    b"HTTP/1.0 200\r\n\r\n" + VALUES,
]


def ok(length, body=b""):
    return OK + b"Content-Length: %s\r\n\r\n%s" % (length, body)


# what is said of replies that no sampler may give; and of those, which no mechanism either
SURPLUS, HTTP, END = "gave at least 65 bytes", "not HTTP", "and then the end"
WRONG_LENGTH = {
    ok(b"63", VALUES): "Content-Length=63",
    ok(b"56", VALUES[:-8]): "Content-Length=56, wanted exactly 64 bytes, 8 values of 8 bytes",
    ok(b"65", VALUES + b"x"): "Content-Length=65, wanted exactly 64",
    WHOLE[:-3]: f"gave 61 bytes {END}, wanted exactly 64",
    WHOLE + b"x": f"{SURPLUS}, wanted exactly 64",
    WHOLE * 2: SURPLUS,
    OK + b"\r\n" + VALUES + b"x": SURPLUS,
    OK + b"\r\n" + VALUES[:9]: f"gave 9 bytes {END}",
    ok(b"0"): "Content-Length=0",
    CHUNKED + b"5\r\nabcde\r\n0\r\n\r\n": f"gave 5 bytes {END}",
    CHUNKED + b"41\r\n" + b"a" * 65 + b"\r\n0\r\n\r\n": SURPLUS,
    ok(b"99999999999999999999"): "Content-Length=99999999999999999999",
    ok(b"-1"): "Content-Length=-1",
    ok(b"many"): "Content-Length=many",
}
REFUSED = {
    ok(b"64, 65", VALUES + b"x"): "Content-Length=64, 65",
    ok(b"9" * 5000, VALUES): "Content-Length=9999",
    ok(b"64", b"\xff" * 64): "8 of 8",
    CHUNKED + b"40\r\nabc": f"gave at least 0 bytes {END}",
    CHUNKED + b"zz\r\nabc": "gave at least 0 bytes",
    CHUNKED + b"-5\r\nabc": "gave at least . bytes",
    CHUNKED + b"f" * 5000 + b"\r\n" + VALUES: f"gave at least|{HTTP}",
    CHUNKED + b"-40\r\n" + VALUES + b"\r\n0\r\n\r\n": f"gave at least|{HTTP}",
    CHUNKED + b"40\r\n" + VALUES + b"\r\n-1\r\n" + VALUES: f"gave at least|{HTTP}",
    CHUNKED + b"40\r\n" + VALUES + b"\r\n" + b"1\r\nx\r\n" * 1000 + b"0\r\n\r\n": SURPLUS,
    OK + b"Content-Encoding: gzip\r\nContent-Length: 30\r\n\r\n" + gzip.compress(VALUES): "gzip",
    OK + b"A: b\r\n" * 101 + b"\r\n" + VALUES: f"{HTTP} .*100 headers",
    OK + b"A" * 70_000 + b"\r\n\r\n" + VALUES: f"{HTTP} .*header line",
    b"HTTP/1.1 200 " + b"x" * 70_000 + b"\r\n\r\n" + VALUES: HTTP,
    b"HTTP/1.1 99999999999999999999 OK\r\n\r\n" + VALUES: HTTP,
    b"HTTP/2.0 200 OK\r\n\r\n" + VALUES: HTTP,
    b"HTTP/2 200 OK\r\n\r\n": HTTP,
    b"HTTP/1.1 fine\r\n\r\n": f"{HTTP} .*fine",
    b"\x16\x03\x01\x02\x00\x01" + VALUES: HTTP,
    b"SSH-2.0-OpenSSH_9.2\r\n": f"{HTTP} .*SSH",
    b"\x1b[2J\x07\r\n\r\n": rf"{HTTP} \(BadStatusLine: �\[2J�\)",
    b"HTTP/1.1 204 No Content\r\n\r\n": "status 204 No Content",
    b"HTTP/1.1 302 Found\r\nLocation: /there\r\nContent-Length: 0\r\n\r\n": "302 Found to /there",
    b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1/\x1b[2J\r\n\r\n": "redirect",
    b"HTTP/1.1 301 Moved\r\nLocation: http://169.254.169.254/\r\n\r\n": "is not followed",
    b"HTTP/1.1 307 \r\n\r\n": "redirect, 307 to nowhere",
}
# a server that fails is quoted
FAILED = {
    b"": "connection failed",
    b"HTTP/1.1 500 \x1b]52;c;AAAA\x07\r\nContent-Length: 9\r\n\r\nNo \x1b[2Jway": "status 500",
    b"HTTP/1.1 500 No\r\nTransfer-Encoding: chunked\r\n\r\n-40\r\n" + VALUES: "status 500 No",
    b"HTTP/1.1 500 Oh\r\nContent-Length: 13\r\n\r\n\nno entropy\nx": "Oh; it says 'no entropy'",
    b"HTTP/1.1 404 Not Found\r\n\r\n": r"status 404 Not Found \((call|release)",
    b"HTTP/1.1 503 Busy\r\nContent-Length: 99\r\n\r\nstalled": "status 503 Busy",
    b"HTTP/1.1 400 A\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n\x1b!\r\n0\r\n\r\n": r"says '�!'",
}
WORDS = [
    b"\r\n", b"\r\n\r\n", b"\0", b"\x1b[2J", b"Content-Length: ", b"Transfer-Encoding: chunked\r\n",
    b"-1", b"0x40", b"HTTP/1.1 100 Continue\r\n\r\n", b"Content-Length: 64\r\n", b"\xff", b": ",
    b" folded\r\n", b"=?utf-8?b?/w==?=",
]  # fmt: skip


class Replies:
    """Connected to a socket that says ``reply`` and ends."""

    reply, asked = b"", b'{"n": 4, "d": 2}'

    def _connect(self, deadline):
        # theirs stays open, so that the question can be sent
        ours, self.theirs = socket.socketpair()
        wire = http._Wire(ours)
        wire.send = self.answer
        return http._Reader(wire, buffer_size=1 << 16)

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


class Noise(Replies, HttpTarget):
    """Asked for four times two values."""


class Released(Replies, HttpTarget):
    """The same for releases, of which the reply's length tells how long they are."""

    asked = b'{"value": [1.5], "n": 4}'


def noise(reply, kind=Noise, timeout=5.0):
    sampler = kind("//127.0.0.1:9/noise", seed="1")
    sampler.reply = reply
    with sampler.open(timeout=60):
        return sampler.ask(Request(4, 2), timeout=timeout).values


def releases(reply):
    mechanism = Released("//127.0.0.1:9/release", role="mechanism")
    mechanism.reply = reply
    with mechanism.open(timeout=60):
        return mechanism.ask(Request(4, input=np.array([1.5])), timeout=5.0).values


@pytest.mark.parametrize(("ask", "least"), [(noise, 64), (releases, 32)])
def test_mutated_replies(ask, least):
    known = [*VALID, *VALID, *REFUSED, *FAILED]

    def one(rng):
        data = made_up(rng, known, WORDS)[: 1 << 17]  # what the socket holds
        read = refuses_or_reads(lambda: ask(data), size=max(len(data), 64))
        assert not read or len(data) >= least
        return read

    fuzz(one, seen=set())


@pytest.mark.parametrize("ask", [noise, releases])
@pytest.mark.parametrize("reply", VALID)
def test_valid_replies_are_read(reply, ask):
    assert ask(reply).tobytes() == VALUES


@pytest.mark.parametrize(
    ("ask", "replies", "kind"),
    [
        (noise, WRONG_LENGTH | REFUSED, SamplerOutputError),
        (noise, FAILED, SamplerCrashError),
        (releases, REFUSED, SamplerOutputError),
        (releases, FAILED, SamplerCrashError),
    ],
)
def test_wrong_answers_say_what_was_wanted(ask, replies, kind):
    for reply, says in replies.items():
        assert not refuses_or_reads(lambda reply=reply: ask(reply), size=len(reply)), reply[:200]
        with pytest.raises(kind, match=says if ask is noise else None) as caught:
            ask(reply)
        assert caught.value.exit_code == 3
        assert str(caught.value).isprintable()
        assert len(str(caught.value)) < 1000


# how a reply begins, and what then comes again and again
ENDLESS = {
    "status lines": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "one status line": (b"HTTP/1.1 200 ", b"x"),
    "headers": (OK, b"A: b\r\n"),
    "one header": (OK + b"A: ", b"x"),
    "chunks of nothing": (CHUNKED, b"1;" + b"x" * 50 + b"\r\nx\r\n"),
    "chunk extensions": (CHUNKED + b"40;", b"x"),
    "trailers": (CHUNKED + b"40\r\n" + VALUES + b"\r\n0\r\n", b"A: b\r\n"),
    "a refusal": (b"HTTP/1.1 500 No\r\n\r\n", b"no "),
    "a negative chunk": (CHUNKED + b"40\r\n" + VALUES + b"\r\n-1\r\n", b"x"),
    "bytes": (b"HTTP/1.1 200 OK\r\n\r\n", b"x"),
    "silence": (b"", b""),
    "silence in the headers": (OK + b"Content-Le", b""),
    "silence in the body": (WHOLE[:-1], b""),
    # the end of the connection would be the end of the answer
    "silence after the last value": (OK + b"\r\n" + VALUES, b""),
}
REFUSED_BEFORE = ("a refusal", "a negative chunk", "bytes")  # its end


@pytest.mark.slow
@pytest.mark.parametrize("kind", ENDLESS)
@pytest.mark.parametrize("drip", [True, False])
def test_replies_without_an_end(kind, drip):
    """However slowly or quickly it comes: within the time limit, in little memory."""
    start, again = ENDLESS[kind]
    stop = threading.Event()

    class Endless(Noise):
        def then(self):
            threading.Thread(target=feed, args=(self.theirs,), daemon=True).start()

    def feed(theirs):
        with contextlib.suppress(OSError):
            while not stop.wait(0.02 if drip or not again else 0):
                theirs.sendall(again if drip else again * 500)

    began = time.monotonic()
    try:
        with pytest.raises(SamplerError) as caught:
            noise(start, Endless, timeout=0.3)
    finally:
        stop.set()
    assert time.monotonic() - began < 15
    assert caught.value.exit_code == 3
    if (drip or not again) and kind not in REFUSED_BEFORE:
        assert isinstance(caught.value, SamplerTimeoutError)


def test_a_reply_that_never_comes_ends_at_the_time_limit():
    class Silent(Noise):
        def then(self):
            pass

    with pytest.raises(SamplerTimeoutError, match=r"timeout=0.2 s \(call n=4, d=2\)"):
        noise(b"HTTP/1.1 20", Silent, timeout=0.2)
