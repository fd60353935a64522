"""The two state machines: honest sessions, every way to cheat, messages that do not belong."""

import hashlib
import secrets

import numpy as np
import pytest
import scipy.stats
from msgspec import Raw, structs

from dpaudit.errors import CheatingError, MessageError, PeerError, UsageError
from dpaudit.stats import clopper_pearson
from dpaudit_mitigations.codec import Hex64, write_json
from dpaudit_mitigations.joint_seeds.derivation import joint_key, labelled_hash
from dpaudit_mitigations.joint_seeds.messages import Abort, Frame, Noises, Openings, open_frame
from dpaudit_mitigations.joint_seeds.mitigation import SubstitutingServer
from dpaudit_mitigations.joint_seeds.parties import SeedServer, Verifier
from dpaudit_mitigations.joint_seeds.record import candidate_noise, noise_commitment
from dpaudit_mitigations.joint_seeds.transcript import verify, write

K = 4


def whole(vector):
    return vector(0)


@pytest.mark.slow
def test_nobody_chooses_the_candidate_and_no_two_sessions_share_noise(pair):
    used, seen = np.zeros(K), set()
    for tag in range(100):  # one that is never used: p < 1e-6
        session = pair(("use", tag)).run()
        used[session.record.used] += 1
        seen.add(session.release.tobytes())
    assert scipy.stats.chisquare(used).pvalue > 1e-3
    assert len(seen) == 100


class HalfVerifier(Verifier):
    """Known bad: derives only half of the candidates again."""

    def wrong(self):
        half = np.random.default_rng(int.from_bytes(self.record.session[:8], "big")).permutation(K)[
            : K // 2
        ]
        return tuple(bad and i in half for i, bad in enumerate(super().wrong()))


def caught(pair, runs, **options):
    count = 0
    for tag in range(runs):
        substitute = np.full(4, tag, np.int64)
        both = pair(
            ("cheat", tag),
            server=SubstitutingServer,
            candidate=tag % K,
            substitute=substitute,
            **options,
        )
        session = both.run()
        assert session.outcome in ("complete", "caught")
        assert (session.outcome == "complete") == (session.release is not None)
        if session.release is not None and "verifier" not in options:
            assert session.record.used == tag % K
            assert np.array_equal(session.release * 2.0**24, both.steps + substitute)
        count += session.outcome == "caught"
    return clopper_pearson(count, runs, confidence=0.999)


@pytest.mark.slow
def test_a_substituted_candidate_is_caught_with_probability_one_less_one_kth(pair):
    # one candidate of four that is never derived again: 9/16, seen in 98 %
    interval = caught(pair, 200)
    assert interval.low <= 1 - 1 / K <= interval.high
    assert interval.high - interval.low < 0.22


@pytest.mark.slow
def test_the_interval_sees_a_verifier_that_derives_half(pair):
    assert caught(pair, 60, verifier=HalfVerifier).high < 1 - 1 / K


class Grinder(SeedServer):
    """Draws its share again when it has seen the verifier's, to push the first coordinate up."""

    adapts: tuple = tuple(range(K))

    def candidate_key(self, index):
        if not hasattr(self, "ground"):
            self.ground = set()
        if index in self.adapts and index not in self.ground:
            self.ground.add(index)
            tries = [
                Hex64(hashlib.sha512(self._shares[index] + bytes([t])).digest()) for t in range(16)
            ]
            keys = [
                joint_key(self.record.session, index, share, self._theirs[index]) for share in tries
            ]
            self._shares[index] = tries[
                int(np.argmax([whole(candidate_noise(key, self._terms))[0] for key in keys]))
            ]
        return super().candidate_key(index)


class OneGrinder(Grinder):
    adapts = (2,)


class Constant(SeedServer):
    """Draws its shares in advance, without randomness: that is allowed, and no help to it."""

    def share(self, index):
        return Hex64(64)


