"""What a malicious aggregator tries, and that each attempt works without the defence."""

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from msgspec.structs import replace

from dpaudit.errors import CheatingError, MessageError, ProtocolError
from dpaudit_mitigations.codec import pack
from dpaudit_mitigations.secure_aggregation import client as client_module
from dpaudit_mitigations.secure_aggregation import wire
from dpaudit_mitigations.secure_aggregation.keys import (
    Envelope,
    derive,
    public_bytes,
    recombine,
    sign,
)


def opened(r, message, kind):
    """What a message lists, by party."""
    found = wire.read(r.plan, message, kind)
    if kind is wire.Unmasking:
        return wire.by_name(found.seeds), wire.by_name(found.keys)
    if kind is wire.Adverts:
        return {a.name: a for a in found.adverts}
    return wire.by_name(found.signatures if kind is wire.Confirmations else found.sealed)


def made(r, kind, **fields):
    """A message of this round; what is by party becomes a list."""
    lists = {k: wire.entries(v) if isinstance(v, dict) else v for k, v in fields.items()}
    return pack(kind(session=r.plan.digest, **lists))


def of_adverts(r, adverts):
    return made(r, wire.Adverts, adverts=tuple(adverts))


def of_survivors(r, agreed, survivors, dropped):
    parties = {"survivors": tuple(survivors), "dropped": tuple(dropped)}
    return made(r, wire.Survivors, agreed=agreed, **parties)


def swapped(r, victim, own):
    """The list of adverts in which the aggregator has put its own keys for ``victim``."""
    adverts = opened(r, r.adverts, wire.Adverts)
    old = adverts[victim]
    adverts[victim] = replace(old, masking=public_bytes(own[0]), sharing=public_bytes(own[1]))
    return adverts, of_adverts(r, [adverts[n] for n in sorted(adverts)])


def test_a_swapped_public_key_is_refused(make_round, monkeypatch):
    own = X25519PrivateKey.generate(), X25519PrivateKey.generate()
    r = make_round(4).until("share")
    with pytest.raises(CheatingError, match="advert of b"):
        r.clients["a"].step(swapped(r, "b", own)[1])
    assert r.clients["a"].done

    # without the check, it reads the shares for b
    monkeypatch.setattr(client_module, "check_advert", lambda *_: None)
    r = make_round(4).until("share")
    adverts, message = swapped(r, "b", own)
    sealed = opened(r, r.clients["a"].step(message), wire.Shares)["b"]
    agreed = client_module.after_adverts(r.plan, adverts)
    envelope = Envelope(
        own=own[1], other=adverts["a"].sharing, agreed=agreed, sender="a", recipient="b"
    )
    envelope.open(sealed)


@pytest.mark.parametrize("point", [bytes(32), bytes([1]) + bytes(31)])
def test_keys_of_small_order_are_refused(point):
    with pytest.raises(CheatingError, match="public key of b"):
        derive(X25519PrivateKey.generate(), point, "test", peer="b")


def test_keys_that_serve_two_parties_or_two_purposes_are_refused(make_round):
    """Signed correctly by b, who works with the aggregator: b takes a's keys, or one key twice."""
    for copied in (True, False):
        r = make_round(4).until("share")
        adverts = opened(r, r.adverts, wire.Adverts)
        public = (
            (adverts["a"].masking, adverts["b"].sharing) if copied else (adverts["b"].sharing,) * 2
        )
        unsigned = replace(adverts["b"], masking=public[0], sharing=public[1])
        adverts["b"] = replace(
            unsigned, signature=sign(r.signing["b"], "advert", *unsigned.signed(r.plan))
        )
        says = "two parties" if copied else "one key for two purposes"
        with pytest.raises(CheatingError, match=says):
            r.clients["c"].step(of_adverts(r, adverts.values()))


def test_an_unknown_party_in_a_list_is_refused(make_round):
    r = make_round(4)
    adverts = [*opened(r, r.advertise(), wire.Adverts).values()]
    with pytest.raises(MessageError, match="not in the roster"):
        r.clients["a"].step(of_adverts(r, [*adverts, replace(adverts[0], name="zoe")]))


def test_an_advert_of_another_round_is_refused(make_round):
    old, new = make_round(4, tag="old"), make_round(4, tag="new")
    old.advertise()
    new.advertise()
    with pytest.raises(MessageError, match="another round"):
        new.clients["a"].step(old.adverts)
    new = make_round(4, tag="new")
    new.advertise()
    mixed = opened(new, new.adverts, wire.Adverts) | {
        "b": opened(old, old.adverts, wire.Adverts)["b"]
    }
    with pytest.raises(CheatingError, match="advert of b"):
        new.clients["a"].step(of_adverts(new, [mixed[n] for n in sorted(mixed)]))


def test_lists_of_keys_without_oneself_or_too_short_are_refused(make_round):
    for keep, error, says in (
        ("bcd", MessageError, "lacks a's own"),
        ("ab", ProtocolError, "below the threshold"),
    ):
        r = make_round(4).until("share")
        adverts = opened(r, r.adverts, wire.Adverts)
        with pytest.raises(error, match=says):
            r.clients["a"].step(of_adverts(r, [adverts[n] for n in keep]))


