"""One canonical form for everything that is signed, hashed or sent: sorted, unspaced ASCII JSON, and nothing else."""

from __future__ import annotations

import json
from typing import Any

from dpaudit.errors import MessageError

__all__ = ["LARGEST_MESSAGE", "LARGEST_TRANSCRIPT", "decode", "encode"]

LARGEST_MESSAGE = 1 << 18  # bytes; 256 candidates need 70,000
LARGEST_TRANSCRIPT = 1 << 20


def encode(document: Any) -> bytes:
    """The only bytes that stand for ``document`` (dicts with text keys, lists, text, whole numbers, booleans, None)."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.encode("ascii")


def decode(data: bytes, *, most: int, what: str) -> Any:
    """The document that ``data`` stands for; ``what`` names it in errors.

    Raises:
        MessageError: more than ``most`` bytes, no JSON, or not the canonical form: spaces, a repeated or misplaced key,
            another spelling of a number or of a letter.
    """
    if len(data) > most:
        raise MessageError(f"{what}: {len(data):,} bytes, at most {most:,} are allowed")
    try:
        document = json.loads(data)
        canonical = encode(document)
    except (ValueError, RecursionError) as error:
        raise MessageError(f"{what}: not JSON") from error
    if canonical != data:
        raise MessageError(f"{what}: not in canonical form (sorted and distinct keys, no spaces, plain numbers)")
    return document
