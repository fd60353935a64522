from __future__ import annotations

import contextlib
import datetime
import ipaddress
import json
import socket
import socketserver
import ssl
import threading
import time
import tracemalloc

import numpy as np
import pytest
from command_line import here

from dpaudit.errors import SamplerCrashError, SamplerOutputError, SamplerTimeoutError, UsageError
from dpaudit.samplers import open_sampler
from dpaudit.samplers.endpoints.http import HttpSampler

OK = "HTTP/1.1 200 OK\r\n"
# seconds: what has its time limit ends long before on a busy machine, and what has none does not
LATEST = 15.0


def body(n, d):
    return np.arange(n * d, dtype="<f8").tobytes()


def answer(content, head=OK):
    return f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content


class Server(socketserver.ThreadingTCPServer):
    """Calls ``behave(send, n, d, server)`` for each request; True keeps the connection."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, behave, context=None):
        self.behave, self.context = behave, context
        self.connections, self.requests = 0, []
        self.stop = threading.Event()
        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def host(self):
        return f"127.0.0.1:{self.server_address[1]}"

    def get_request(self):
        connected, address = super().get_request()
        self.connections += 1
        if self.context is not None:
            connected.settimeout(20)
            connected = self.context.wrap_socket(connected, server_side=True)
        return connected, address

    def handle_error(self, *_):
        pass


class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        with contextlib.suppress(OSError):
            while True:
                head = {}
                first = self.rfile.readline().decode().split()
                while line := self.rfile.readline().decode().strip():
                    name, _, value = line.partition(": ")
                    head[name.lower()] = value
                if not first:
                    return
                asked = json.loads(self.rfile.read(int(head["content-length"])))
                self.server.requests.append((first[0], first[1], head, asked))
                if not self.server.behave(self.send, asked["n"], asked["d"], self.server):
                    return

    def send(self, *parts):
        for part in parts:
            self.connection.sendall(part.encode() if isinstance(part, str) else part)


@pytest.fixture
def serve():
    """``serve(behave)`` → a server on 127.0.0.1 that answers so."""
    with contextlib.ExitStack() as stack:

        def start(behave, context=None):
            server = stack.enter_context(Server(behave, context))
            threading.Thread(
                target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
            ).start()
            stack.callback(server.shutdown)
            stack.callback(server.stop.set)
            return server

        yield start


def honest(send, n, d, _):
    send(answer(body(n, d)))
    return True


def sampler_of(server, path="/noise", **options):
    return HttpSampler(f"//{server.host}{path}", seed="1", **options)


def draw(server, n=4, d=2, timeout=20.0, **options):
    with sampler_of(server, **options) as sampler:
        return sampler.draw(n, d, timeout=timeout)


def test_the_request_and_its_answer(serve):
    server = serve(honest)
    with open_sampler(f"http://{server.host}/a/b?c=d", seed="1") as sampler:
        assert (sampler.name, sampler.dim, sampler.available) == (
            f"http://{server.host}/a/b?c=d",
            None,
            None,
        )
        np.testing.assert_array_equal(sampler.draw(4, 2, timeout=20), np.arange(8.0).reshape(4, 2))
    method, path, head, asked = server.requests[0]
    assert (method, path, asked) == ("POST", "/a/b?c=d", {"n": 4, "d": 2})
    assert head["content-type"] == "application/json"
    assert head["host"] == server.host
    assert "user-agent" not in head  # a sampler cannot tell the auditor from another client


def test_one_connection_is_kept_and_another_sampler_has_its_own(serve):
    server = serve(honest)
    with sampler_of(server) as sampler:
        for _ in range(3):
            sampler.draw(4, 2, timeout=20)
        assert server.connections == 1
        with sampler.again() as other:
            np.testing.assert_array_equal(other.draw(2, 1, timeout=20), [[0.0], [1.0]])
        assert server.connections == 2
    assert len(server.requests) == 4


def test_many_calls_come_back_in_order_with_their_seconds(serve):
    def counts(send, n, d, server):
        if len(server.requests) == 3:
            time.sleep(0.1)
        send(answer(np.full(n * d, float(len(server.requests))).astype("<f8").tobytes()))
        return True

    server = serve(counts)
    with sampler_of(server) as sampler:
        values, seconds = sampler.draw_calls(5, 2, 3, timeout=20)
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
    return False


def http_1_0(send, n, d, _):
    send(answer(body(n, d), "HTTP/1.0 200 OK\r\nContent-Type: application/octet-stream\r\n"))
    return False


def one_byte_headers(send, n, d, _):
    for byte in answer(body(n, d))[:60]:
        send(bytes([byte]))
    send(answer(body(n, d))[60:])
    return True


def after_100_continue(send, n, d, _):
    send("HTTP/1.1 100 Continue\r\n\r\n", answer(body(n, d)))
    return True


@pytest.mark.parametrize(
    "behave", [honest, chunks, until_the_end, http_1_0, one_byte_headers, after_100_continue]
)
@pytest.mark.parametrize(("n", "d"), [(1, 1), (500, 300)])
def test_all_the_ways_to_answer_well(behave, n, d, serve):
    server = serve(behave)
    with sampler_of(server) as sampler:
        for _ in range(2):
            np.testing.assert_array_equal(
                sampler.draw(n, d, timeout=20), np.arange(float(n * d)).reshape(n, d)
            )
    assert server.connections == (2 if behave in (until_the_end, http_1_0) else 1)


def test_a_connection_closed_between_two_requests_is_opened_again(serve):
    def closes(send, n, d, server):
        send(answer(body(n, d)))
        return len(server.requests) != 1

    server = serve(closes)
    with sampler_of(server) as sampler:
        sampler.draw(4, 2, timeout=20)
        time.sleep(0.05)
        sampler.draw(4, 2, timeout=20)
    assert server.connections == 2


def test_a_kept_connection_that_dies_under_the_request_is_opened_once_more(serve):
    def hangs_up(send, n, d, server):
        if len(server.requests) in (2, 4, 5):
            return False
        send(answer(body(n, d)))
        return True

    server = serve(hangs_up)
    with sampler_of(server) as sampler:
        for _ in range(2):
            sampler.draw(4, 2, timeout=20)
        assert len(server.requests) == 3
        with pytest.raises(SamplerCrashError, match="connection failed"):
            sampler.draw(4, 2, timeout=20)
        assert len(server.requests) == 5


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


def dribbles(parts):
    def behave(send, n, d, server):
        for byte in parts(n, d):
            send(bytes([byte]))
            if server.stop.wait(0.05):
                break
        return False

    return behave


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
    with pytest.raises(
        SamplerTimeoutError, match=r"before timeout=0.2 s \(call n=4, d=2\); raise the time limit"
    ):
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


NOT_HTTP = "not HTTP"


@pytest.mark.parametrize(
    ("behave", "match"),
    [
        (
            raw(lambda n, d: answer(body(n, d)[:-8])),
            "Content-Length=56, wanted exactly 64 bytes, 8 values of 8 bytes",
        ),
        (raw(lambda n, d: answer(body(n, d) + b"x")), "Content-Length=65, wanted exactly 64"),
        (
            raw(lambda n, d: answer(body(n, d))[:-3]),
            "gave 61 bytes and then the end, wanted exactly 64",
        ),
        (
            raw(lambda n, d: answer(body(n, d)) + b"x", keep=True),
            "gave at least 65 bytes, wanted exactly 64",
        ),
        (raw(lambda n, d: answer(body(n, d)) * 2, keep=True), "gave at least 65 bytes"),
        (raw(lambda n, d: OK.encode() + b"\r\n" + body(n, d) + b"x"), "gave at least 65 bytes"),
        (raw(lambda n, d: OK.encode() + b"\r\n" + body(n, d)[:9]), "gave 9 bytes and then the end"),
        (
            raw(OK + "Content-Length: 99999999999999999999\r\n\r\n"),
            "Content-Length=99999999999999999999",
        ),
        (raw(OK + "Content-Length: 0\r\n\r\n"), "Content-Length=0"),
        (raw(OK + "Content-Length: -1\r\n\r\n"), "Content-Length=-1"),
        (raw(OK + "Content-Length: many\r\n\r\n"), "Content-Length=many"),
        (
            raw(OK + "Transfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n0\r\n\r\n"),
            "gave 5 bytes and then the end",
        ),
        (
            raw(OK + "Transfer-Encoding: chunked\r\n\r\n40\r\nabc"),
            "gave at least 0 bytes and then the end",
        ),
        (
            raw(OK + "Transfer-Encoding: chunked\r\n\r\n41\r\n" + "a" * 65 + "\r\n0\r\n\r\n"),
            "at least 65 bytes",
        ),
        (raw(OK + "Transfer-Encoding: chunked\r\n\r\nzz\r\nabc"), "gave at least 0 bytes"),
        (raw(OK + "Transfer-Encoding: chunked\r\n\r\n-5\r\nabc"), "gave at least . bytes"),
        (
            raw(lambda n, d: answer(body(n, d), OK + "Content-Encoding: gzip\r\n")),
            "Content-Encoding=gzip",
        ),
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


def test_a_refusal_whose_words_never_come_is_reported_all_the_same(serve, monkeypatch):
    monkeypatch.setattr("dpaudit.samplers.endpoints.http._REFUSAL", 0.1)

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


def test_values_that_are_not_finite(serve):
    def nan(send, n, d, _):
        send(answer(np.array([0, np.nan, np.inf, 3]).astype("<f8").tobytes()))
        return True

    with pytest.raises(SamplerOutputError, match=r"2 of 4 .* \[0, 1\]=nan"):
        draw(serve(nan), 2, 2)


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
    with sampler_of(server, dtype=dtype) as sampler:
        sampler.draw(1, 1, timeout=20)
        tracemalloc.start()
        try:
            sampler.draw(64, 1 << 16, timeout=20)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    size = 64 * (1 << 16) * 8
    assert size < peak < 1.3 * size


@pytest.mark.parametrize(
    ("target", "match"),
    [
        ("//", "names no host"),
        ("/noise", "names no host"),
        ("localhost:8000/", "names no host"),
        ("//127.0.0.1:port/", "not an address"),
        ("//127.0.0.1:99999/", "not an address"),
        ("//[::1/", "not an address"),
        ("//127.0.0.1/a b", "no spaces"),
        ("//127.0.0.1/a\r\nX: y", "no spaces"),
        ("//höst/", "no spaces or special letters"),
        ("//127.0.0.1/#x", "#fragment"),
    ],
)
def test_what_is_not_an_address(target, match):
    with pytest.raises(UsageError, match=match):
        HttpSampler(target, seed="1")


def test_a_password_is_refused_and_not_repeated():
    with pytest.raises(UsageError, match="no user, password") as caught:
        HttpSampler("//me:secret@127.0.0.1/", seed="1")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("options", [{"dtype": "f16"}, {"text_mode": True}])
def test_options_that_do_not_fit(options):
    with pytest.raises(UsageError, match=next(iter(options))):
        HttpSampler("//127.0.0.1/", seed="1", **options)


def test_outside_with_nothing_is_asked(serve):
    server = serve(honest)
    with pytest.raises(UsageError, match="not open"):
        sampler_of(server).draw(1, 1, timeout=1)
    assert server.connections == 0


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A self-signed certificate for 127.0.0.1 and its key, in one file."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "noise")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "noise.pem"
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + made.public_bytes(serialization.Encoding.PEM)
    )
    return path


def test_https_with_a_trusted_certificate(serve, certificate, monkeypatch):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server = serve(honest, context)
    with open_sampler(f"https://{server.host}/", seed="1") as sampler:
        with pytest.raises(SamplerCrashError, match="CERTIFICATE_VERIFY_FAILED"):
            sampler.draw(4, 2, timeout=20)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        for _ in range(3):
            np.testing.assert_array_equal(
                sampler.draw(4, 2, timeout=20), np.arange(8.0).reshape(4, 2)
            )
    assert len(server.requests) == 3
    assert server.connections == 2  # the one refused, and one for all three


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


def normals(scale):
    rng = np.random.default_rng(2024)
    lock = threading.Lock()

    def behave(send, n, d, _):
        with lock:
            values = scale * rng.standard_normal(n * d)
        send(answer(values.astype("<f8").tobytes()))
        return True

    return behave


AUDIT = [
    "--claim",
    "gaussian:sigma=1",
    "--samples",
    "4e4",
    "--seed",
    "1",
    "--tests",
    "moments",
    "--format",
    "json",
]


def audited(server, *options):
    return here("audit", f"http://{server.host}/noise", *AUDIT, *options)


@pytest.mark.parametrize(
    ("scale", "code", "verdict"), [(1.0, 0, "no-finding"), (1.05, 1, "finding")]
)
def test_an_audit_over_http(scale, code, verdict, serve):
    """σ off by 5 % in 40,000 numbers or more is 14 standard errors of their mean square, at least."""
    done = audited(serve(normals(scale)))
    assert done.returncode == code, done.stderr
    assert json.loads(done.stdout)["verdict"] == verdict


def test_an_audit_of_a_stalling_endpoint_ends_in_time(serve):
    start = time.monotonic()
    done = audited(serve(dribbles(lambda n, d: answer(body(n, d)))), "--time-limit", "0.4")
    assert done.returncode == 3, done.stderr
    assert json.loads(done.stdout)["verdict"] == "inconclusive"
    assert time.monotonic() - start < LATEST