class NoCommitments(Verifier):
    """Known bad: a protocol without commitments to shares; it derives noise from what it gets."""

    def wrong(self):
        record, openings = self.record, self.record.body(Openings)
        return tuple(
            i != record.used and self.noise_of(i, server, verifier) != record.body(Noises).noises[i]
            for i, (server, verifier) in enumerate(
                zip(openings.server, openings.verifier, strict=True)
            )
        )

    def noise_of(self, index, server, verifier):
        key = joint_key(self.record.session, index, server, verifier)
        noise = candidate_noise(key, self.record.terms)
        return noise_commitment(
            self.record.session, index, key, noise, self.record.terms, threads=1
        )


def first_noise(sessions, pair):
    # the first step is 0, σ = 1
    return np.array([s.release[0] for s in sessions if s.release is not None])


@pytest.mark.slow
def test_a_biased_seed_share_biases_nothing_and_is_caught_when_it_adapts(pair):
    known_bad = [
        pair(("grind", t), server=Grinder, verifier=NoCommitments).run() for t in range(25)
    ]
    assert {s.outcome for s in known_bad} == {"complete"}
    # the mean of the largest of 16 normals is 1.77
    assert first_noise(known_bad, pair).mean() > 1.3
    ours = [pair(("grind", t), server=Grinder).run() for t in range(5)]
    assert {s.outcome for s in ours} == {"caught"}
    one = [pair(("grind", t), server=OneGrinder).run() for t in range(60)]
    interval = clopper_pearson(sum(s.outcome == "caught" for s in one), 60, confidence=0.999)
    assert interval.low <= 1 - 1 / K <= interval.high
    constant = [pair(("constant", t), server=Constant).run() for t in range(120)]
    assert {s.outcome for s in constant} == {"complete"}
    assert scipy.stats.kstest(first_noise(constant, pair), "norm").pvalue > 1e-3
    # the test of the test
    assert scipy.stats.kstest(first_noise(known_bad, pair), "norm").pvalue < 1e-6


class Equivocator(SeedServer):
    """Opens another share than the one it committed to."""

    def openings(self):
        openings = super().openings()
        shares = list(getattr(openings, self.side))
        shares[next(i for i, share in enumerate(shares) if share is not None)] = Hex64(
            secrets.token_bytes(64)
        )
        return structs.replace(openings, **{self.side: tuple(shares)})

    side = "server"


class OtherEquivocator(Equivocator):
    """Puts words into the verifier's mouth."""

    side = "verifier"


class Shifter(SeedServer):
    """Opens candidate i's shares as candidate j's."""

    def openings(self):
        openings = super().openings()
        i, j = (n for n in range(K) if n != self.record.used and n != (self.record.used + 1) % K)

        def swapped(shares):
            return tuple(shares[{i: j, j: i}.get(n, n)] for n in range(K))

        return Openings(server=swapped(openings.server), verifier=swapped(openings.verifier))


@pytest.mark.parametrize("server", [Equivocator, OtherEquivocator, Shifter])
def test_equivocation_is_caught(pair, server):
    for tag in range(4):
        session = pair(tag, server=server).run()
        assert session.outcome == "caught"
        assert session.release is None


class Hider(SeedServer):
    """Opens the used candidate, or fails to open another: no session goes on from there."""

    def openings(self):
        openings = super().openings()
        shares = list(openings.server)
        shares[self.record.used if self.tells else (self.record.used + 1) % K] = (
            Hex64(64) if self.tells else None
        )
        return structs.replace(openings, server=tuple(shares))

    tells = False


class Teller(Hider):
    tells = True


def test_openings_of_the_wrong_candidates_are_refused(pair, monkeypatch):
    for server in (Hider, Teller):
        both = pair(server=server)
        with monkeypatch.context() as patch:  # the server's own record would refuse to sign that
            patch.setattr(both.server.record, "_check", lambda *_: None)
            session = both.run()
        assert session.outcome == "aborted"
        assert session.record.body(Abort).missing == "openings"


class PickyServer(SeedServer):
    """Goes silent when the coin chose what it does not want: selective abort."""

    def openings(self):
        if self.record.used != 0:
            raise PeerError("gone")
        return super().openings()


