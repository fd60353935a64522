"""Rounds over mutual TLS: who dies, is late or cheats is dropped, and the others' sum is exact."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from support.slow import partly
from typer.testing import CliRunner

from dpaudit.cli.app import app
from dpaudit.errors import CheatingError, MessageError, PeerError, ProtocolError, UsageError
from dpaudit.randomness import KeyedStream
from dpaudit_mitigations import commands
from dpaudit_mitigations.codec import pack
from dpaudit_mitigations.secure_aggregation import network, wire
from dpaudit_mitigations.secure_aggregation.client import read_receipt
from dpaudit_mitigations.secure_aggregation.network import aggregate_round, contribute_round
from dpaudit_mitigations.secure_aggregation.plan import ROUND_BYTES, transcript
from dpaudit_mitigations.secure_aggregation.server import RoundServer
from dpaudit_mitigations.secure_aggregation.terms import (
    Introduced,
    Roster,
    RoundTerms,
    check_roster,
    introduce,
)
from dpaudit_mitigations.transport.certificates import load_identity, make_authority
from dpaudit_mitigations.transport.connection import ask
from dpaudit_mitigations.transport.journal import Journal

PARTIES = ("alice", "bob", "carol", "dave")
LENGTH = 1000
REAL_ASK = network.ask


@pytest.fixture(scope="module")
def identities(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certificates")
    make_authority(folder / "ours", ["aggregator", "mallory", *PARTIES])
    make_authority(folder / "theirs", ["aggregator", "mallory", *PARTIES])
    return folder


def number_of(name):
    """The round of that name as its plan has it."""
    return transcript("round", name.encode())[:ROUND_BYTES]


# by round and stage: parties not waited for; the stage closes once all others have answered
ABSENT: dict[tuple[bytes, str], set[str]] = {}


class Prompt(network.HubServer):
    """Stages whose time is up by what happens and not by the clock."""

    def complete(self):
        absent = ABSENT.get((number_of(self.hub._terms.round), self.hub.stage), set())
        return set(self.hub.expected) - self._failed <= absent


@pytest.fixture(scope="module", autouse=True)
def prompt():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(network, "HubServer", Prompt)
        yield


@pytest.fixture
def without(monkeypatch):
    """Let the stage of that name of the round "r" go on without these parties."""
    return lambda stage, *names: monkeypatch.setitem(ABSENT, (number_of("r"), stage), set(names))


class Round:
    """An aggregator and contributors in threads; ``results`` holds their results or exceptions."""

    def __init__(
        self, identities, folder, *, parties=PARTIES, stage_timeout=90.0, join_timeout=90.0, **terms
    ):
        self.identities, self.folder = identities, folder
        folder.mkdir(parents=True, exist_ok=True)
        given = {"threshold": 3, "length": LENGTH, "bound": 2.0**20, "sigma": 0.0, **terms}
        self.terms = RoundTerms(round=folder.name, parties=parties, **given)
        self.out = folder / "sum.npy"
        self.values = {
            p: np.arange(LENGTH, dtype=np.float64) * 2.0**i for i, p in enumerate(parties)
        }
        self.address, self._ready = "", threading.Event()
        self.pool = ThreadPoolExecutor(len(parties) + 3)
        self.aggregator = self.pool.submit(self._aggregate, join_timeout, stage_timeout)
        assert self._ready.wait(20) or self.aggregator.result(0)

    def _aggregate(self, join_timeout, stage_timeout):
        def listening(address):
            self.address = address
            self._ready.set()

        with Journal(self.folder / "aggregator.sqlite", kind=network.AGGREGATOR_JOURNAL) as journal:
            return aggregate_round(
                load_identity(self.identities / "ours" / "aggregator"),
                terms=self.terms,
                address="127.0.0.1:0",
                journal=journal,
                out=self.out,
                join_timeout=join_timeout,
                stage_timeout=stage_timeout,
                listening=listening,
            )

    def start(self, *names, authority="ours", terms=None, journal=None):
        return [
            self.pool.submit(self._contribute, n, authority, terms or self.terms, journal or n)
            for n in names
        ]

    def _contribute(self, name, authority, terms, journal):
        values = self.values.get(name, np.zeros(LENGTH))
        with Journal(self.folder / f"{journal}.sqlite", kind=network.CONTRIBUTOR_JOURNAL) as kept:
            return contribute_round(
                values,
                identity=load_identity(self.identities / authority / name),
                terms=terms,
                address=self.address,
                aggregator="aggregator",
                journal=kept,
                stream=KeyedStream.from_seed(f"network tests {name}"),
                patience=60,
            )

    def send(self, name, method, *messages):
        """Raw messages of a party that has a certificate."""
        identity = load_identity(self.identities / "ours" / name)
        options = {"identity": identity, "peer": "aggregator", "timeout": 30, "idle": 30}
        return ask(self.address, method, messages, **options)

    def check(self, receipts, survivors):
        """The sum is that of exactly ``survivors``, and everybody was told so."""
        published = self.aggregator.result(60)
        assert set(published.survivors) == set(survivors)
        assert np.array_equal(np.load(self.out), sum(self.values[name] for name in survivors))
        assert hashlib.sha256(self.out.read_bytes()).hexdigest() == published.sha256
        for receipt in receipts:
            told = receipt.result(60)
            assert (told.survivors, told.sha256) == (published.survivors, published.sha256)


@pytest.fixture
def round_of(identities, tmp_path):
    return lambda name="r", **options: Round(identities, tmp_path / name, **options)


@pytest.fixture
def meddle(monkeypatch):
    """Put ``change(method, messages)`` between one contributor and the wire."""
    changes = {}

    def asking(address, method, messages, *, identity, **options):
        if identity.name in changes:
            messages = changes[identity.name](method, messages)
        return REAL_ASK(address, method, messages, identity=identity, **options)

    monkeypatch.setattr(network, "ask", asking)
    return changes.__setitem__


@pytest.mark.slow
def test_three_parties_and_their_exact_sum(round_of):
    three = round_of(parties=PARTIES[:3], threshold=2)
    three.check(three.start(*PARTIES[:3]), PARTIES[:3])


@pytest.mark.slow
def test_noise_has_the_calibrated_scale(round_of):
    noisy = round_of(sigma=50.0, colluding=0)
    for done in (*noisy.start(*PARTIES), noisy.aggregator):
        done.result(60)
    noise = np.load(noisy.out) - sum(noisy.values.values())
    assert np.std(noise) / 50 == pytest.approx(np.sqrt(4 / 3), rel=0.15)  # four shares of σ/√3 each


STOPS = dict.fromkeys(("join", "advertise", "share", "mask", "amid"), 3) | {
    "confirm": 4,
    "unmask": 4,
}


@pytest.fixture(scope="module")
def killed(identities, tmp_path_factory):
    """For each stage a round in which dave is SIGKILLed before it (or in his vector)."""
    folder, rounds, cases = tmp_path_factory.mktemp("killed"), {}, []
    for where in STOPS:
        ABSENT[number_of(where), "mask" if where == "amid" else where] = {"dave"}
        rounds[where] = r = Round(identities, folder / where)
        r.receipts = r.start(*PARTIES[:3])
        case = {"where": where, "identity": str(identities / "ours" / "dave")}
        cases.append(
            case | {"address": r.address, "folder": str(r.folder), "terms": asdict(r.terms)}
        )
    program = [sys.executable, str(Path(__file__).with_name("victim.py")), json.dumps(cases)]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as victims:
        stopped = {}
        for _ in STOPS:
            where, pid = victims.stdout.readline().split()
            stopped[where] = int(pid)
            os.kill(int(pid), signal.SIGKILL)
        assert stopped.keys() == STOPS.keys()
        assert victims.wait(20) == 0
    return rounds


@pytest.mark.parametrize("where", STOPS)
def test_a_contributor_killed_at_any_stage(killed, where):
    killed[where].values["dave"] = np.ones(LENGTH)
    killed[where].check(killed[where].receipts, PARTIES[: STOPS[where]])


def test_a_killed_contributor_is_a_drop_out_when_it_comes_back(killed):
    r = killed["mask"]
    with Journal(r.folder / "victim.sqlite", kind=network.CONTRIBUTOR_JOURNAL) as journal:
        assert journal.state("mask") == "joined"
    with pytest.raises(UsageError, match="already took part"):
        r.start("dave", journal="victim")[0].result(30)


def test_below_the_threshold_nothing_is_published(round_of, without):
    without("join", "carol", "dave")
    few = round_of()
    told = few.start("alice", "bob")
    with pytest.raises(ProtocolError, match="2 of 4 parties joined"):
        few.aggregator.result(30)
    for receipt in told:
        with pytest.raises(ProtocolError, match="2 of 4 parties joined"):
            receipt.result(30)
    assert not few.out.exists()


@pytest.mark.slow
def test_a_late_vector_is_not_in_the_sum(round_of, meddle, without):
    without("mask", "dave")
    slow, closed = round_of(), threading.Event()

    def late(method, messages):
        if method == "mask":
            closed.wait(30)
        return messages

    meddle("dave", late)
    receipts = slow.start(*PARTIES)
    slow.check(receipts[:3], PARTIES[:3])
    closed.set()
    with pytest.raises(ProtocolError):
        receipts[3].result(30)


@pytest.mark.slow
def test_a_second_process_of_one_party_is_refused_and_the_first_stands(round_of, monkeypatch):
    r, taken, step = round_of(), threading.Event(), RoundServer.step

    def telling(server, inbox):
        outbox = step(server, inbox)
        if "alice" in inbox:
            taken.set()
        return outbox

    monkeypatch.setattr(RoundServer, "step", telling)
    first = r.start("alice", "bob", "carol")
    assert taken.wait(20)
    with pytest.raises(MessageError, match="a second time"):
        r.start("alice", journal="elsewhere")[0].result(20)
    with Journal(r.folder / "elsewhere.sqlite", kind=network.CONTRIBUTOR_JOURNAL) as journal:
        assert journal.state(r.terms.round) is None  # it may still take part, had the first not
    r.check([*first, *r.start("dave")], PARTIES)


@pytest.mark.slow
def test_the_same_round_is_never_joined_again(round_of):
    r = round_of(parties=PARTIES[:3], threshold=2)
    r.check(r.start(*PARTIES[:3]), PARTIES[:3])
    with pytest.raises(UsageError, match=r"already took part"):
        r.start("alice")[0].result(10)


@pytest.mark.slow
def test_another_authoritys_certificate_and_a_party_that_is_not_asked(round_of):
    r = round_of()
    with pytest.raises(PeerError):
        r.start("alice", authority="theirs")[0].result(30)
    with pytest.raises(UsageError, match="not a party"):
        r.start("mallory")[0].result(30)
    with pytest.raises(PeerError, match="may not call"):
        r.send("mallory", "join", b"x")
    r.check(r.start(*PARTIES), PARTIES)


@pytest.mark.slow
def test_other_terms_are_refused(round_of):
    r = round_of()
    other = RoundTerms(**{**asdict(r.terms), "threshold": 4, "parties": PARTIES})
    odd = r.start("dave", terms=other)
    r.check(r.start(*PARTIES[:3]), PARTIES[:3])
    with pytest.raises(PeerError, match="did not sign its key for this round's terms"):
        odd[0].result(30)


STAGES = ("join", "advertise", "share", "confirm", "unmask")
WRONG = {  # what dave sends
    "a message too many": lambda sent: [*sent, sent[0]],
    "nothing": lambda sent: [],
    "noise": lambda sent: [b"\xc1" * 3000],
    "cut short": lambda sent: [sent[0][:-1]],
    "a frame less": lambda sent: sent[:-1],
    "a flipped bit": lambda sent: [sent[0], sent[1][:-1] + bytes([sent[1][-1] ^ 1]), *sent[2:]],
}
CASES = [(stage, "cut short") for stage in STAGES]
CASES += [("advertise", "a message too many")]
CASES += [("mask", wrong) for wrong in WRONG if wrong != "cut short"]


@pytest.mark.parametrize(("method", "wrong"), partly(CASES, every=4))
def test_what_is_broken_drops_its_sender_at_once(round_of, meddle, method, wrong):
    r = round_of()
    meddle("dave", lambda at, sent: WRONG[wrong](list(sent)) if at == method else sent)
    receipts = r.start(*PARTIES)
    r.check(receipts[:3], PARTIES if method in ("confirm", "unmask") else PARTIES[:3])
    with pytest.raises(ProtocolError if method == "mask" else MessageError):
        receipts[3].result(30)


@pytest.mark.slow
def test_who_is_sent_a_broken_share_leaves_and_the_round_goes_on(round_of, meddle, without):
    without("mask", "carol")
    r = round_of()

    def spoil(method, messages):
        if method != "share":
            return messages
        (own,) = map(json.loads, messages)
        (envelope,) = (entry for entry in own["sealed"] if entry["name"] == "carol")
        first = "B" if envelope["value"].startswith("A") else "A"
        envelope["value"] = first + envelope["value"][1:]
        return [json.dumps(own, separators=(",", ":")).encode()]

    meddle("dave", spoil)
    receipts = r.start(*PARTIES)
    with pytest.raises(CheatingError, match="from dave for carol"):
        receipts[2].result(30)
    r.check([receipts[0], receipts[1], receipts[3]], ["alice", "bob", "dave"])


def test_a_roster_is_checked_against_our_own_authority(identities):
    """An aggregator that makes parties up, tells others other terms, or leaves us out."""
    terms = RoundTerms(round="r", parties=PARTIES, threshold=3, length=9, bound=1.0, sigma=0.0)
    alice = load_identity(identities / "ours" / "alice")

    def introduction(name, authority="ours", of=terms, signing=None):
        identity = load_identity(identities / authority / name)
        return introduce(
            identity, signing=signing or name.encode().ljust(32, b"."), terms=of.digest
        )

    own = introduction("alice")
    honest = {"alice": own, "bob": introduction("bob"), "carol": introduction("carol")}

    def roster(entries, digest=terms.digest):
        listed = tuple(Introduced(introduction=v, name=k) for k, v in entries)
        return pack(Roster(roster=listed, session=digest))

    def check(message):
        return check_roster(message, own=own, identity=alice, terms=terms)

    assert set(check(roster(honest.items()))) == {"alice", "bob", "carol"}
    others = RoundTerms(**{**asdict(terms), "sigma": 1.0, "parties": PARTIES})
    cases = [
        ({**honest, "dave": introduction("dave", "theirs")}, PeerError, "authority"),
        ({**honest, "dave": introduction("carol")}, PeerError, "another party's"),
        ({**honest, "carol": introduction("carol", of=others)}, PeerError, "did not sign"),
        ({**honest, "mallory": introduction("mallory")}, MessageError, "not of this round"),
        ({n: introduction(n) for n in ("bob", "carol", "dave")}, MessageError, "lacks our own"),
        ({**honest, "alice": introduction("alice", signing=b"2" * 32)}, MessageError, "our own"),
        ({**honest, "carol": honest["carol"][:-1]}, MessageError, "introduction"),
        ({"alice": own, "bob": honest["bob"]}, ProtocolError, "too few"),
    ]
    for entries, error, text in cases:
        with pytest.raises(error, match=text):
            check(roster(entries.items()))
    with pytest.raises(MessageError, match="twice"):
        check(roster([*honest.items(), ("bob", honest["bob"])]))
    with pytest.raises(MessageError, match="another round"):
        check(roster(honest.items(), digest=others.digest))


def test_the_aggregator_cannot_name_other_survivors_at_the_end(make_round):
    r = make_round(4).until("unmask")
    client = r.clients["a"]
    client.step(r.confirmations)

    def done(survivors, sha256="0" * 64):
        return pack(wire.Done(session=r.plan.digest, sha256=sha256, survivors=tuple(survivors)))

    assert read_receipt(done(list("abcd")), client).survivors == tuple("abcd")
    for message, says in (
        (done(list("abc")), "other survivors"),
        (done(list("abcd"), "ab"), "field sha256"),
    ):
        with pytest.raises(MessageError, match=says):
            read_receipt(message, client)


@pytest.mark.parametrize("broken", ["output", "journal"])
def test_nobody_waits_on_for_an_aggregator_that_failed(identities, tmp_path, monkeypatch, broken):
    """The first party has come before the stage's time runs."""
    came, real = threading.Event(), Journal.advance

    class Recorded(network.HubServer):
        def _take(self, *message):
            super()._take(*message)
            came.set()

    def advance(journal, name, before, after, **facts):
        if after == "lost":
            raise UsageError("journal: the disk is full")
        real(journal, name, before, after, **facts)

    monkeypatch.setattr(network, "HubServer", Recorded)
    monkeypatch.setattr(Journal, "advance", advance)
    terms = RoundTerms(round="r", parties=PARTIES, threshold=3, length=5, bound=2.0**20, sigma=0.0)
    pool, alice = ThreadPoolExecutor(1), []

    def contribute(address):
        with Journal(tmp_path / "alice.sqlite", kind=network.CONTRIBUTOR_JOURNAL) as journal:
            contribute_round(
                np.zeros(5),
                identity=load_identity(identities / "ours" / "alice"),
                terms=terms,
                address=address,
                aggregator="aggregator",
                journal=journal,
                stream=KeyedStream.from_seed("alice"),
                patience=60,
            )

    def listening(address):
        alice.append(pool.submit(contribute, address))
        assert came.wait(20)
        if broken == "output":
            raise UsageError("output: closed")

    with (
        Journal(tmp_path / "a.sqlite", kind=network.AGGREGATOR_JOURNAL) as journal,
        pytest.raises(UsageError, match=r"closed|disk is full"),
    ):
        aggregate_round(
            load_identity(identities / "ours" / "aggregator"),
            terms=terms,
            address="127.0.0.1:0",
            journal=journal,
            out=tmp_path / "sum.npy",
            join_timeout=0.1,
            stage_timeout=1.0,
            listening=listening,
        )
    says = "aggregator stopped" if broken == "output" else "1 of 4 parties joined"
    with pytest.raises(ProtocolError, match=says):
        alice[0].result(20)


