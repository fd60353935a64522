"""HTTP endpoints that are slow, break off, or answer something else than the values."""

from __future__ import annotations

import socket
import threading
import time

import numpy as np
import pytest
from support.http_server import (
    LATEST,
    OK,
    Handler,
    answer,
    body,
    draw,
    dribbles,
    honest,
    sampler_of,
)

from dpaudit.errors import SamplerCrashError, SamplerOutputError, SamplerTimeoutError
from dpaudit.samplers import open_sampler
from dpaudit.samplers.endpoints.http import HttpSampler

CHUNKED = OK + "Transfer-Encoding: chunked\r\n\r\n"


def waits(server):
    server.stop.wait(60)
    return False


def silent(send, n, d, server):
    return waits(server)


def stalls_in_the_status(send, n, d, server):
    send("HTTP/1.1 20")
    return waits(server)


def stalls_in_the_headers(send, n, d, server):
    send(OK, "Content-Le")
    return waits(server)


def stalls_in_the_body(send, n, d, server):
    send(answer(body(n, d))[:-1])
    return waits(server)


def stalls_after_the_last_value(send, n, d, server):
    send(OK, "\r\n", body(n, d))  # the end of the connection would be the end of the answer
    return waits(server)


def never_ends_its_headers(send, n, d, server):
    send(OK)
    while not server.stop.wait(0.02):
        send("X: y\r\n" if len(server.requests) > 1 else "")
    return False


def says_continue_for_ever(send, n, d, server):
    while not server.stop.is_set():
        send("HTTP/1.1 100 Continue\r\n\r\n" * 100)
    return False


def trailers_for_ever(send, n, d, server):
    send(OK, f"Transfer-Encoding: chunked\r\n\r\n{n * d * 8:x}\r\n", body(n, d), "\r\n0\r\n")
    while not server.stop.is_set():
        send("X: y\r\n" * 100)
    return False


@pytest.mark.slow
@pytest.mark.parametrize(
    "behave",
    [
        silent,
        stalls_in_the_status,
        stalls_in_the_headers,
        stalls_in_the_body,
        stalls_after_the_last_value,
        dribbles(lambda n, d: answer(body(n, d))),
        dribbles(lambda n, d: answer(b"", OK + "X: " + "y" * 900 + "\r\n")),
        never_ends_its_headers,
        says_continue_for_ever,
        trailers_for_ever,
    ],
)
def test_whatever_is_slow_ends_at_the_time_limit(behave, serve):
    start = time.monotonic()
    match = r"before timeout=0.2 s \(call n=4, d=2\); raise the time limit"
    with pytest.raises(SamplerTimeoutError, match=match):
        draw(serve(behave), timeout=0.2)
    assert 0.2 <= time.monotonic() - start < LATEST


def test_the_time_limit_holds_for_many_calls_together(serve):
    def slow(send, n, d, server):
        server.stop.wait(0.1)
        return honest(send, n, d, server)

    start = time.monotonic()
    with sampler_of(serve(slow)) as sampler, pytest.raises(SamplerTimeoutError):
        sampler.draw_calls(200, 1, 1, timeout=0.3)
    assert time.monotonic() - start < LATEST


def test_a_server_that_accepts_nobody(here):
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(1)  # connected by the kernel, answered by nobody
        with (
            HttpSampler(f"//127.0.0.1:{deaf.getsockname()[1]}/", seed="1") as sampler,
            pytest.raises(SamplerTimeoutError),
        ):
            sampler.draw(1, 1, timeout=0.3)


def test_a_name_that_is_never_found_ends_at_the_time_limit(monkeypatch):
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: time.sleep(30) or [])
    start = time.monotonic()
    with HttpSampler("//noise.invalid/", seed="1") as sampler, pytest.raises(SamplerTimeoutError):
        sampler.draw(1, 1, timeout=0.2)
    assert time.monotonic() - start < LATEST


