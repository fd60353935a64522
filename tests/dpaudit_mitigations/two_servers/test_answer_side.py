"""Server 1: the same noise at every restart, one release per name, what it refuses of server 2."""

import stat
import time
from contextlib import contextmanager

import numpy as np
import pytest

from dpaudit.errors import MessageError, PeerError, UsageError
from dpaudit.randomness import KeyedStream
from dpaudit_mitigations.codec import pack
from dpaudit_mitigations.transport.certificates import load_identity, make_authority
from dpaudit_mitigations.transport.connection import Log
from dpaudit_mitigations.transport.server import serve
from dpaudit_mitigations.two_servers.agreement import (
    PUBLISH,
    TERMS,
    PublicationReceipt,
    ReleaseTerms,
    add_query,
    draw_of,
    granularity,
    named_source,
)
from dpaudit_mitigations.two_servers.answer_side import AnswerSide, Contact, Question, Seeds
from dpaudit_mitigations.two_servers.noise_side import NoiseSide

TERMS_HERE = ReleaseTerms(dim=6, bound=1000.0, sigma=2.0)
REAL_ASK = Contact.ask
VALUES = np.array([1.5, -2.25, 314.15927, 0.0, 7.0, -960.0])


@pytest.fixture(scope="module")
def parties(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certificates") / "c"
    make_authority(folder, ["answer", "noise"])
    return lambda name: load_identity(folder / name)


@pytest.fixture
def noise(tmp_path, parties):
    (tmp_path / "noise").mkdir()
    places = {"journal": tmp_path / "noise", "publish": tmp_path / "published"}
    side = NoiseSide(terms=TERMS_HERE, peer="answer", log=Log("noise"), **places)
    with serve(side.handlers, identity=parties("noise"), peers=["answer"]) as server:
        yield server
    side.close()


@contextmanager
def answering(folder, draw=None):
    folder.mkdir(exist_ok=True)
    side = AnswerSide(journal=folder, log=Log("answer"), draw=draw)
    try:
        yield side
    finally:
        side.close()


def question(values=VALUES, release="week-7", **options):
    return Question(values, release=release, **{"sigma": 2.0, "peer_sigma": 2.0} | options)


def contact(server, parties, peer="noise"):
    return Contact(server if isinstance(server, str) else server.address, peer, parties("answer"))


def server_two(parties, publish):
    """A server 2 of right terms whose PUBLISH is ``publish``."""
    handlers = {PUBLISH: publish, TERMS: lambda peer, request: iter([pack(TERMS_HERE)])}
    return serve(handlers, identity=parties("noise"), peers=["answer"])


def test_released_once_and_told_again(noise, parties, tmp_path):
    with answering(tmp_path / "a") as side:
        receipt = side.release(question(), contact(noise, parties))
        noise.stop(0)  # told again from the journal: nobody need be there
        assert side.release(question(), contact(noise, parties), patience=0) == receipt
    published = np.load(tmp_path / "published" / "week-7@0.npy")
    assert published.dtype == np.float32
    assert np.abs(published - VALUES).max() < 8 * 2.0 * 2**0.5
    assert not list((tmp_path / "a").glob("*.seed"))


@pytest.mark.parametrize("published", [False, True])
def test_a_name_is_for_one_release(noise, parties, tmp_path, published):
    with answering(tmp_path / "a") as side:
        if published:
            side.release(question(), contact(noise, parties))
        else:
            with broken_line(), pytest.raises(ZeroDivisionError):
                side.release(question(), contact(noise, parties))
        for other in (
            question(VALUES + 1),
            question(VALUES.astype(np.float32)),
            question(sigma=3.0),
            question(peer_sigma=3.0),
            question(source="pancake"),
            question(bound=999.0),
        ):
            with pytest.raises(UsageError, match="begun with another"):
                side.release(other, contact(noise, parties))
        side.release(question(bound=1000.0), contact(noise, parties))
        side.release(question(VALUES + 1, round=1), contact(noise, parties))


@contextmanager
def broken_line():
    def ask(self, method, messages, **limits):
        if method == PUBLISH:
            raise ZeroDivisionError
        return REAL_ASK(self, method, messages, **limits)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Contact, "ask", ask)
        yield


