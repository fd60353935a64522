"""An error about a claim ends with a claim that can be typed."""

from __future__ import annotations

import shlex
from typing import get_type_hints

import pytest

from dpaudit import claims
from dpaudit.accounting.dpsgd import DpSgd
from dpaudit.audit.options import PrivacyClaim
from dpaudit.audit.stated_claims import DeltaCurve, Renyi, TradeOff
from dpaudit.cli.options import ClaimOptions
from dpaudit.errors import UsageError
from dpaudit.prove.verdicts import claims as proofs

PARSE = {"audit": claims.Claim.parse, "prove": proofs.ClaimedLaw.parse}
FAMILIES = [("audit", name) for name in claims.FAMILIES] + [
    ("prove", name) for name in proofs.FAMILIES
]
STATED = {"curve": DeltaCurve, "f": TradeOff, "renyi": Renyi, "dpsgd": DpSgd}


def example_in(error):
    (example,) = shlex.split(str(error.value).rpartition("e.g. ")[2])
    return example


@pytest.mark.parametrize(("command", "family"), FAMILIES)
@pytest.mark.parametrize("rest", ["", ":", ":x", ":x=1", ":dim=x", ":{0}=x", ":{0}=-1"])
def test_an_error_ends_with_a_claim_that_parses(command, family, rest) -> None:
    parse = PARSE[command]
    first = claims.FAMILIES[family] if command == "audit" else "weights"
    with pytest.raises(UsageError) as error:
        parse(f"{family}{rest.format(first)}")
    example = example_in(error)
    assert example.startswith(f"{family}:")
    assert parse(example).__class__ in (claims.Claim, proofs.ClaimedLaw)


@pytest.mark.parametrize(("command", "separator"), [("audit", ", "), ("prove", " | ")])
def test_an_unknown_family_is_answered_with_one_claim_of_each(command, separator) -> None:
    with pytest.raises(UsageError) as error:
        PARSE[command]("cauchy:scale=1")
    examples = str(error.value).rpartition("write one of ")[2].split(separator)
    known = claims.FAMILIES if command == "audit" else proofs.FAMILIES
    assert [PARSE[command](example) and example.partition(":")[0] for example in examples] == [
        *known
    ]


@pytest.mark.parametrize("name", STATED)
@pytest.mark.parametrize("text", ["x", "", "x=1", "-1,2"])
def test_an_error_about_a_mechanism_ends_with_a_claim_that_parses(name, text) -> None:
    with pytest.raises(UsageError, match=f"claim-{name}") as error:
        PrivacyClaim.of(None, **{name: text})
    assert PrivacyClaim.of(None, **{name: example_in(error)}).stated is not None
    assert example_in(error) == STATED[name].EXAMPLE


@pytest.mark.parametrize("name", ["renyi", "dpsgd"])
def test_the_help_shows_the_same_example(name) -> None:
    hint = get_type_hints(ClaimOptions, include_extras=True)[f"claim_{name}"]
    assert f"e.g. {STATED[name].EXAMPLE}" in hint.__metadata__[0].help
