"""What clients and the aggregator derive alike from the messages of a round: transcripts and signed statements."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from dpaudit.errors import CheatingError
from dpaudit_mitigations.secure_aggregation.keys import check_public, verify
from dpaudit_mitigations.secure_aggregation.plan import Plan, transcript
from dpaudit_mitigations.secure_aggregation.wire import Advert

__all__ = ["after_adverts", "after_shares", "check_advert", "check_confirmation", "survivors_statement"]


def after_adverts(plan: Plan, adverts: Mapping[str, Advert]) -> bytes:
    """The transcript once all keys are known: what envelopes are bound to."""
    return transcript("adverts", plan.digest, *(adverts[name].encoded() for name in sorted(adverts)))


def after_shares(agreed: bytes, sharers: Iterable[str]) -> bytes:
    """The transcript once it is known who sent shares: what masks and confirmations are bound to."""
    return transcript("sharers", agreed, *(name.encode() for name in sorted(sharers)))


def survivors_statement(agreed: bytes, survivors: Sequence[str], dropped: Sequence[str]) -> tuple[bytes, ...]:
    """The byte strings that a party signs (label ``survivors``): whose vectors are in the sum and whose are not."""
    return (
        agreed,
        len(survivors).to_bytes(8, "big"),
        *(name.encode() for name in (*sorted(survivors), *sorted(dropped))),
    )


def check_advert(plan: Plan, advert: Advert) -> None:
    """Check the signature with the roster's key, and that the keys are such that others can go on with them.

    Raises:
        CheatingError: other keys than those that the party signed, of another round, equal, or of small order.
    """
    verify(plan.roster[advert.name], advert.signature, "advert", *advert.signed(plan), signer=advert.name)
    if advert.masking == advert.sharing:
        raise CheatingError(f"advert of {advert.name}: one key for two purposes")
    for key in (advert.masking, advert.sharing):
        check_public(key, owner=advert.name)


def check_confirmation(plan: Plan, name: str, signature: bytes, statement: Sequence[bytes]) -> None:
    """Check ``name``'s signature on a list of survivors.

    Raises:
        CheatingError: it signed another list, or none.
    """
    verify(plan.roster[name], signature, "survivors", *statement, signer=name)