def test_the_seed_is_made_once_kept_secret_and_never_replaced(noise, parties, tmp_path):
    with answering(tmp_path / "a") as side:
        with broken_line(), pytest.raises(ZeroDivisionError):
            side.release(question(), contact(noise, parties))
        (seed,) = (tmp_path / "a").glob("*.seed")
        assert stat.S_IMODE(seed.stat().st_mode) == 0o600
        assert len(seed.read_bytes()) == 32
        kept = seed.read_bytes()
        seed.write_bytes(kept[:-1])
        with pytest.raises(UsageError, match="never drawn twice") as caught:
            side.release(question(), contact(noise, parties))
        assert kept.hex()[:8] not in str(caught.value)
        seed.unlink()
        with pytest.raises(UsageError, match="never drawn twice"):
            side.release(question(), contact(noise, parties))
        assert not list((tmp_path / "published").glob("*.npy"))


def test_the_same_noise_in_every_life(parties, tmp_path):
    """A server 2 that never answers well records the frames; server 1 always sends the same."""
    lives = []

    def deaf(peer, request):
        lives.append(list(request))
        raise PeerError("no room")
        yield b""

    with server_two(parties, deaf) as server:
        for _ in range(3):
            with answering(tmp_path / "a") as side, pytest.raises(PeerError, match="no room"):
                side.release(question(), contact(server, parties), patience=0)
    assert len(lives) == 3
    assert lives[0] == lives[1] == lives[2]


def test_another_payload_is_not_sent_to_its_end(parties, tmp_path):
    """A noise source that does not repeat itself: the last frame is withheld."""
    lives = []

    def deaf(peer, request):
        lives.append([])
        for frame in request:
            lives[-1].append(frame)
        raise PeerError("no room")
        yield b""

    fresh = iter(range(10))

    def draw(step, stream):
        other = KeyedStream.from_seed(next(fresh))
        return lambda at, count: other.child(at).numpy().integers(-1000, 1000, count)

    with server_two(parties, deaf) as server, answering(tmp_path / "a", draw) as side:
        with pytest.raises(PeerError, match="no room"):
            side.release(question(), contact(server, parties), patience=0)
        with pytest.raises(UsageError, match="differs from the first"):
            side.release(question(), contact(server, parties), patience=0)
        time.sleep(0.2)
    assert len(lives[0]) == 4
    assert len(lives[1]) < 4


def test_receipts_for_something_else(parties, tmp_path):
    def receipt(name, number):
        return PublicationReceipt(
            release=name, round=number, payload=bytes(32), published=bytes(32)
        )

    others = receipt("week-8", 0), receipt("week-7", 1), receipt("week-7", 0), TERMS_HERE
    answers = [b"rubbish", *map(pack, others)]

    def lying(peer, request):
        list(request)
        yield answers[0]

    with server_two(parties, lying) as server, answering(tmp_path / "a") as side:
        while answers:
            with pytest.raises(MessageError, match=r"not for what was sent|message receipt"):
                side.release(question(), contact(server, parties), patience=0)
            answers.pop(0)
    assert list((tmp_path / "a").glob("*.seed"))  # it is not over


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (question(VALUES[:5]), "has 5 values"),
        (question(VALUES * 2), "beyond the bound"),
        (question(sigma=100.0), "must exceed|beyond the bound"),
        (question(peer_sigma=1.0), "noise of scale 2"),
        (question(bound=500.0), r"bound=500\.0"),
        (question(sigma=np.nan), "sigma=nan"),
        (question(sigma=-2.0), "sigma=-2"),
        (question(np.array([1.0, np.nan])), "NaN"),
        (question(np.array([1.0, np.inf])), "infinity"),
        (question(np.ones((2, 3))), r"\(2, 3\)"),
        (question(np.ones(6, np.int64)), "float32/64 vector"),
        (question(release=""), "letters"),
        (question(release="../x"), "release="),
        (question(round=-1), "round=-1"),
    ],
)
def test_questions_that_are_not_asked(noise, parties, tmp_path, asked, says):
    with answering(tmp_path / "a") as side, pytest.raises(UsageError, match=says) as caught:
        side.release(asked, contact(noise, parties), patience=0)
    assert "314" not in str(caught.value)
    assert not list((tmp_path / "published").glob("*.npy"))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e300, -(2.0**63) * 2.0**-20])
@pytest.mark.parametrize("query", [np.zeros(6), VALUES])
def test_a_source_without_noise_is_found_out(noise, parties, tmp_path, value, query):
    """Non-finite values become −2^63 as integers, without absolute value, and 0 in 32 bits."""

    class Broken:
        sigma, dim = 2.0, None

        def sample(self, n, d, *, stream):
            return np.full((n, d), value)

    with (
        answering(tmp_path / "a", draw_of(Broken(), dim=6)) as side,
        pytest.raises(UsageError, match="not finite"),
    ):
        side.release(question(query), contact(noise, parties), patience=0)
    assert not list((tmp_path / "published").glob("*.npy"))


