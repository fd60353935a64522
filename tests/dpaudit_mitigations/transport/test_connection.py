"""Client and server over loopback: who is let in, what travels, and that nothing waits for ever."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import itertools
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import fields
from pathlib import Path

import pytest

from dpaudit.errors import CheatingError, MessageError, PeerError, ProtocolError, UsageError
from dpaudit_mitigations.transport import certificates as certificates_module
from dpaudit_mitigations.transport.certificates import dns_name, load_identity, make_authority
from dpaudit_mitigations.transport.connection import _Sending, ask, call, clean, grpc, logger
from dpaudit_mitigations.transport.server import Limits, serve

CHILD = Path(__file__).with_name("child.py")


def echo(peer, request):
    yield from request


def name(peer, request):
    yield peer.encode()


def once(peer, request):
    yield b"%d" % sum(1 for _ in request)


@pytest.fixture
def start(party):
    with contextlib.ExitStack() as stack:

        def begin(*handlers, **options):
            methods = {h.__name__: h for h in (echo, name, once, *handlers)}
            given = {f.name: options.pop(f.name) for f in fields(Limits) if f.name in options}
            options = {"identity": party("noise"), "peers": ["answer"]} | options
            return stack.enter_context(serve(methods, limits=Limits(**given), **options))

        yield begin


@pytest.fixture
def dial(party):
    def go(server, method="echo", messages=(b"x",), by=call, **options):
        options = {"identity": party("answer"), "peer": "noise", "timeout": 20.0} | options
        return by(getattr(server, "address", server), method, messages, **options)

    return go


@pytest.fixture
def talk(dial):
    return lambda *given, **options: list(dial(*given, **options))


def test_messages_go_there_and_back(start, talk, log_lines):
    server = start()
    sent = [secrets.token_bytes(n) for n in (1, 1000, 1 << 20, (4 << 20))]
    assert talk(server, messages=sent) == sent
    assert talk(server, messages=[]) == []
    assert talk(server, "name") == [b"answer"]
    server.stop()
    lines = log_lines()
    assert [(x["outcome"], x.get("peer"), x.get("method")) for x in lines] == [
        ("started", None, None),
        ("served", "answer", "echo"),
        ("served", "answer", "echo"),
        ("served", "answer", "name"),
        ("stopped", None, None),
    ]
    assert {x["service"] for x in lines} == {"noise"}


class OwnError(MessageError):
    pass


@pytest.mark.parametrize(
    "raised", [MessageError, PeerError, CheatingError, ProtocolError, OwnError]
)
@pytest.mark.parametrize("late", [False, True])
def test_errors_travel_with_class_and_text(start, dial, log_lines, raised, late):
    def fails(peer, request):
        if late:
            yield b"first"
        raise raised("round 3: σ is not agreed\nsecond line" + "." * 2000)

    server = start(fails)
    got = []
    with pytest.raises(ProtocolError) as caught:
        got.extend(dial(server, "fails", []))
    assert type(caught.value) is (MessageError if raised is OwnError else raised)
    assert "agreed second line..." in str(caught.value)
    assert len(str(caught.value)) < 1200
    assert got == [b"first"] * late
    assert [x["outcome"] for x in log_lines()] == ["started", "refused"]


@pytest.mark.parametrize("error", [ValueError, UsageError, StopIteration, KeyError])
def test_other_errors_say_nothing(start, talk, capfd, error):
    def fails(peer, request):
        raise error("the seed is 1234567")
        yield

    server = start(fails)
    with pytest.raises(ProtocolError, match=r"says: internal error$") as caught:
        talk(server, "fails")
    assert type(caught.value) is ProtocolError
    assert talk(server) == [b"x"]
    server.stop()
    written = capfd.readouterr().err
    assert "1234567" not in written
    assert written.count('"outcome": "failed"') == 1


def test_no_such_method(start, talk, log_lines):
    with pytest.raises(PeerError, match="no such method"):
        talk(start(), "publish")
    last = log_lines()[-1]
    assert (last["peer"], last["method"], last["outcome"]) == ("answer", "publish", "refused")


def test_who_is_let_in(start, talk, party, certificates, tmp_path, monkeypatch, log_lines):
    server = start()
    ours = party("answer")
    uncertified = dataclasses.replace(party("answer", "theirs"), authority=ours.authority)
    with pytest.raises(PeerError, match="refuses our certificate"):
        talk(server, identity=uncertified)
    with pytest.raises(PeerError, match="may not call"):
        talk(server, identity=party("eve"))
    assert [(x["peer"], x["outcome"]) for x in log_lines() if x["outcome"] == "refused"] == [
        ("eve", "refused")
    ]
    with pytest.raises(PeerError, match="may not call"):
        talk(server, identity=party("noise"))  # not itself either
    with pytest.raises(PeerError, match="no TLS handshake"):
        talk(server, identity=party("answer", "theirs"))  # does not believe our authority
    with pytest.raises(PeerError, match="is not that party's"):
        talk(server, peer="eve")
    with pytest.raises(PeerError, match="is not that party's"):
        talk(server, peer="localhost")  # a host that the certificate names is no party
    assert talk(server, "name") == [b"answer"]


def test_a_server_that_is_an_impostor(party, start, talk):
    theirs = start(identity=party("noise", "theirs"))
    with pytest.raises(PeerError, match="no TLS handshake"):
        talk(theirs)
    eve = start(identity=party("eve"))
    with pytest.raises(PeerError, match="certificate is not that party's"):
        talk(eve, peer="noise")
    assert talk(eve, peer="eve") == [b"x"]


def test_an_expired_certificate_is_refused_by_the_other_side(tmp_path, monkeypatch):
    """An authority of ten days ago; only answer's certificate from it has expired since."""
    build = certificates_module._Authority.party

    def answer_is_old(authority, name, hosts, public):
        days = datetime.timedelta(days=2 if name == "answer" else 0)
        older = dataclasses.replace(authority, end=authority.end - days)
        return build(older, name, hosts, public)

    monkeypatch.setattr(certificates_module._Authority, "party", answer_is_old)
    monkeypatch.setattr(certificates_module, "_BACKDATED", datetime.timedelta(days=10))
    make_authority(tmp_path / "c", ["answer", "noise", "alice"], days=1)
    noise, alice = load_identity(tmp_path / "c/noise"), load_identity(tmp_path / "c/alice")
    old = dataclasses.replace(
        alice,
        certificate=(tmp_path / "c/answer/cert.pem").read_bytes(),
        key=(tmp_path / "c/answer/key.pem").read_bytes(),
    )
    with serve({"name": name}, identity=noise, peers=["answer", "alice"]) as server:
        options = {"peer": "noise", "timeout": 20.0}
        assert ask(server.address, "name", [], identity=alice, **options) == b"alice"
        with pytest.raises(PeerError, match="refuses our certificate"):
            ask(server.address, "name", [], identity=old, **options)
    own = dataclasses.replace(old, name="answer")
    with (
        serve({"name": name}, identity=own, peers=["alice"]) as server,
        pytest.raises(PeerError, match="no TLS handshake"),
    ):
        ask(server.address, "name", [], identity=alice, peer="answer", timeout=20.0)


