"""A fixture for trainings with Opacus, which spend half of a small run on the noise multiplier."""

import functools

import pytest

privacy_engine = pytest.importorskip("opacus.privacy_engine")


@pytest.fixture(scope="module", autouse=True)
def noise_multipliers():
    """Each is searched once."""
    searched = functools.cache(privacy_engine.get_noise_multiplier)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(privacy_engine, "get_noise_multiplier", searched)
        yield