@pytest.mark.parametrize("small", [True, False])
def test_the_server_leaves_out_whose_keys_would_drive_the_others_away(make_round, small):
    """Keys of small order, or a copied one, signed correctly by d."""
    r = make_round(4)
    for name in "abc":
        r.server.step({name: r.clients[name].step(None)})
    own = wire.read(r.plan, r.clients["d"].step(None), wire.AdvertMessage).advert
    unsigned = replace(own, masking=bytes(32) if small else r.server._adverts["a"].sharing)
    signature = sign(r.signing["d"], "advert", *unsigned.signed(r.plan))
    message = pack(wire.AdvertMessage.of(replace(unsigned, signature=signature), r.plan))
    with pytest.raises(CheatingError, match="public key of d" if small else "another party's"):
        r.server.step({"d": message})
    r.adverts = r.close_for_all()
    r.share()
    r.mask()
    r.confirm()
    assert np.array_equal(r.unmask().total, r.expected("abc"))


def test_envelopes_for_others_or_from_another_round_are_refused(make_round):
    r = make_round(4).until("mask")
    with pytest.raises(MessageError, match="another party"):
        r.clients["a"].step(r.envelopes["b"])
    r = make_round(4).until("mask")
    for_b = opened(r, r.envelopes["b"], wire.Envelopes)
    with pytest.raises(CheatingError, match="shares from"):  # what was sealed for b, put before a
        r.clients["a"].step(made(r, wire.Envelopes, party="a", sealed={n: for_b[n] for n in "cd"}))
    old, new = make_round(4, tag="old").until("mask"), make_round(4, tag="new").until("mask")
    with pytest.raises(MessageError, match="another round"):
        new.clients["a"].step(old.envelopes["a"])
    new = make_round(4, tag="new").until("mask")
    stale = opened(old, old.envelopes["a"], wire.Envelopes)
    with pytest.raises(CheatingError, match="shares from b"):
        new.clients["a"].step(made(new, wire.Envelopes, party="a", sealed=stale))


@pytest.mark.parametrize("at", [0, 40, 81])
def test_a_tampered_envelope_is_refused(make_round, at):
    r = make_round(4).until("mask")
    sealed = opened(r, r.envelopes["a"], wire.Envelopes)
    broken = bytearray(sealed["c"])
    broken[at] ^= 1
    with pytest.raises(CheatingError, match="shares from c for a"):
        r.clients["a"].step(
            made(r, wire.Envelopes, party="a", sealed=sealed | {"c": bytes(broken)})
        )
    assert r.clients["a"].done


def lists(r, survivors, dropped):
    agreed = wire.read(r.plan, r.survivors, wire.Survivors).agreed
    return of_survivors(r, agreed, survivors, dropped)


@pytest.mark.parametrize(
    ("survivors", "dropped", "error", "says"),
    [
        ("abcde", "e", MessageError, "in both lists"),
        ("abcd", "", MessageError, "in one list"),
        ("bcde", "a", MessageError, "lacks a, which sent its vector"),
        ("ab", "cde", ProtocolError, "below the threshold"),
    ],
)
def test_lists_that_do_not_fit_are_refused(make_round, survivors, dropped, error, says):
    r = make_round(5).until("confirm")
    with pytest.raises(error, match=says):
        r.clients["a"].step(lists(r, survivors, dropped))
    assert r.clients["a"].done
    assert r.clients["a"]._shares == {}  # the shares are gone, whatever is asked next


def both_secrets(r, victim, lie):
    """The aggregator tells ``lie`` that ``victim`` dropped out, others not; the shares it gets."""
    told = {
        n: lists(r, [x for x in r.names if x != victim], [victim]) if n in lie else r.survivors
        for n in r.names
    }
    signatures = {
        n: wire.read(r.plan, r.clients[n].step(told[n]), wire.Confirmation).signature
        for n in r.names
        if n != victim
    }
    haul = [], []
    for n in signatures:
        agreeing = {m: s for m, s in signatures.items() if told[m] == told[n]}
        for shown in (agreeing, signatures):
            try:
                seeds, keys = opened(
                    r,
                    r.clients[n].step(made(r, wire.Confirmations, signatures=shown)),
                    wire.Unmasking,
                )
            except (ProtocolError, CheatingError):
                continue
            haul[0].extend([(r.plan.places[n], seeds[victim])] if victim in seeds else [])
            haul[1].extend([(r.plan.places[n], keys[victim])] if victim in keys else [])
    return dict(haul[0]), dict(haul[1])