@pytest.mark.slow
def test_published_once(round_of, tmp_path):
    r = round_of(parties=PARTIES[:3], threshold=2)
    r.check(r.start(*PARTIES[:3]), PARTIES[:3])
    before = r.out.stat()
    again = r._aggregate(1.0, 1.0)  # the same command again
    assert again == r.aggregator.result(0)
    assert r.out.stat().st_mtime_ns == before.st_mtime_ns
    with Journal(r.folder / "aggregator.sqlite", kind=network.AGGREGATOR_JOURNAL) as journal:
        # killed between the journal's word and its next
        for name, there in (("lost", False), ("kept", True)):
            digest = again.sha256 if there else "0" * 64
            journal.advance(name, None, "open")
            journal.advance(
                name, "open", "publishing", sha256=digest, survivors=["alice"], out=str(r.out)
            )
        assert network._before(journal, "kept", r.out).sha256 == again.sha256
        assert journal.state("kept") == "published"
        with pytest.raises(UsageError, match="interrupted"):
            network._before(journal, "lost", r.out)
        journal.advance("begun", None, "open")
        for _ in range(2):
            with pytest.raises(UsageError, match="interrupted"):
                network._before(journal, "begun", r.out)
        with pytest.raises(UsageError, match="exists already"):
            network._before(journal, "new", r.out)


