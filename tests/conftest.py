"""Shared fixtures: a small key and a stream."""

from __future__ import annotations

import os
import sys
from pathlib import Path

# two workers share two cores; before anything reads it
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
from hypothesis import settings

from dpaudit.randomness import KeyedStream

# for ``oracles`` and ``result_tables``: importlib mode puts no folder on the path
HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "docs" / "studies")]


# deadline: a loaded machine
settings.register_profile("quick", max_examples=10, deadline=None, derandomize=True)
# pytest --hypothesis-profile thorough
settings.register_profile("thorough", max_examples=400, deadline=None)
settings.load_profile("quick")


LONG = (
    "tests/test_examples.py",
    "tests/test_supply_chain.py",
    "tests/dpaudit/test_other_systems.py",
    "tests/dpaudit/cli/test_readiness.py",
    "tests/dpaudit/experiments/test_placement",
    "tests/dpaudit/queries/test_facade_distributed.py",
    "tests/dpaudit_studies/test_dpsgd_training.py",
    "tests/dpaudit_mitigations/two_servers/test_processes.py",
)


def pytest_addoption(parser):
    parser.addoption(
        "--rewrite", action="store_true", help="write tests/dpaudit/rendered/*.txt anew"
    )


def pytest_collection_modifyitems(items):
    """The longest tests first, so that no worker is left alone with one of them at the end."""
    items.sort(key=lambda item: not item.nodeid.startswith(LONG))


@pytest.fixture
def stream():
    return KeyedStream.from_seed("tests")


@pytest.fixture
def make_key():
    """A pancake key of fixed secret, so that tests do not depend on luck."""
    from dpaudit.noise.key import PancakeKey

    def make(dim=64, beta=1e-3, gamma="2sqrtd", tag="a", **options):
        secret = KeyedStream.from_seed("tests").child("key", tag).bytes(32)
        return PancakeKey.new(dim=dim, beta=beta, gamma=gamma, secret=secret, **options)

    return make