def test_no_certificate_no_tls_and_garbage(start, talk, party):
    server = start()
    ours = party("answer")
    options = [("grpc.ssl_target_name_override", dns_name("noise"))]
    without = grpc.secure_channel(
        server.address, grpc.ssl_channel_credentials(ours.authority), options=options
    )
    for channel in (without, grpc.insecure_channel(server.address)):
        with channel, pytest.raises(grpc.RpcError) as caught:
            list(channel.stream_stream("/dpaudit/name")(iter([b"x"]), timeout=10))
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    host, port = server.address.split(":")
    held = [socket.create_connection((host, int(port)), timeout=5) for _ in range(20)]
    for n, one in enumerate(held):  # some say nothing, some say nonsense
        if n % 2:
            with contextlib.suppress(OSError):
                one.sendall(secrets.token_bytes(1000 * n))
    assert talk(server, "name") == [b"answer"]
    for one in held:
        one.close()
    assert talk(server, "name") == [b"answer"]


@pytest.mark.slow
def test_tls_13_only(certificates):
    """In processes of their own: the rule holds where gRPC is imported through us."""
    ours = certificates / "ours"
    files = [ours / f for f in ("answer/cert.pem", "answer/key.pem", "ca.pem")]
    with child("server", ours / "noise", stderr=subprocess.PIPE) as server:
        command = [sys.executable, CHILD, "tls12", server.stdout.readline().strip(), *files]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        server.kill()
        assert "TLS 1.3 only" in server.stderr.readline()
    assert done.stdout.split() == ["refused", "TLSv1.3"], done.stderr


