"""HTTP endpoints: requests, connections, addresses, TLS, time limits, audits.

What else they may say, and never end to say, is in ``tests/hostile/test_http_replies.py``.
"""

from __future__ import annotations

import datetime
import ipaddress
import socket
import ssl
import threading
import time
import tracemalloc

import numpy as np
import pytest
from support.http_server import (
    LATEST,
    OK,
    Handler,
    answer,
    body,
    draw,
    honest,
    sampler_of,
)

from dpaudit.errors import SamplerCrashError, SamplerOutputError, SamplerTimeoutError, UsageError
from dpaudit.protocols import Request
from dpaudit.targets import open_sampler
from dpaudit.targets.endpoints.http import HttpTarget


def test_the_request_and_its_answer(serve):
    server = serve(honest)
    with open_sampler(f"http://{server.host}/a/b?c=d", seed="1").open(timeout=60) as sampler:
        assert sampler.name == f"http://{server.host}/a/b?c=d"
        assert (sampler.facts.dim, sampler.facts.available) == (None, None)
        np.testing.assert_array_equal(
            sampler.ask(Request(4, 2), timeout=20).values, np.arange(8.0).reshape(4, 2)
        )
    method, path, head, asked = server.requests[0]
    assert (method, path, asked) == ("POST", "/a/b?c=d", {"n": 4, "d": 2})
    assert head["content-type"] == "application/json"
    assert head["host"] == server.host
    assert "user-agent" not in head  # a sampler cannot tell the auditor from another client


def test_one_connection_is_kept_and_another_sampler_has_its_own(serve):
    server = serve(honest)
    with sampler_of(server).open(timeout=60) as sampler:
        for _ in range(3):
            sampler.ask(Request(4, 2), timeout=20)
        assert server.connections == 1
        with sampler.again().open(timeout=60) as other:
            np.testing.assert_array_equal(
                other.ask(Request(2, 1), timeout=20).values, [[0.0], [1.0]]
            )
        assert server.connections == 2
    assert len(server.requests) == 4


def test_many_calls_come_back_in_order_with_their_seconds(serve):
    def counts(send, n, d, server):
        if len(server.requests) == 3:
            time.sleep(0.1)
        send(answer(np.full(n * d, float(len(server.requests))).astype("<f8").tobytes()))
        return True

    server = serve(counts)
    with sampler_of(server).open(timeout=60) as sampler:
        reply = sampler.ask(Request(2, 3, calls=5), timeout=20)
        values, seconds = reply.values, reply.seconds
    np.testing.assert_array_equal(values, np.repeat([1.0, 2, 3, 4, 5], 2)[:, None] * np.ones(3))
    assert server.connections == 1
    assert seconds.shape == (5,)
    assert seconds.argmax() == 2
    assert 0.1 <= seconds[2] < 1


def test_float32(serve):
    def halves(send, n, d, _):
        send(answer((np.arange(n * d) / 2).astype("<f4").tobytes()))
        return True

    values = draw(serve(halves), 300_000, 1, dtype="f32")
    assert values.dtype == np.float64
    np.testing.assert_array_equal(values[:, 0], np.arange(300_000) / 2)


def chunks(send, n, d, _):
    data = body(n, d)
    send(OK, "Transfer-Encoding: chunked\r\n\r\n")
    for start in range(0, len(data), 1001):
        part = data[start : start + 1001]
        send(f"{len(part):x}\r\n", part, "\r\n")
    send("0\r\n\r\n")
    return True


def until_the_end(send, n, d, _):
    send(OK, "\r\n", body(n, d))


def http_1_0(send, n, d, _):
    send(answer(body(n, d), "HTTP/1.0 200 OK\r\n"))


def one_byte_headers(send, n, d, _):
    for byte in answer(body(n, d))[:60]:
        send(bytes([byte]))
    send(answer(body(n, d))[60:])
    return True


