"""A client that is put to sleep and woken between any two stages answers as one that was awake."""

import pytest

from dpaudit.errors import MessageError, UsageError
from dpaudit_mitigations.secure_aggregation.suspended import resume, suspend


def nap(r, name):
    key = r.signing[name]
    r.clients[name] = resume(r.plan, signing_key=key, data=suspend(r.clients[name]))


def test_every_stage_after_a_nap(make_round):
    r = make_round(4, threshold=3)
    for stage, names in (
        ("advertise", None),
        ("share", None),
        ("mask", "abc"),
        ("confirm", None),
        ("unmask", None),
    ):
        outcome = getattr(r, stage)(names)
        if stage != "unmask":
            for name in "abc":
                nap(r, name)
    assert outcome.survivors == ("a", "b", "c")
    assert (outcome.total == r.expected("abc")).all()


def test_nobody_wakes_up_without_masks(make_round):
    """Between envelopes and vector no client is suspended: resumed, it would not mask."""
    r = make_round(3).until("mask")
    data = suspend(r.clients["a"])
    forged = data.replace(b"\xa5stage\x02", b"\xa5stage\x03")
    assert forged != data
    with pytest.raises(MessageError, match="of a stage at which no client"):
        resume(r.plan, signing_key=r.signing["a"], data=forged)
    resume(r.plan, signing_key=r.signing["a"], data=data)


def test_nothing_to_come_back_to(make_round):
    r = make_round(3)
    with pytest.raises(UsageError, match="cannot be resumed"):
        suspend(r.clients["a"])
    r.advertise()
    data = suspend(r.clients["a"])
    assert r.clients["a"].ended
    with pytest.raises(UsageError, match="cannot be resumed"):
        suspend(r.clients["a"])
    other = make_round(3, tag="other")
    with pytest.raises(UsageError, match="another round"):
        resume(other.plan, signing_key=other.signing["a"], data=data)
    with pytest.raises(UsageError, match="signing_key"):
        resume(r.plan, signing_key=r.signing["b"], data=data)
    for at in range(0, len(data), 7):
        with pytest.raises((MessageError, UsageError)):
            resume(r.plan, signing_key=r.signing["a"], data=data[:at])
