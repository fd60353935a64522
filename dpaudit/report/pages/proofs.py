"""The pages of a proof, and of a compiled sampler run with chosen coins."""

from __future__ import annotations

from typing import Any

from dpaudit.report import proofs as words
from dpaudit.report.figures.svg import present
from dpaudit.report.hazards import hazards_of_determinism, hazards_of_proof
from dpaudit.report.identity import file_facts
from dpaudit.report.meaning import determinism_meaning, proof_meaning
from dpaudit.report.tables import Column, facts_table
from dpaudit.results.text import one_line, printable
from dpaudit.types import DeterminismResult, ProofResult, Provenance

__all__ = ["determinism_page", "proof_page"]

MOST_COINS = 400
"""Coins of a counterexample that the page shows; the rest is in the JSON document."""


def proof_page(result: ProofResult) -> dict[str, Any]:
    """The words, tables and figures of its template."""
    from dpaudit.report.figures.law import coin_bits, exact_and_claimed, proved_profile

    found, law = result.counterexample, words.law_table(result)
    coins = words.coins_table(result)
    return {
        "title": f"Proof about {printable(result.program, limit=300)}",
        "verdict": words.verdict_of_proof(result),
        "word": words.WORDS[result.verdict],
        "sentence": words.proof_sentence(result),
        "meaning": proof_meaning(result),
        "files": _program(result.provenance),
        "others": _others(result.provenance),
        "facts": words.proof_facts(result),
        "says": printable(found.says, limit=1000) if found else "",
        "output": printable(found.output, limit=400) if found else "",
        "coins": [c._replace(cells=c.cells[:MOST_COINS]) for c in coins],
        "coins_left_out": max(0, len(coins[0].cells) - MOST_COINS),
        "figures": present(
            proved_profile(result, prefix="profile"),
            exact_and_claimed(result, prefix="law"),
            coin_bits(result, prefix="coin-bits"),
        ),
        "counted": words.coin_sentence(result),
        "law": law,
        "law_of": _law_of(result),
        "law_left_out": max(0, result.outputs - len(law[0].cells)),
        "profile": words.profile_table(result),
        "certificate": words.CERTIFICATE,
        "digest": one_line(result.certificate, limit=64),
        "verify": words.verify_command(result),
        "program_option": words.program_option(result),
        "again": printable(result.provenance.command, limit=2000),
        "never": [printable(what, limit=600) for what in result.cannot_rule_out],
        "proof": True,
        "hazards": hazards_of_proof(result),
        "provenance": facts_table(result.provenance),
    }


def _program(provenance: Provenance) -> list[list[tuple[str, str]]]:
    """The program's own file, which is the first."""
    return [[("Program’s file", rest[0][1]), *rest[1:]] for rest in file_facts(provenance)[:1]]


def _others(provenance: Provenance) -> list[Column]:
    """The files after the first, which is the program's."""
    files = provenance.files[1:]
    return [
        Column("File", [one_line(f.name, limit=400) for f in files]),
        Column("SHA-256", [one_line(f.sha256, limit=64) for f in files]),
    ]


def _law_of(result: ProofResult) -> str:
    """What P and Q are in the table of the law."""
    claim = "; Q: the claim" if result.claimed else ""
    return f"P: the program{words.law_is_of(result)}{claim}. Likeliest outputs first"


def determinism_page(result: DeterminismResult) -> dict[str, Any]:
    """The words, tables and figures of its template."""
    asked, taken = words.coins_facts(result)
    return {
        "title": f"Coins of {one_line(result.symbol, limit=300)}",
        "verdict": result.verdict,
        "sentence": words.determinism_sentence(result),
        "meaning": determinism_meaning(result),
        "files": file_facts(result.provenance)[:1],
        "facts": words.determinism_facts(result),
        "found": [printable(f, limit=1000) for f in result.findings],
        "open": [printable(w, limit=400) for w in result.not_controlled],
        "asked": asked,
        "taken": taken,
        "again": printable(result.provenance.command, limit=2000),
        "never": [printable(what, limit=600) for what in result.cannot_rule_out],
        "hazards": hazards_of_determinism(result),
        "provenance": facts_table(result.provenance),
    }