def test_after_a_time_out_the_late_answer_is_not_taken_for_the_next(serve):
    def late(send, n, d, server):
        if len(server.requests) == 1:
            asked.wait(20)
            send(answer(np.full(n * d, 7.0).tobytes()))
        return honest(send, n, d, server)

    asked = threading.Event()
    with sampler_of(serve(late)) as sampler:
        with pytest.raises(SamplerTimeoutError):
            sampler.draw(1, 1, timeout=0.2)
        asked.set()
        assert sampler.draw(1, 1, timeout=20) == 0.0


def raw(text, *, keep=False):
    def behave(send, n, d, server):
        send(text(n, d) if callable(text) else text)
        return keep

    return behave


def floods(send, n, d, server):
    send(OK, "\r\n")
    while not server.stop.is_set():
        send(bytes(1 << 16))
    return False


def floods_headers(send, n, d, server):
    send(OK)
    while not server.stop.is_set():
        send("X: " + "y" * 60_000 + "\r\n")
    return False


def floods_one_header(send, n, d, server):
    send(OK, "X: ")
    while not server.stop.is_set():
        send("y" * 60_000)
    return False


def length(text):
    return raw(f"{OK}Content-Length: {text}\r\n\r\n")


def packed(n, d):
    return answer(body(n, d), OK + "Content-Encoding: gzip\r\n")


NOT_HTTP = "not HTTP"
END = "and then the end"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("behave", "match"),
    [
        (
            raw(lambda n, d: answer(body(n, d)[:-8])),
            "Content-Length=56, wanted exactly 64 bytes, 8 values of 8 bytes",
        ),
        (raw(lambda n, d: answer(body(n, d) + b"x")), "Content-Length=65, wanted exactly 64"),
        (raw(lambda n, d: answer(body(n, d))[:-3]), f"gave 61 bytes {END}, wanted exactly 64"),
        (
            raw(lambda n, d: answer(body(n, d)) + b"x", keep=True),
            "gave at least 65 bytes, wanted exactly 64",
        ),
        (raw(lambda n, d: answer(body(n, d)) * 2, keep=True), "gave at least 65 bytes"),
        (raw(lambda n, d: OK.encode() + b"\r\n" + body(n, d) + b"x"), "gave at least 65 bytes"),
        (raw(lambda n, d: OK.encode() + b"\r\n" + body(n, d)[:9]), f"gave 9 bytes {END}"),
        (length("99999999999999999999"), "Content-Length=99999999999999999999"),
        (length("0"), "Content-Length=0"),
        (length("-1"), "Content-Length=-1"),
        (length("many"), "Content-Length=many"),
        (raw(CHUNKED + "5\r\nabcde\r\n0\r\n\r\n"), f"gave 5 bytes {END}"),
        (raw(CHUNKED + "40\r\nabc"), f"gave at least 0 bytes {END}"),
        (raw(CHUNKED + "41\r\n" + "a" * 65 + "\r\n0\r\n\r\n"), "at least 65 bytes"),
        (raw(CHUNKED + "zz\r\nabc"), "gave at least 0 bytes"),
        (raw(CHUNKED + "-5\r\nabc"), "gave at least . bytes"),
        (raw(packed), "Content-Encoding=gzip"),
        (raw("hello\r\n\r\n"), f"{NOT_HTTP} .*hello"),
        (raw("HTTP/1.1 fine\r\n\r\n"), f"{NOT_HTTP} .*fine"),
        (raw("HTTP/2 200 OK\r\n\r\n"), NOT_HTTP),
        (raw("220 mail.example ESMTP\r\n"), f"{NOT_HTTP} .*ESMTP"),
        (raw("\x1b[2J\x07\r\n\r\n"), rf"{NOT_HTTP} \(BadStatusLine: �\[2J�\)"),
        (raw("HTTP/1.1 204 No Content\r\n\r\n"), "status 204 No Content"),
        (floods, "gave at least 65 bytes"),
        (floods_headers, f"{NOT_HTTP} .*100 headers"),
        (floods_one_header, f"{NOT_HTTP} .*header line"),
        (
            raw("HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n"),
            "redirect, 302 Found to /else",
        ),
        (raw("HTTP/1.1 301 Moved\r\nLocation: http://169.254.169.254/\r\n\r\n"), "is not followed"),
        (raw("HTTP/1.1 307 \r\n\r\n"), "redirect, 307 to nowhere"),
    ],
)
def test_wrong_answers_say_what_was_wanted(behave, match, serve):
    server = serve(behave)
    start = time.monotonic()
    with pytest.raises(SamplerOutputError, match=match) as caught:
        draw(server, timeout=60)
    assert time.monotonic() - start < LATEST
    assert len(server.requests) == 1
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 700