def test_messages_beyond_the_limit(start, talk, party, log_lines):
    def large(peer, request):
        yield b"x" * 20_000

    server = start(large, message=10_000)
    assert talk(server, messages=[b"x" * 10_000]) == [b"x" * 10_000]
    with pytest.raises(MessageError, match="larger than the limit"):
        talk(server, messages=[b"x" * 10_001])
    with pytest.raises(MessageError, match="larger than the limit"):
        talk(server, "large")
    with pytest.raises(MessageError, match="larger than the limit"):
        talk(server, messages=[b"x" * 6000], message_limit=5000)
    assert talk(server) == [b"x"]


def test_one_peer_cannot_take_every_place(start, talk, dial, party):
    free = threading.Event()

    def wait(peer, request):
        yield b"in"
        assert free.wait(20)

    server = start(wait, concurrent=2, each=1, peers=["answer", "eve"])
    first = dial(server, "wait", [])
    assert next(first) == b"in"
    with pytest.raises(PeerError, match="1 calls of answer"):
        talk(server)
    assert talk(server, identity=party("eve")) == [b"x"]
    free.set()
    assert list(first) == []
    assert talk(server) == [b"x"]


def test_too_many_calls_are_refused_and_the_others_go_on(start, talk, log_lines):
    free = threading.Event()

    def wait(peer, request):
        assert free.wait(20)
        yield b"done"

    server, pool = start(wait, concurrent=2), ThreadPoolExecutor(5)
    calls = [pool.submit(talk, server, "wait") for _ in range(5)]
    refused = list(itertools.islice(as_completed(calls, timeout=15), 3))
    for call_ in refused:
        with pytest.raises(PeerError, match="says: 2 calls are running"):
            call_.result()
    free.set()
    assert [c.result(20) for c in calls if c not in refused] == [[b"done"]] * 2
    assert talk(server) == [b"x"]
    assert sum("2 calls are running" in x.get("reason", "") for x in log_lines()) == 3


@pytest.mark.slow
def test_a_client_that_sends_nothing(start, dial, log_lines):
    server, free = start(idle=0.5), threading.Event()

    def ours():
        yield b"1"
        free.wait(20)

    began, got = time.monotonic(), []
    with pytest.raises(PeerError, match=r"nothing for 0\.5 s"):
        got.extend(dial(server, messages=ours()))
    free.set()
    assert got == [b"1"]
    assert time.monotonic() - began < 18
    assert "0.5 s" in log_lines()[-1]["reason"]


@pytest.mark.slow
def test_a_server_that_sends_nothing(start, talk):
    free = threading.Event()

    def silent(peer, request):
        yield b"1"
        free.wait(20)

    server = start(silent)
    began = time.monotonic()
    with pytest.raises(PeerError, match=r"silent for 0\.5 s"):
        talk(server, "silent", idle=0.5)
    with pytest.raises(PeerError, match=r"not done within 0\.5 s"):
        talk(server, "silent", timeout=0.5)
    assert time.monotonic() - began < 18
    free.set()
    assert talk(server) == [b"x"]


@pytest.mark.slow
def test_making_a_message_slowly_is_not_silence(start, talk):
    def ours():
        time.sleep(0.6)
        yield b"x"

    assert talk(start(idle=5.0), messages=ours(), idle=0.5) == [b"x"]


@pytest.mark.slow
def test_a_call_that_takes_too_long_in_all(start, party, talk, log_lines):
    server = start(idle=0.5, timeout=1.0)

    def steady():
        while True:
            time.sleep(0.05)
            yield b"x"

    began = time.monotonic()
    with pytest.raises(PeerError, match="disconnected"):
        talk(server, messages=steady())
    assert 0.9 < time.monotonic() - began < 18
    assert talk(server) == [b"x"]