@pytest.mark.parametrize("behave", [honest, chunks, until_the_end, http_1_0, one_byte_headers])
@pytest.mark.parametrize(("n", "d"), [(1, 1), (500, 300)])
def test_all_the_ways_to_answer_well(behave, n, d, serve):
    server = serve(behave)
    with sampler_of(server).open(timeout=60) as sampler:
        for _ in range(2):
            values = sampler.ask(Request(n, d), timeout=20).values
            np.testing.assert_array_equal(values, np.arange(float(n * d)).reshape(n, d))
    assert server.connections == (2 if behave in (until_the_end, http_1_0) else 1)


def test_a_connection_closed_between_two_requests_is_opened_again(serve):
    def closes(send, n, d, server):
        send(answer(body(n, d)))
        return len(server.requests) != 1

    server = serve(closes)
    with sampler_of(server).open(timeout=60) as sampler:
        sampler.ask(Request(4, 2), timeout=20)
        time.sleep(0.05)
        sampler.ask(Request(4, 2), timeout=20)
    assert server.connections == 2


def test_a_kept_connection_that_dies_under_the_request_is_opened_once_more(serve):
    def hangs_up(send, n, d, server):
        if len(server.requests) in (2, 4, 5):
            return False
        send(answer(body(n, d)))
        return True

    server = serve(hangs_up)
    with sampler_of(server).open(timeout=60) as sampler:
        for _ in range(2):
            sampler.ask(Request(4, 2), timeout=20)
        assert len(server.requests) == 3
        with pytest.raises(SamplerCrashError, match="connection failed"):
            sampler.ask(Request(4, 2), timeout=20)
        assert len(server.requests) == 5


def test_no_proxy_from_the_environment(serve, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9/")
    assert draw(serve(honest)).shape == (4, 2)


@pytest.mark.parametrize("dtype", ["f64", "f32"])
def test_memory_is_that_of_the_values(dtype, serve):
    def zeros(send, n, d, _):
        send(OK, "\r\n")
        for _ in range(n):
            send(bytes(d * (8 if dtype == "f64" else 4)))
        return False

    server = serve(zeros)
    with sampler_of(server, dtype=dtype).open(timeout=60) as sampler:
        sampler.ask(Request(1, 1), timeout=20)
        tracemalloc.start()
        try:
            sampler.ask(Request(64, 1 << 16), timeout=20)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    size = 64 * (1 << 16) * 8
    assert size < peak < 1.3 * size


@pytest.mark.parametrize(
    ("target", "options", "match"),
    [
        ("//", {}, "names no host"),
        ("localhost:8000/", {}, "names no host"),
        ("//127.0.0.1:port/", {}, "not an address"),
        ("//127.0.0.1:99999/", {}, "not an address"),
        ("//[::1/", {}, "not an address"),
        ("//127.0.0.1/a b", {}, "no spaces"),
        ("//127.0.0.1/a\r\nX: y", {}, "no spaces"),
        ("//höst/", {}, "no spaces or special letters"),
        ("//127.0.0.1/#x", {}, "#fragment"),
        ("//me:secret@127.0.0.1/", {}, "no user, password"),
        ("//127.0.0.1/", {"dtype": "f16"}, "dtype=f16"),
        ("//127.0.0.1/", {"text_mode": True}, "text_mode"),
    ],
)
def test_addresses_and_options_that_do_not_fit(target, options, match):
    with pytest.raises(UsageError, match=match) as caught:
        HttpTarget(target, seed="1", **options)
    assert "secret" not in str(caught.value)


def test_outside_with_nothing_is_asked(serve):
    server = serve(honest)
    with pytest.raises(UsageError, match="not open"):
        sampler_of(server).ask(Request(1, 1), timeout=1)
    assert server.connections == 0


def test_the_time_limit_holds_for_many_calls_together(serve):
    def slow(send, n, d, server):
        server.stop.wait(0.1)
        return honest(send, n, d, server)

    start = time.monotonic()
    with sampler_of(serve(slow)).open(timeout=60) as sampler, pytest.raises(SamplerTimeoutError):
        sampler.ask(Request(1, 1, calls=200), timeout=0.3)
    assert time.monotonic() - start < LATEST


def test_a_name_that_is_never_found_ends_at_the_time_limit(monkeypatch):
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: time.sleep(30) or [])
    start = time.monotonic()
    with (
        HttpTarget("//noise.invalid/", seed="1").open(timeout=60) as sampler,
        pytest.raises(SamplerTimeoutError),
    ):
        sampler.ask(Request(1, 1), timeout=0.2)
    assert time.monotonic() - start < LATEST