def test_different_lists_to_different_clients_give_nothing(make_round, monkeypatch):
    for lie in ("a", "ab", "abc", "abcd", "abcde"):
        r = make_round(7).until("confirm")
        seeds, keys = both_secrets(r, "g", lie)
        t = r.plan.threshold
        assert not (len(seeds) >= t and len(keys) >= t)
        assert len(seeds) + len(keys) <= 6
    monkeypatch.setattr(client_module, "check_confirmation", lambda *_: None)
    monkeypatch.setattr(client_module.Client, "_check_enough", lambda *_: None)
    r = make_round(7, threshold=4).until("confirm")
    # unchecked: three shares of each secret, so with one colluder's both of g's
    seeds, keys = both_secrets(r, "g", "abc")
    assert len(seeds) == len(keys) == 3 == r.plan.threshold - 1


def test_signatures_that_are_too_few_forged_or_of_unknown_parties_are_refused(make_round):
    for change, error, says in (
        (lambda s: {n: s[n] for n in "ab"}, ProtocolError, "below the threshold"),
        (lambda s: s | {"b": s["c"]}, CheatingError, "survivors of b"),
        (lambda s: s | {"b": bytes(64)}, CheatingError, "survivors of b"),
    ):
        r = make_round(4).until("unmask")
        signatures = change(opened(r, r.confirmations, wire.Confirmations))
        with pytest.raises(error, match=says):
            r.clients["a"].step(made(r, wire.Confirmations, signatures=signatures))
    r = make_round(4)
    r.until("mask").mask("abc")
    r.confirm()
    forged = opened(r, r.confirmations, wire.Confirmations) | {"d": bytes(64)}
    with pytest.raises(MessageError, match="not a survivor"):
        r.clients["a"].step(made(r, wire.Confirmations, signatures=forged))


def test_an_unmasking_holds_one_secret_of_each_party(make_round):
    r = make_round(5)
    r.until("mask").mask("abcd")
    r.confirm()
    total = r.unmask()
    for n in "abcd":
        seeds, keys = opened(r, r.sent["unmasking", n], wire.Unmasking)
        assert seeds.keys() == set("abcd")
        assert keys.keys() == {"e"}
    assert np.array_equal(total.total, r.expected("abcd"))


def test_asking_a_second_time_with_another_list_gives_nothing(make_round):
    r = make_round(4).until("unmask")
    client = r.clients["a"]
    client.step(r.confirmations)
    for again in (
        lambda: client.step(lists(r, "abc", "d")),
        lambda: client.step(r.confirmations),
    ):
        with pytest.raises(MessageError, match="out of order or repeated"):
            again()


def test_an_unmasking_with_other_shares_than_those_needed_is_refused(make_round):
    r = make_round(4).until("unmask")
    seeds, keys = opened(r, r.clients["a"].step(r.confirmations), wire.Unmasking)
    for s, k in (({n: seeds[n] for n in "abc"}, keys), (seeds, {"d": seeds["d"]})):
        with pytest.raises(MessageError, match="other shares than needed"):
            r.server.step({"a": made(r, wire.Unmasking, name="a", seeds=s, keys=k)})
    r.server.step({"a": made(r, wire.Unmasking, name="a", seeds=seeds, keys=keys)})


def test_fewer_shares_than_the_threshold_are_not_enough(make_round):
    r = make_round(5).until("confirm")
    held = {r.plan.places[n]: r.clients[n]._shares["a"][0] for n in "abcde"}
    seed = r.clients["a"]._keys.seed
    assert recombine(held, threshold=3) == seed
    with pytest.raises(MessageError, match="2 shares: 3 are needed"):
        recombine({p: held[p] for p in (1, 2)}, threshold=3)
    try:
        wrong = recombine({p: held[p] for p in (1, 2)}, threshold=2)
    except CheatingError:
        wrong = b""
    assert wrong != seed


def test_sharers_hidden_from_some_clients_are_noticed(make_round):
    """The aggregator shows a and b an envelope from e, c and d none: nobody signs another list."""
    r = make_round(5).until("mask")
    for n in "abcd":
        sealed = opened(r, r.envelopes[n], wire.Envelopes)
        if n in "cd":
            del sealed["e"]
        r.clients[n].step(made(r, wire.Envelopes, party=n, sealed=sealed))
    shown = r.clients["a"]._agreed
    assert r.clients["b"]._agreed == shown != r.clients["c"]._agreed
    message = of_survivors(r, shown, "abcd", "e")
    r.clients["a"].step(message)
    with pytest.raises(MessageError, match="with other sharers"):
        r.clients["c"].step(message)


def test_wrong_shares_give_no_sum(make_round):
    for which, says in ((0, "seed of"), (1, "masking key of")):
        r = make_round(5)
        r.until("mask").mask("abcd")
        r.confirm()
        for n in "abcd":
            parts = opened(r, r.clients[n].step(r.confirmations), wire.Unmasking)
            if n == "b":
                owner = "e" if which else "c"
                parts[which][owner] = bytes(32) + bytes([parts[which][owner][-1] ^ 1])
            message = made(r, wire.Unmasking, name=n, seeds=parts[0], keys=parts[1])
            r.server.step({n: message})
        with pytest.raises(CheatingError, match=f"{says}|make no secret"):
            r.server.step({})