@pytest.mark.slow
def test_a_client_that_does_not_read(start, dial, log_lines):
    """The first answer fits every window: a busy machine is not a client that does not read."""
    made, read = [], threading.Event()

    def pour(peer, request):
        yield b"x"
        read.wait(60)
        while True:
            made.append(1)
            yield b"x" * (1 << 20)

    server = start(pour, idle=1.0)
    answers = dial(server, "pour", [], timeout=100.0)
    assert next(answers) == b"x"
    read.set()
    assert "did not read" in refusals(log_lines)[-1]
    assert len(made) < 100  # what fits the windows and the few messages read ahead
    with pytest.raises(PeerError, match="disconnected"):
        list(answers)


@contextlib.contextmanager
def child(*arguments, stderr=subprocess.DEVNULL):
    command = [sys.executable, CHILD, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True) as one:
        try:
            yield one
        finally:
            one.kill()


def refusals(log_lines):
    """The reasons of refusals, once there is one."""
    deadline, lines = time.monotonic() + 60, []
    while not lines and time.monotonic() < deadline:
        time.sleep(0.05)
        lines += [x["reason"] for x in log_lines() if x["outcome"] == "refused"]
    return lines


@pytest.mark.slow
def test_a_client_killed_in_the_middle(start, talk, certificates, log_lines):
    server = start(concurrent=1)
    with child("client", certificates / "ours/answer", server.address) as one:
        assert one.stdout.readline() == "answer\n"
        with pytest.raises(PeerError, match="1 calls are running"):
            talk(server)
        assert "1 calls" in refusals(log_lines)[0]
        os.kill(one.pid, signal.SIGKILL)
    assert "disconnected" in refusals(log_lines)[0]
    assert talk(server) == [b"x"]


@pytest.mark.slow
def test_a_server_killed_in_the_middle(dial, certificates):
    with child("server", certificates / "ours/noise") as one:
        address = one.stdout.readline().strip()
        answers = dial(address, "half", [b"1"])
        assert next(answers) == b"1"
        os.kill(one.pid, signal.SIGKILL)
        with pytest.raises(PeerError, match="died"):
            next(answers)
    with pytest.raises(PeerError, match="nobody listens there"):
        dial(address, "half", [b"1"], ask)


def test_an_empty_message_is_a_usage_error(start, talk):
    with pytest.raises(UsageError, match="0 bytes"):
        talk(start(), messages=[b"1", b"", b"2"])


def test_what_our_own_messages_raise_is_raised(start, dial, log_lines):
    inside = threading.Event()

    def take(peer, request):
        next(request)
        inside.set()
        yield b"%d" % sum(1 for _ in request)

    def ours():
        yield b"1"
        assert inside.wait(10)
        raise UsageError("mine")

    server = start(take)
    with pytest.raises(UsageError, match="mine"):
        dial(server, "take", ours(), ask)
    server.stop()
    # never a whole stream
    assert [x.get("reason") for x in log_lines()][1] == "the peer disconnected"


def test_messages_that_fail_before_the_call_is_known():
    """gRPC takes the first message in a thread, perhaps before it returns the call to cancel."""

    class Call:
        cancelled = False

        def cancel(self):
            self.cancelled = True

    sending, rpc = _Sending(1 / 0 for _ in range(1)), Call()
    with pytest.raises(StopIteration):
        next(sending)
    assert isinstance(sending.error, ZeroDivisionError)
    sending.runs(rpc)
    assert rpc.cancelled


def test_a_caller_that_stops_listening(start, dial, log_lines):
    answers = dial(start(), messages=(b"x" for _ in range(10**9)))
    assert next(answers) == b"x"
    answers.close()
    assert "disconnected" in refusals(log_lines)[-1]


def test_a_stream_without_its_end_was_broken_off(start, party, log_lines):
    """As a client leaves it that dies between two messages, where gRPC sees a clean end."""
    seen = []

    def take(peer, request):
        seen.extend(request)
        yield b"all"

    server, ours = start(take), party("answer")
    credentials = grpc.ssl_channel_credentials(ours.authority, ours.key, ours.certificate)
    options = [("grpc.ssl_target_name_override", dns_name("noise"))]
    with grpc.secure_channel(server.address, credentials, options=options) as channel:
        method = channel.stream_stream("/dpaudit/take")
        assert list(method(iter([b"1", b""]), timeout=10)) == [b"all"]
        with pytest.raises(grpc.RpcError) as caught:
            list(method(iter([b"1"]), timeout=10))
    assert caught.value.details() == "the peer disconnected"
    assert seen == [b"1", b"1"]