def test_after_a_time_out_the_late_answer_is_not_taken_for_the_next(serve):
    def late(send, n, d, server):
        if len(server.requests) == 1:
            asked.wait(20)
            send(answer(np.full(n * d, 7.0).tobytes()))
        return honest(send, n, d, server)

    asked = threading.Event()
    with sampler_of(serve(late)).open(timeout=60) as sampler:
        with pytest.raises(SamplerTimeoutError):
            sampler.ask(Request(1, 1), timeout=0.2)
        asked.set()
        assert sampler.ask(Request(1, 1), timeout=20).values == 0.0


def test_bytes_that_come_after_the_answer_are_found_at_the_next_request(serve):
    def more(send, n, d, server):
        send(answer(body(n, d)))
        read.wait(20)
        send(b"x")
        sent.set()
        return True

    read, sent = threading.Event(), threading.Event()
    with sampler_of(serve(more)).open(timeout=60) as sampler:
        sampler.ask(Request(4, 2), timeout=20)
        read.set()
        assert sent.wait(20)
        time.sleep(0.05)  # over loopback
        with pytest.raises(SamplerOutputError, match="more than its last answer's length"):
            sampler.ask(Request(4, 2), timeout=20)


def test_a_refusal_whose_words_never_come_is_still_reported(serve, monkeypatch):
    monkeypatch.setattr("dpaudit.targets.endpoints.http._REFUSAL", 0.1)

    def behave(send, n, d, server):
        send("HTTP/1.1 500 Oh\r\nContent-Length: 100\r\n\r\nno en")
        server.stop.wait(60)

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
        HttpTarget(f"//127.0.0.1:{port}/", seed="1").open(timeout=60) as sampler,
        pytest.raises(SamplerCrashError, match=r"refused.*check the address"),
    ):
        sampler.ask(Request(1, 1), timeout=20)


def test_a_tls_handshake_that_hangs_ends_at_the_time_limit():
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(1)
        start = time.monotonic()
        with (
            open_sampler(f"https://127.0.0.1:{deaf.getsockname()[1]}/", seed="1").open(
                timeout=60
            ) as sampler,
            pytest.raises(SamplerTimeoutError),
        ):
            sampler.ask(Request(1, 1), timeout=0.2)
        assert time.monotonic() - start < LATEST


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A self-signed certificate for 127.0.0.1 and its key, in one file."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "noise")])
    now = datetime.datetime.now(datetime.UTC)
    day = datetime.timedelta(days=1)
    host = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - day)
        .not_valid_after(now + day)
        .add_extension(host, critical=False)
        .sign(key, hashes.SHA256())
    )
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
    path = tmp_path_factory.mktemp("tls") / "noise.pem"
    path.write_bytes(secret + made.public_bytes(pem))
    return path


def test_https_with_a_trusted_certificate(serve, certificate, monkeypatch):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server = serve(honest, context)
    with open_sampler(f"https://{server.host}/", seed="1").open(timeout=60) as sampler:
        with pytest.raises(SamplerCrashError, match="CERTIFICATE_VERIFY_FAILED"):
            sampler.ask(Request(4, 2), timeout=20)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        for _ in range(3):
            values = sampler.ask(Request(4, 2), timeout=20).values
            np.testing.assert_array_equal(values, np.arange(8.0).reshape(4, 2))
    assert len(server.requests) == 3
    assert server.connections == 2  # the one refused, and one for all three