def test_bytes_that_come_after_the_answer_are_found_at_the_next_request(serve):
    def more(send, n, d, server):
        send(answer(body(n, d)))
        read.wait(20)
        send(b"x")
        sent.set()
        return True

    read, sent = threading.Event(), threading.Event()
    with sampler_of(serve(more)) as sampler:
        sampler.draw(4, 2, timeout=20)
        read.set()
        assert sent.wait(20)
        time.sleep(0.05)  # over loopback
        with pytest.raises(SamplerOutputError, match="more than its last answer's length"):
            sampler.draw(4, 2, timeout=20)


@pytest.mark.parametrize(
    ("behave", "match"),
    [
        (
            raw("HTTP/1.1 500 Oh\r\nContent-Length: 13\r\n\r\n\nno entropy\nx"),
            "status 500 Oh; it says 'no entropy'",
        ),
        (raw("HTTP/1.1 404 Not Found\r\n\r\n"), r"status 404 Not Found \(call"),
        (raw("HTTP/1.1 503 Busy\r\nContent-Length: 99\r\n\r\nstalled"), "status 503 Busy"),
        (
            raw("HTTP/1.1 400 Bad\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n\x1b!\r\n0\r\n\r\n"),
            r"it says '�!'",
        ),
        (raw(""), "connection failed"),
    ],
)
def test_a_server_that_fails_is_quoted(behave, match, serve):
    with pytest.raises(SamplerCrashError, match=match) as caught:
        draw(serve(behave))
    assert "\n" not in str(caught.value)


def test_a_refusal_whose_words_never_come_is_still_reported(serve, monkeypatch):
    monkeypatch.setattr("dpaudit.samplers.endpoints.exchange._REFUSAL", 0.1)

    def behave(send, n, d, server):
        send("HTTP/1.1 500 Oh\r\nContent-Length: 100\r\n\r\nno en")
        return waits(server)

    start = time.monotonic()
    with pytest.raises(SamplerCrashError, match="status 500 Oh"):
        draw(serve(behave), timeout=60)
    assert time.monotonic() - start < LATEST


def test_a_reset_in_the_answer(serve):
    def behave(send, n, d, server):
        send(answer(body(n, d))[:70])
        handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        handler.connection.close()
        return False

    handler = None

    class Resetting(Handler):
        def setup(self):
            nonlocal handler
            super().setup()
            handler = self

    server = serve(behave)
    server.RequestHandlerClass = Resetting
    with pytest.raises(
        (SamplerCrashError, SamplerOutputError), match=r"connection failed|and then the end"
    ):
        draw(server)


def test_nobody_listens():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with (
        HttpSampler(f"//127.0.0.1:{port}/", seed="1") as sampler,
        pytest.raises(SamplerCrashError, match=r"refused.*check the address"),
    ):
        sampler.draw(1, 1, timeout=20)


def test_a_tls_handshake_that_hangs_ends_at_the_time_limit():
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(1)
        start = time.monotonic()
        with (
            open_sampler(f"https://127.0.0.1:{deaf.getsockname()[1]}/", seed="1") as sampler,
            pytest.raises(SamplerTimeoutError),
        ):
            sampler.draw(1, 1, timeout=0.2)
        assert time.monotonic() - start < LATEST