def test_one_answer(start, dial):
    server = start()
    assert dial(server, "once", [b"1", b"2"], ask) == b"2"
    with pytest.raises(MessageError, match="no answer"):
        dial(server, "echo", [], ask)
    with pytest.raises(MessageError, match="more than one"):
        dial(server, "echo", [b"1", b"2", b"3"], ask)


def test_stopping(start, talk):
    inside, over = threading.Event(), threading.Event()

    def wait(peer, request):
        inside.set()
        yield from request

    server = start(wait, idle=30.0)
    caught = ThreadPoolExecutor(1).submit(
        talk, server, "wait", (over.wait(20) and b"x" for _ in range(3))
    )
    assert inside.wait(10)
    began = time.monotonic()
    assert not server.wait(0.05)
    server.stop(grace=0.2)
    server.stop()
    assert server.wait(5)
    assert time.monotonic() - began < 15
    with pytest.raises(PeerError):
        caught.result(20)
    over.set()
    with pytest.raises(PeerError, match="nobody listens"):
        talk(server)


@pytest.mark.slow
def test_threads_do_not_pile_up(start, talk, dial):
    server = start()
    for _ in range(5):
        talk(server)
    before = threading.active_count()
    for _ in range(8):
        talk(server)
        with pytest.raises(PeerError):
            talk(server, "nothing")
    quick, free = start(idle=0.1), threading.Event()
    for _ in range(3):  # the server lets go of a call whose client is still there and silent
        answers = dial(quick, messages=iter(free.wait, True))
        with pytest.raises(PeerError, match="sent nothing"):
            next(answers)
    assert sum(t.name == "dpaudit-pump" for t in threading.enumerate()) <= 2
    free.set()
    deadline = time.monotonic() + 20
    while threading.active_count() > before + 8 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() <= before + 8


def test_no_proxy_is_asked(start, talk, monkeypatch):
    for variable in ("http_proxy", "https_proxy", "grpc_proxy", "HTTPS_PROXY"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9")
    assert talk(start()) == [b"x"]


def test_two_servers_do_not_share_a_port(start):
    server = start()
    with pytest.raises(UsageError, match="cannot listen there"):
        start(address=server.address)


NAN = float("nan")
OF_A_SERVER = [
    {"address": "127.0.0.1"}, {"address": "unix:/tmp/x"}, {"address": "127.0.0.1:99999"},
    {"peers": []}, {"peers": ["No"]}, {"message": 0}, {"concurrent": 0}, {"each": 0},
    {"each": 5}, {"idle": 0.0}, {"idle": 700.0}, {"idle": NAN},
]  # fmt: skip
OF_A_CLIENT = [
    {"server": "unix:/tmp/x"}, {"peer": "No"}, {"timeout": 0.0}, {"timeout": NAN}, {"idle": -1.0},
    {"timeout": float("inf")}, {"method": "a/b"},
]  # fmt: skip


def test_usage_errors(start, dial):
    for change in OF_A_SERVER:
        with pytest.raises(UsageError):
            start(**change)
    for change in OF_A_CLIENT:
        with pytest.raises(UsageError):
            dial(**{"server": "127.0.0.1:1", **change})


def test_one_line_with_fixed_fields(capsys):
    log = logger("noise")
    log("served", peer="answer", method="offer", release="r1")
    log("refused", reason='a "quoted"\nreason\x1b[31m with σ and \u202e')
    first, second = map(json.loads, capsys.readouterr().err.splitlines())
    assert list(first) == ["time", "service", "peer", "method", "release", "outcome"]
    assert second["reason"] == 'a "quoted" reason�[31m with σ and �'
    assert first["time"].endswith("+00:00")


def test_length_is_bounded_and_lines_of_threads_do_not_mix(capsys):
    logger("x" * 1000)("failed", reason="y" * 100_000)
    assert len(capsys.readouterr().err) < 2000
    assert (clean("abc", 3), clean("abcd", 3)) == ("abc", "ab…")
    log = logger("s")
    with ThreadPoolExecutor(8) as pool:
        for n in range(400):
            pool.submit(log, "served", release=str(n))
    found = {json.loads(line)["release"] for line in capsys.readouterr().err.splitlines()}
    assert len(found) == 400