class Chooser(SeedServer):
    """Goes silent when no candidate pleases it, before it commits to them."""

    def candidate_key(self, index):
        raise PeerError("gone")


@pytest.mark.parametrize(("server", "missing"), [(PickyServer, "openings"), (Chooser, "noises")])
def test_going_silent_is_on_record_as_cheating(pair, server, missing):
    outcomes = set()
    for tag in range(12):
        session = pair(tag, server=server).run()
        outcomes.add(session.outcome)
        if session.outcome == "aborted":
            assert session.release is None
            assert session.record.body(Abort).missing == missing
            following = session.record.terms.after(session.record.head)
            assert (following.sequence, following.previous) == (1, session.record.head)
    assert outcomes == ({"aborted", "complete"} if server is PickyServer else {"aborted"})


class Withholder(SeedServer):
    """Signs a release and publishes something else."""

    def step(self, frame):
        answer = super().step(frame)
        if self.release is not None:
            self.release = self.release + self.terms_step
        return answer

    terms_step = 2.0**-24


class OffLattice(Withholder):
    terms_step = 2.0**-30


class NotFinite(Withholder):
    terms_step = np.nan


@pytest.mark.parametrize("server", [Withholder, OffLattice, NotFinite])
def test_a_release_that_is_not_the_signed_one_gets_no_receipt(pair, server):
    session = pair(server=server).run()
    assert session.outcome == "aborted"
    assert session.record.body(Abort).missing == "vector"


def frames(both):
    """All frames of an honest session in order."""
    kept = []
    both.run(link=lambda sender, frame: kept.append((sender, frame)) or frame)
    return kept


def test_a_spoilt_or_lost_frame_after_the_shares_is_an_abort_before_them_an_error(pair):
    sent = frames(pair("spoil"))
    for spoilt in range(len(sent)):
        for change in (lambda frame: None, lambda frame: frame[:-1]):
            seen = -1

            def link(_sender, frame, spoilt=spoilt, change=change):
                nonlocal seen
                seen += 1
                return change(frame) if seen == spoilt else frame

            both = pair("spoil")
            if spoilt < 2:
                with pytest.raises((PeerError, MessageError)):
                    both.run(link=link)
            else:
                outcome = both.run(link=link).outcome
                assert outcome == ("complete" if spoilt == len(sent) - 1 else "aborted")


def test_nothing_secret_in_a_repr(pair):
    both = pair()
    both.run()
    shown = repr((both.server, both.server.opening(), both.verifier))
    opening = both.server.opening()
    for secret in (opening.server, opening.verifier, opening.query):
        assert secret.hex() not in shown
        assert repr(secret) not in shown


def test_terms_that_cannot_be_and_terms_that_were_not_agreed_on(pair):
    both, other = pair("a"), pair("a", candidates=5)
    with pytest.raises(MessageError, match="terms"):
        both.server.step(other.verifier.step(None))
    for name, value in [
        ("candidates", 1), ("candidates", 257), ("candidates", True), ("dim", 0),
        ("dim", 2**32 + 1), ("scale", 0.5), ("scale", np.nan), ("granularity", 0.3),
        ("server", both.terms.verifier), ("sequence", 1), ("previous", b"1" * 32),
    ]:  # fmt: skip
        with pytest.raises(UsageError, match=rf"{name}|first session"):
            structs.replace(both.terms, **{name: value})
    for steps in (np.zeros(3, np.int64), np.zeros(4), np.full(4, 2**53)):
        with pytest.raises(UsageError, match=r"int64|clip"):
            pair(steps=steps)


class LateCoin(Verifier):
    """Reveals another coin than the one it committed to."""

    def _coin(self):
        return Hex64(64) if self.record.last == "noises" else super()._coin()


class OwnChoice(Verifier):
    """Names another candidate than its coin's, and signs that."""

    def step(self, frame):
        choose = self.record.coin_choice
        self.record.coin_choice = lambda coin, k: (choose(coin, k) + 1) % k
        return super().step(frame)