TYPED = shlex.split("--round r1 --sigma 0 --parties alice,bob,carol --threshold 2 --bound 1000")
OUT = ("--dim", "6", "--out", "sum.npy")


def typed(command, name, *options):
    return [command, *TYPED, "--identity", f"c/{name}", "--journal", f"j-{name}", *options]


@pytest.fixture
def serve(tmp_path):
    """``dpaudit serve …`` as a process in a folder with certificates; leftovers are killed."""
    make_authority(tmp_path / "c", ["aggregator", *PARTIES[:3]])
    for i, name in enumerate(PARTIES[:3]):
        np.save(tmp_path / f"{name}.npy", np.arange(6, dtype=np.float32) * 10**i)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with contextlib.ExitStack() as running:

        def start(*words):
            command = [sys.executable, "-m", "dpaudit", "serve", *typed(*words)]
            process = running.enter_context(subprocess.Popen(command, cwd=tmp_path, **pipes))
            running.callback(process.kill)
            return process

        yield start


def here(*words):
    """The command in this process."""
    return CliRunner().invoke(app, ["serve", *typed(*words)])


def contributor(folder, name, address):
    """A contributor in a thread of this process."""
    terms = {"parties": "alice,bob,carol", "threshold": 2, "bound": 1000.0, "sigma": 0.0}
    terms |= {"number": "r1", "identity": folder / "c" / name, "source": folder / f"{name}.npy"}
    options = commands.Contribution(peer=address, journal=folder / f"j-{name}", **terms)
    return ThreadPoolExecutor(1).submit(commands.contribute, options)


