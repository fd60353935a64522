"""Hostile property lists: the four files of a configuration, XML and binary."""

from __future__ import annotations

import plistlib
import random
from collections import Counter
from pathlib import Path

from command_line import here
from hostile.fuzzing import fuzzed, refuses_or_reads
from hostile.mutated_bytes import mutated
from hostile.mutated_values import ODD, with_odd_fields
from hypothesis import given
from hypothesis import strategies as st

from dpaudit.deployments.apple.configuration.reading import FILES, read_configuration
from dpaudit.deployments.apple.configuration.resolving import resolve, unresolved
from dpaudit.deployments.apple.differences import compare, effect
from dpaudit.deployments.apple.ledger import make_ledger

VALID = Path(__file__).parents[1] / "data" / "apple" / "10.12.3"
PLAIN = tuple(
    v
    for v in ODD
    if v is not None and not (isinstance(v, int) and abs(v) >= 2**63) and v not in ("\ud800", "\0")
)


def door(folder):
    """What ``dpaudit deployment apple --config`` does with it."""
    read = read_configuration(folder)
    valid = read_configuration(VALID)
    (
        resolve(read),
        unresolved(read),
        make_ledger(read, days=30),
        compare(valid, read),
        effect(valid, read),
    )


def test_mutated_configurations(tmp_path):
    door(VALID)
    read, texts = Counter(), {name: (VALID / name).read_bytes() for name in FILES}
    values = {name: plistlib.loads(data) for name, data in texts.items()}

    @fuzzed
    @given(number=st.integers(0, 2**48))
    def try_one(number):
        rng = random.Random(number)
        name = rng.choice(FILES)
        for other, data in texts.items():
            (tmp_path / other).write_bytes(data)
        how = rng.randrange(4)
        if how == 0:
            data = mutated(
                rng,
                texts[name],
                others=list(texts.values()),
                words=(b"<dict>", b"<integer>", b"<!ENTITY", b"&x;"),
            )
        else:
            value = (
                with_odd_fields(rng, values[name][: rng.choice((2, 8, None))], odd=PLAIN)
                if how < 3
                else values[name][:9]
            )
            form = plistlib.FMT_BINARY if how == 3 or rng.randrange(2) else plistlib.FMT_XML
            try:
                data = plistlib.dumps(value, fmt=form)
            except (
                TypeError,
                ValueError,
                UnicodeEncodeError,
            ):  # keys that no property list has, control characters
                data = texts[name]
            data = mutated(rng, data) if how == 3 else data
        (tmp_path / name).write_bytes(data)
        read[
            refuses_or_reads(lambda: door(tmp_path), size=sum(map(len, texts.values())) + len(data))
        ] += 1

    try_one()
    print("read", read[True], "refused", read[False])
    assert read[True]
    assert read[False]


def test_numbers_of_days_are_usage_errors():
    for days in ("0", "-1", "1" + "0" * 30, "1" + "0" * 400, "1e3", "nan"):
        assert here("deployment", "apple", "--config", VALID, "--days", days).returncode == 2