def test_noise_beyond_the_bound_is_not_sent_to_its_end(noise, parties, tmp_path):
    def draw(step, stream):
        return lambda at, count: np.full(count, 2**40)

    beyond = pytest.raises(UsageError, match="noise beyond the bound")
    with answering(tmp_path / "a", draw) as side, beyond:
        side.release(question(), contact(noise, parties), patience=0)
    assert not list((tmp_path / "published").glob("*.npy"))


def test_a_lab_specimen_by_name(noise, parties, tmp_path, make_key):
    """Server 1 sends its own noise, drawn again from the seed; another scale or size is refused."""
    path = tmp_path / "key.json"
    make_key(dim=6).save(path)
    source = named_source(f"pancake:key={path}", sigma=2.0, dim=6)
    with answering(tmp_path / "a", draw_of(source, dim=6)) as side:
        side.release(question(source="pancake"), contact(noise, parties))
    assert np.abs(np.load(tmp_path / "published" / "week-7@0.npy") - VALUES).max() < 8 * 2 * 2**0.5
    for text, dim, says in (
        ("gaussian:sigma=3", 6, "must be sigma=2.0"),
        (f"pancake:key={path}", 7, "serves 6"),
        ("pancakes", 6, "did you mean 'pancake'"),
    ):
        with pytest.raises(UsageError, match=says):
            named_source(text, sigma=2.0, dim=dim)


@pytest.mark.slow
def test_nobody_there_and_patience_that_never_ends(parties, tmp_path, capsys):
    nobody = contact("127.0.0.1:9", parties)
    with answering(tmp_path / "a") as side:
        began = time.monotonic()
        with pytest.raises(PeerError, match="nobody listens"):
            side.release(question(), nobody, patience=0.5)
        assert time.monotonic() - began < 25
        assert "waiting" in capsys.readouterr().err
        for patience in (np.nan, np.inf, -1.0):
            with pytest.raises(UsageError, match="patience"):
                side.release(question(), nobody, patience=patience)
    assert "314" not in repr(question())


def test_one_seed_under_two_names_is_two_noises(tmp_path):
    seeds = Seeds(tmp_path)
    one = seeds.make("a@0", bytes(32))
    assert one.bytes(16) != seeds.make("A@0", bytes(32)).bytes(16)
    assert seeds.read("a@0").bytes(16) == seeds.make("a@0").bytes(16)


def test_the_largest_sum_is_never_missed():
    out = np.empty(1, np.int32)
    for noise in (-(2**63), 2**63 - 1, -(2**63) + 1, -(2**31), 2**31):
        for value in (0.0, 7.0, -7.0):
            assert add_query(np.array([noise]), np.array([value]), 1.0, out) >= 2**31 - 7


def test_a_seed_that_a_killed_process_left_is_erased_at_the_next_start(
    noise, parties, tmp_path, monkeypatch
):
    with answering(tmp_path / "a") as side:
        with monkeypatch.context() as patch:
            patch.setattr(
                "dpaudit_mitigations.two_servers.answer_side.Seeds.erase", lambda self, name: 1 / 0
            )
            with pytest.raises(ZeroDivisionError):
                side.release(question(), contact(noise, parties))
        with broken_line(), pytest.raises(ZeroDivisionError):
            side.release(question(round=1), contact(noise, parties))
    assert sorted(p.name for p in (tmp_path / "a").glob("*.seed")) == [
        "week-7@0.seed",
        "week-7@1.seed",
    ]
    with answering(tmp_path / "a") as side:
        # still needed
        assert [p.name for p in (tmp_path / "a").glob("*.seed")] == ["week-7@1.seed"]
        side.release(question(round=1), contact(noise, parties))
    assert not list((tmp_path / "a").glob("*.seed"))


def test_the_lattice_depends_on_the_bound_alone():
    for bound in (1000.0, 1024.0, 1024.1, 3e-300 * 1e10, 1e200):
        sigma = bound / 500
        g = granularity(bound, sigma=sigma)
        assert np.log2(g) == round(np.log2(g))
        assert 2.0**29 < bound / g <= 2.0**30
        assert granularity(bound, sigma=sigma / 7) == g
    for bound, sigma in ((32.0, 2.0), (np.inf, 2.0), (1.0, 1e-9), (1e-320, 1e-323), (5.0, np.nan)):
        with pytest.raises(UsageError):
            granularity(bound, sigma=sigma)