@pytest.mark.slow
def test_a_round_of_processes(serve, tmp_path, monkeypatch):
    server = serve("aggregate", "aggregator", *OUT)
    address = json.loads(server.stdout.readline())["address"]
    sent = ("contribute", "alice", "--peer", address, "--input", "alice.npy")
    alice, others = serve(*sent), [contributor(tmp_path, n, address) for n in ("bob", "carol")]
    out, log = server.communicate(timeout=60)
    published = json.loads(out)
    assert server.returncode == 0
    assert np.array_equal(np.load(tmp_path / "sum.npy"), np.arange(6) * 111.0)
    for other in others:
        other.result(60)
    receipt, errors = alice.communicate(timeout=60)
    assert (alice.returncode, errors) == (0, "")
    assert json.loads(receipt) == {key: published[key] for key in ("round", "sha256", "survivors")}
    outcomes = {json.loads(line)["outcome"] for line in log.splitlines()}
    assert outcomes == {"started", "served", "published", "stopped"}
    assert (tmp_path / "sum.npy").stat().st_mode & 0o777 == 0o600
    monkeypatch.chdir(tmp_path)
    again = here(*sent)
    assert (again.exception.exit_code, again.stdout) == (2, "")
    assert "already took part" in str(again.exception)


@pytest.mark.slow
def test_an_aggregator_killed_amid_a_round(serve, tmp_path, monkeypatch):
    server = serve("aggregate", "aggregator", *OUT)
    address = json.loads(server.stdout.readline())["address"]
    party = contributor(tmp_path, "alice", address)
    while '"started"' not in server.stderr.readline():
        pass
    server.kill()
    with pytest.raises(PeerError, match="aggregator at"):
        party.result(60)
    monkeypatch.chdir(tmp_path)
    again = here("aggregate", "aggregator", *OUT)
    assert (again.exception.exit_code, again.stdout) == (2, "")
    assert "interrupted" in str(again.exception)
    assert not (tmp_path / "sum.npy").exists()


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ("--parties alice,bob", "3 to"),
        ("--round ../x", "round="),
        ("--stage-timeout 0", "stage-timeout=0"),
        ("--identity c", "identity"),
    ],
)
def test_usage_errors(tmp_path, monkeypatch, wrong, says):
    monkeypatch.chdir(tmp_path)
    error = here("aggregate", "aggregator", *OUT, "--sigma", "1", *wrong.split()).exception
    assert isinstance(error, UsageError)
    assert says in str(error)