@pytest.mark.parametrize("verifier", [LateCoin, OwnChoice])
def test_a_verifier_that_chooses_is_refused_by_the_server_and_by_third_parties(
    pair, verifier, tmp_path, monkeypatch
):
    both = pair(verifier=verifier)
    with monkeypatch.context() as patch:
        if verifier is LateCoin:
            patch.setattr(both.verifier.record, "_check", lambda *_: None)
        session = both.run()
    assert session.outcome == "aborted"
    assert both.server.record.last == "noises"  # it opened nothing
    write(session.record, tmp_path / "transcript.json")
    assert verify(tmp_path / "transcript.json").details["outcome"] == "invalid"


def test_what_a_party_signs_out_of_order_is_refused(pair):
    """Each party in every state gets each message with a valid signature: the order is wrong."""
    sent = frames(pair("order"))
    bodies = {open_frame(frame)[0].kind: frame for _, frame in sent}
    tried = 0
    for state in range(len(sent)):
        both = pair("order")
        both.verifier.step(None)
        parties = {"server": both.server, "verifier": both.verifier}
        for i, (sender, frame) in enumerate(sent[1 : state + 1]):
            assert (
                parties[sender].step(sent[i][1]) or both.verifier.receipt(both.server.release)
            ) == frame
        waiting = parties[sent[state][0]]  # it sent the last message, and knows all before it
        due = open_frame(sent[state + 1][1])[0].kind if state + 1 < len(sent) else None
        for kind, frame in bodies.items():
            message, sealed = open_frame(frame)
            if kind == due or parties[message.sender] is waiting:
                continue
            head = labelled_hash("signature", waiting.record.head, message.unsigned())
            again = structs.replace(message, signature=Hex64(pair.keys[message.sender].sign(head)))
            with pytest.raises(MessageError, match="cannot follow"):
                waiting.step(write_json(Frame(message=again, sealed=Raw(sealed))))
            tried += 1
    assert tried > 25


class ShortOffer(Verifier):
    """Commits to a share less than there are candidates, and signs that."""

    def _send(self, body, *, sealed=None):
        return super()._send(structs.replace(body, shares=body.shares[:-1]), sealed=sealed)


def test_a_list_has_one_value_a_candidate(pair):
    with pytest.raises(MessageError, match=r"offer\.shares"):
        pair(verifier=ShortOffer).verifier.step(None)


class OtherShares(Verifier):
    """Sends another share than it committed to."""

    def _share(self, index):
        return Hex64(64) if self.record.last == "commit" and index == 1 else super()._share(index)


def test_a_verifier_that_adapts_its_share_is_refused_before_any_noise_is_made(pair):
    both = pair(verifier=OtherShares)
    commit = both.server.step(both.verifier.step(None))
    with pytest.raises(MessageError, match="share 1"):
        both.server.step(both.verifier.step(commit))


def test_a_caught_server_is_told_and_has_nothing_to_release(pair):
    both = pair(server=Equivocator)
    choice = both.verifier.step(
        both.server.step(both.verifier.step(both.server.step(both.verifier.step(None))))
    )
    verdict = both.verifier.step(both.server.step(choice))
    with pytest.raises(CheatingError, match="nothing is released"):
        both.server.step(verdict)
    assert both.server.release is None
    with pytest.raises(MessageError, match="no release"):
        both.verifier.receipt(np.zeros(4))
    with pytest.raises(MessageError, match="over"):
        both.verifier.abort()


def test_only_the_signed_release_gets_a_receipt(pair):
    both = pair()
    frame = both.verifier.step(None)
    while frame is not None:
        frame = both.verifier.step(both.server.step(frame))
    with pytest.raises(MessageError, match="not what the server signed"):
        both.verifier.receipt(both.server.release + 1)
    for values in (np.zeros(5), np.zeros(4, np.float32), np.zeros((4, 1))):
        with pytest.raises(MessageError, match="not float64"):
            both.verifier.receipt(values)
    assert both.verifier.receipt(both.server.release)
