"""Everything that server 2 refuses, over real connections and by mutated messages without."""

import hashlib
import itertools
import json
import re
import time
import tracemalloc
from functools import partial

import msgspec
import numpy as np
import pytest

from dpaudit.errors import MessageError, PeerError, UsageError
from dpaudit.numeric.exact_integers import IntegerLaw, draw_integers
from dpaudit.randomness import KeyedStream
from dpaudit_mitigations.codec import pack, unpack
from dpaudit_mitigations.transport import journal as journals
from dpaudit_mitigations.transport.certificates import load_identity, make_authority
from dpaudit_mitigations.transport.connection import Log, ask
from dpaudit_mitigations.transport.server import Limits, serve
from dpaudit_mitigations.transport.vectors import vector_frames
from dpaudit_mitigations.two_servers.agreement import (
    PUBLISH,
    TERMS,
    VECTOR,
    Offer,
    PublicationReceipt,
    ReleaseTerms,
    secure_draw,
)
from dpaudit_mitigations.two_servers.noise_side import NoiseSide

DIM, SIGMA, BOUND = (1 << 18) + 5, 2.0, 1000.0  # two frames
TERMS_HERE = ReleaseTerms(dim=DIM, bound=BOUND, sigma=SIGMA)
GOOD = Offer(release="r", round=0, sigma=SIGMA, dim=DIM, bound=BOUND, noise_sigma=SIGMA)
STEPS = np.random.default_rng(1).integers(-(2**20), 2**20, DIM).astype(np.int32)
SECRET = 987654321
STEPS[7] = SECRET


ODD = np.where(np.arange(DIM) == 5, np.nan, 1.0).astype(np.float32)


def vector(steps, kind=VECTOR, offer=GOOD):
    return [pack(offer), *vector_frames(kind, steps, session=offer.session)]


def frames(offer=GOOD, steps=STEPS):
    return vector(steps, offer=offer)


def changed(index, edit):
    messages = frames()
    messages[index] = edit(messages[index])
    return messages


def flipped(at):
    return lambda m: m[:at] + bytes([m[at] ^ 1]) + m[len(m) + at + 1 if at < 0 else at + 1 :]


def stepped(value):
    steps = STEPS.copy()
    steps[3] = value
    return frames(steps=steps)


def fields_of(fields):
    return {f: getattr(GOOD, f) for f in Offer.__struct_fields__} | fields


def offer(**fields):
    return frames(Offer(**fields_of(fields)))


def with_fields(**fields):
    sent = {"kind": "offer", **dict(sorted(fields_of(fields).items()))}
    return [msgspec.json.encode(sent)]


REFUSED = {
    "nothing": ([], "nothing came"),
    "a frame missing": (frames()[:2] + frames()[3:], "out of order|too short|not the body"),
    "reordered": ([frames()[i] for i in (0, 1, 3, 2, 4)], "order|not the body|too"),
    "a value changed": (changed(2, flipped(5000)), "digest|beyond the bound"),
    "of another round": (frames()[:3] + offer(round=1)[3:], "another session"),
    "wrong dim": (offer(dim=DIM - 1)[:1] + frames()[1:], "another dim"),
    "wrong bound": (offer(bound=2000.0), "another dim"),
    "wrong noise": (offer(noise_sigma=0.5), "another dim"),
    "wrong shape": (vector(STEPS[:-1]), "another count"),
    "not finite": (vector(ODD), "another dtype"),
    "not finite, as steps": (stepped(ODD[5:6].view(np.int32)[0]), "beyond the bound"),
    "huge": (stepped(2**31 - 1), "beyond the bound"),
    "huge and negative": (stepped(-(2**31)), "beyond the bound"),
    "another protocol's vector": (vector(STEPS, "other"), "another kind"),
    "an offer with a path": (with_fields(release="../x"), "field release"),
    "an offer with a field more": (with_fields(zebra=1), "unknown field"),
    "an offer of infinite noise": (with_fields(sigma=float("inf")), "field sigma"),
}
SENT = ("a value changed", "wrong noise", "an offer with a path")  # over real connections


