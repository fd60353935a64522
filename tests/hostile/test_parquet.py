"""Hostile ``.parquet`` recordings."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hostile.fuzzing import fuzzed, refuses_or_reads
from hostile.mutated_bytes import mutations
from hostile.test_npy import drawn
from hypothesis import given

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


def written(columns, **options):
    file = io.BytesIO()
    pq.write_table(pa.table(columns), file, **options)
    return file.getvalue()


ROWS = np.random.default_rng(1).standard_normal((200, 2))
COLUMNS = {"a": ROWS[:, 0], "b": ROWS[:, 1]}
VALID = [
    written(COLUMNS, use_dictionary=False, compression="none"),
    written(COLUMNS, row_group_size=50),
    written({"a": np.arange(300, dtype=np.int16) // 100}, compression="zstd"),
    written(
        {"a": ROWS[:, 0].astype(np.float32)},
        compression="gzip",
        data_page_version="2.0",
        store_schema=False,
    ),
]
REFUSED = [
    written({"a": [1.0, None, 3.0]}),
    written({"a": ["x"]}),
    written({"a": [{"b": 1.0}]}),
    written({"a\x1b[2J": ["x"]}),
]
WORDS = [
    b"PAR1", b"ARROW:schema", b"\x15\0", b"\xff" * 5, b"\xff" * 9 + b"\x01", b"\x19\xfc", b"\0" * 8,
]  # fmt: skip


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("parquet") / "x.parquet"


@given(data=mutations([*VALID, *REFUSED], words=WORDS))
@fuzzed
def test_mutated_files(data, path):
    path.write_bytes(data)
    refuses_or_reads(lambda: drawn(path), size=len(data))


@pytest.mark.parametrize("data", VALID)
def test_valid_files_are_read(data, path):
    path.write_bytes(data)
    assert refuses_or_reads(lambda: drawn(path), size=len(data))


@pytest.mark.parametrize("data", REFUSED)
def test_nulls_and_other_types_are_refused(data, path):
    path.write_bytes(data)
    assert not refuses_or_reads(lambda: drawn(path), size=len(data))