@pytest.fixture(scope="module")
def parties(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certificates")
    for authority in ("ours", "theirs"):
        make_authority(folder / authority, ["answer", "noise", "other"])
    return lambda name, authority="ours": load_identity(folder / authority / name)


def noise_side(folder, **options):
    given = {"terms": TERMS_HERE, "journal": folder, "publish": folder / "published"} | options
    return NoiseSide(peer="answer", log=Log("noise"), **given)


@pytest.fixture
def side(tmp_path):
    made = noise_side(tmp_path)
    yield made
    made.close()


@pytest.fixture
def server(side, parties):
    with serve(
        side.handlers,
        identity=parties("noise"),
        peers=["answer"],
        limits=Limits(idle=0.5),
        log=Log("noise"),
    ) as running:
        yield running


def send(server, identity, messages, method=PUBLISH, peer="noise"):
    return ask(server.address, method, messages, identity=identity, peer=peer, timeout=20.0)


def published(tmp_path):
    return sorted(p.name for p in (tmp_path / "published").glob("[!.]*"))


def drafts(tmp_path):
    return list((tmp_path / "published" / ".drafts").iterdir())


def lines(text):
    return [json.loads(line) for line in text.splitlines()]


def test_refused_and_nothing_comes_of_it(side, tmp_path):
    for what, (messages, says) in REFUSED.items():
        with pytest.raises(MessageError, match=says) as caught:
            list(side.publish("answer", iter(messages)))
        assert str(SECRET) not in str(caught.value)
        assert (published(tmp_path), drafts(tmp_path)) == ([], []), what
    assert len(list(side.publish("answer", iter(frames())))) == 1


def test_replays(server, parties, tmp_path):
    first = unpack(send(server, parties("answer"), frames()), PublicationReceipt)
    path = tmp_path / "published" / "r@0.npy"
    before = path.stat()
    # the same again is answered, not done again
    assert unpack(send(server, parties("answer"), frames()), PublicationReceipt) == first
    for messages, says in (
        (stepped(1), "another noisy answer"),
        (offer(sigma=3.0), "other sigma"),
        (offer(dim=7), "another dim"),
        (frames()[:-1], "cut short"),
    ):
        with pytest.raises(MessageError, match=says):
            send(server, parties("answer"), messages)
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert published(tmp_path) == ["r@0.npy"]
    send(server, parties("answer"), offer(round=1))
    assert published(tmp_path) == ["r@0.npy", "r@1.npy"]


def test_a_name_offered_once_keeps_its_sigma(server, parties):
    with pytest.raises(MessageError, match="cut short"):
        send(server, parties("answer"), frames()[:2])
    with pytest.raises(MessageError, match="other sigma"):
        send(server, parties("answer"), offer(sigma=3.0))
    send(server, parties("answer"), frames())


def test_another_journal_does_not_publish_over_it(server, side, parties, tmp_path):
    send(server, parties("answer"), frames())
    server.stop(0)
    side.close()
    (tmp_path / "new").mkdir()
    again = noise_side(tmp_path, journal=tmp_path / "new")
    with pytest.raises(MessageError, match="not in this journal"):
        list(again.publish("answer", iter(frames())))
    again.close()


def test_one_process_a_journal_and_one_a_folder_and_terms_that_no_server_offers(side, tmp_path):
    (tmp_path / "new").mkdir()
    for journal, says in ((tmp_path, "journal="), (tmp_path / "new", "another process publishes")):
        with pytest.raises(UsageError, match=says):
            noise_side(tmp_path, journal=journal)
    terms = {"dim": 8, "bound": 1000.0, "sigma": 2.0}
    for change, options, says in (
        ({"bound": 9.0}, {}, "must exceed"),
        ({"bound": 1e38, "sigma": 1e33}, {}, "too large for float32"),
        ({"bound": 1e-43, "sigma": 1e-45}, {}, "too small for float32"),
        ({"dim": 0}, {}, "dim=0"),
        ({"dim": -3}, {}, "dim=-3"),
        ({"dim": (1 << 32) + 1}, {}, "dim=4294967297"),
        ({}, {"dtype": "float16"}, "dtype=float16"),
    ):
        other = {"journal": tmp_path / "new", "publish": tmp_path / "p"}
        with pytest.raises(UsageError, match=says):
            noise_side(tmp_path, terms=ReleaseTerms(**terms | change), **other, **options)


def test_wrong_certificates(server, side, parties, capsys):
    for identity, peer, says in (
        (parties("answer", "theirs"), "noise", "certificate|died|reached"),
        (parties("other"), "noise", "may not call"),
        (parties("answer"), "other", "certificate is not that party's"),
    ):
        with pytest.raises(PeerError, match=says):
            send(server, identity, frames(), peer=peer)
    refused = [x for x in lines(capsys.readouterr().err) if x["outcome"] == "refused"]
    assert "other" in [line.get("peer") for line in refused]
    with pytest.raises(PeerError, match="not the answering party"):  # let in for something else
        list(side.publish("other", iter(frames())))
    assert unpack(send(server, parties("answer"), [], method=TERMS), ReleaseTerms) == TERMS_HERE


@pytest.mark.slow
def test_slow_and_dead_peers(server, parties, tmp_path, capsys):
    def slow():
        yield from frames()[:2]
        time.sleep(1.5)
        yield from frames()[2:]

    def dying():
        yield from frames()[:3]
        raise ZeroDivisionError

    (tmp_path / "warm").mkdir()
    warm = noise_side(tmp_path / "warm")  # compiled loops are loaded once; the clock runs for peers
    list(warm.publish("answer", iter(frames())))
    warm.close()
    with pytest.raises(PeerError, match="sent nothing for"):
        send(server, parties("answer"), slow())
    with pytest.raises(ZeroDivisionError):
        send(server, parties("answer"), dying())
    send(server, parties("answer"), frames())
    text = capsys.readouterr().err
    assert sum(line["outcome"] == "refused" for line in lines(text)) >= 1
    assert published(tmp_path) == ["r@0.npy"]
    assert drafts(tmp_path) == []


def test_refused_and_released_with_a_line_each_and_no_secret_in_any(
    server, parties, tmp_path, capfd
):
    """Neither steps nor values nor noise; what was refused can still be released."""
    text = ""
    for messages, says in map(REFUSED.get, SENT):
        with pytest.raises(MessageError, match=says) as caught:
            send(server, parties("answer"), messages)
        assert str(SECRET) not in str(caught.value)
        text += capfd.readouterr().err
        line = lines(text[text.index("{") :])[-1]
        assert (line["outcome"], line["peer"], line["method"]) == ("refused", "answer", PUBLISH)
        assert re.search(says, line["reason"])
    receipt = unpack(send(server, parties("answer"), frames()), PublicationReceipt)
    assert published(tmp_path) == ["r@0.npy"]
    path = tmp_path / "published" / "r@0.npy"
    assert receipt.published == hashlib.sha256(path.read_bytes()).digest()
    text += "".join(capfd.readouterr())
    result = np.load(path)
    for value in itertools.chain(STEPS[:50], result[:50], (result - STEPS * 2.0**-20)[:50]):
        if abs(value) > 1000 or value != int(value):
            assert str(value) not in text
            assert f"{value:.6g}" not in text
    for raw in (STEPS[:8].tobytes(), result[:8].tobytes()):
        assert raw.hex()[:16] not in text
    assert parties("noise").key.decode().splitlines()[1][:20] not in text


@pytest.mark.parametrize("harm", ["none", "gone", "damaged"])
def test_a_durable_draft_is_published_at_the_next_start_or_never(
    tmp_path, monkeypatch, capsys, harm
):
    """Server 2 stops right after the journal says noised; nobody offers the release again."""
    side = noise_side(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr("os.link", lambda *names: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            list(side.publish("answer", iter(frames())))
    side.close()
    (draft,) = drafts(tmp_path)
    (tmp_path / "published" / ".drafts" / f"r@1.{16 * 'a'}").write_bytes(b"of a killed call")
    if harm == "gone":
        draft.unlink()
    elif harm == "damaged":
        draft.write_bytes(flipped(-1)(draft.read_bytes()))
    again = noise_side(tmp_path)
    (line,) = lines(capsys.readouterr().err)
    if harm == "none":
        assert published(tmp_path) == ["r@0.npy"]
        assert (line["outcome"], line["release"], drafts(tmp_path)) == ("published", "r@0", [])
    else:
        assert (line["outcome"], line["release"], published(tmp_path)) == ("failed", "r@0", [])
        with pytest.raises(MessageError, match="not drawn again"):
            list(again.publish("answer", iter(frames())))
        assert draft.exists() == (harm == "damaged")  # kept for whoever looks into it
        assert len(list(again.publish("answer", iter(offer(round=1))))) == 1  # it serves all others
    again.close()


def test_only_our_own_drafts_are_deleted(side, tmp_path):
    """A folder of drafts of another program, a link to one, and one of another user."""
    side.close()
    for name, link in (("theirs", False), ("linked", True)):
        folder, mail = tmp_path / name, tmp_path / f"{name}-mail"
        folder.mkdir()
        if link:
            mail.mkdir()
            (folder / ".drafts").symlink_to(mail)
        else:
            mail = folder / ".drafts"
            mail.mkdir()
        (mail / "letter").write_text("dear")
        (mail / "more").mkdir()
        places = {"terms": TERMS_HERE, "peer": "answer", "journal": tmp_path, "publish": folder}
        if link:
            with pytest.raises(UsageError, match="publish="):
                NoiseSide(**places, log=Log("noise"))
        else:
            NoiseSide(**places, log=Log("noise")).close()
        assert (mail / "letter").read_text() == "dear"


def test_a_link_to_nowhere_is_a_name_that_is_taken(side, tmp_path):
    (tmp_path / "published" / "r@0.npy").symlink_to(tmp_path / "nowhere")
    with pytest.raises(MessageError, match="published, but not"):
        list(side.publish("answer", iter(frames())))
    assert drafts(tmp_path) == []


def test_a_folder_in_which_nothing_can_be_published(side, tmp_path, monkeypatch):
    side.close()
    monkeypatch.setattr(
        "os.link", lambda *names: (_ for _ in ()).throw(OSError(1, "Operation not permitted"))
    )
    with pytest.raises(UsageError, match="nothing can be published there"):
        noise_side(tmp_path)


@pytest.mark.parametrize("written", [0, 1])
def test_a_full_disk_is_the_servers_fault_and_nothing_is_lost(
    server, parties, tmp_path, monkeypatch, capsys, written
):
    """``written`` buffers fit; the peer is told to retry, the log the reason; no draft stays."""
    write, count = journals.write_all, itertools.count()

    def full(fd, part):
        if next(count) >= written:
            raise OSError(28, "No space left on device")
        write(fd, part)

    with monkeypatch.context() as patch:
        patch.setattr(journals, "write_all", full)
        with pytest.raises(PeerError, match="not finished now"):
            send(server, parties("answer"), frames())
    failed = [line for line in lines(capsys.readouterr().err) if line["outcome"] == "failed"]
    assert [line["release"] for line in failed] == ["r@0"]
    assert "No space left" in failed[0]["reason"]
    assert (published(tmp_path), drafts(tmp_path)) == ([], [])
    send(server, parties("answer"), frames())
    assert published(tmp_path) == ["r@0.npy"]


@pytest.mark.slow
def test_a_vector_is_never_whole_in_memory(tmp_path):
    """Server 2 holds some 1 MiB chunks at a time, of 40, and as many of noise at twice the size."""
    dim = 40 << 18
    terms = ReleaseTerms(dim=dim, bound=BOUND, sigma=SIGMA)
    asked = Offer(release="r", round=0, sigma=SIGMA, dim=dim, bound=BOUND, noise_sigma=SIGMA)
    side = noise_side(tmp_path, terms=terms)
    coming = vector_frames(VECTOR, np.zeros(dim, np.int32), session=asked.session)
    tracemalloc.start()
    try:
        list(side.publish("answer", itertools.chain([pack(asked)], coming)))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        side.close()
    assert peak < 36 << 20


def test_one_call_a_release_at_a_time(side, monkeypatch):
    monkeypatch.setattr("dpaudit_mitigations.two_servers.noise_side._BUSY", 0.1)

    def meddling():
        yield from frames()[:3]
        with pytest.raises(PeerError, match="is running"):
            list(side.publish("answer", iter(frames())))
        yield from frames()[3:]

    assert len(list(side.publish("answer", meddling()))) == 1


def test_what_is_published_is_the_sum_on_the_lattice(tmp_path):
    """An independent derivation: g·(steps + noise), noise drawn directly from the same stream."""
    stream, g = KeyedStream.from_seed(5), 2.0**-20  # 1000 is below 2^10, and 30 bits hold it
    draw = partial(secure_draw, sigma=SIGMA, stream=stream)
    side = noise_side(tmp_path, dtype="float64", draw=lambda step: draw(step=step))
    list(side.publish("answer", iter(frames())))
    law = IntegerLaw.gaussian(SIGMA / g)
    noise = [
        draw_integers(count, law, stream=stream.child("chunk", at))
        for at, count in ((0, 1 << 18), (1 << 18, 5))
    ]
    expected = [(int(a) + int(b)) * g for a, b in zip(STEPS, np.concatenate(noise), strict=True)]
    assert np.load(tmp_path / "published" / "r@0.npy").tolist() == expected
    side.close()
