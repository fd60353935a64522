"""What one device reported is read with the key, and not without."""

import math

import numpy as np
import pytest

from dpaudit.errors import UsageError
from dpaudit.local.count_mean_sketch import CountMeanSketch
from dpaudit.local.rappor import Rappor
from dpaudit.local.seed_in_reports import SeedInReports
from dpaudit.noise.seed_in_noise.key import SeedKey
from dpaudit.noise.seed_in_noise.nonces import KeyedNonces, SealedNonces
from dpaudit.randomness import KeyedStream
from dpaudit_attacks.report_reader import ReportReader

STREAM = KeyedStream.from_seed(7)
KEY = SeedKey.new(secret=bytes(range(32)))


def test_every_position_of_a_sketch_is_read_wherever_the_nonce_is():
    sketch = CountMeanSketch(4.0)
    made = SeedInReports(sketch, nonces=KeyedNonces(KEY.secret, bits=128))
    n = 16
    reports = made.privatize(np.arange(n), stream=STREAM)
    place = sketch.hashes.each(np.arange(n), reports.function)
    assert 2 < (place < made.coins.bits).sum() < 14  # own bits among the nonce's, and others
    fits = ReportReader(key=KEY).read(reports, mechanism=sketch, objects=np.arange(n))
    for i in range(n):
        every = sketch.hashes.positions(np.arange(n), int(reports.function[i]))
        assert (fits[i] == (every == place[i])).all()
    other = ReportReader(key=SeedKey.new(secret=bytes(32)))
    assert not other.read(reports, mechanism=sketch, objects=np.arange(n)).any()
    honest = sketch.privatize(np.arange(n), stream=STREAM)
    assert not ReportReader(key=KEY).read(honest, mechanism=sketch, objects=np.arange(n)).any()


def test_the_owner_of_a_private_key_reads():
    sketch = CountMeanSketch(4.0)
    made = SeedInReports(sketch, nonces=SealedNonces(KEY.public_key))
    reports = made.privatize(np.array([3, 4]), stream=STREAM)
    reader = ReportReader(key=KEY, public=True)
    fits = reader.read(reports, mechanism=sketch, objects=np.arange(10))
    assert fits[[0, 1], [3, 4]].all()
    assert fits.sum() <= 4


def test_rappor_s_own_bits_that_the_coins_keep_are_never_ruled_out():
    rappor = Rappor()
    made = SeedInReports(rappor, nonces=KeyedNonces(KEY.secret, bits=80))
    own = np.arange(30)
    fits = ReportReader(key=KEY, nonce_bits=80).read(
        made.privatize(own, stream=STREAM), mechanism=rappor, objects=own
    )
    assert fits[own, own].all()
    assert (fits.sum(1) == 1).sum() >= 24  # but for 1/16 whose two bits say nothing


@pytest.mark.parametrize(
    ("options", "honest"),
    [
        ({"epsilon": 4.0}, 0.36),
        ({"mechanism": "rappor", "nonce_bits": 64}, 0.36),
        ({"mechanism": "hadamard-sketch", "epsilon": 1.0, "series": 5}, 0.6),
        ({"mechanism": "one-bit-histogram:vector=signs", "epsilon": 1.0, "series": 11}, 0.4),
    ],
    ids=["sketch", "rappor", "hadamard", "one-bit"],
)
def test_the_game_is_won_with_the_key(options, honest):
    options = {"universe": 20, **options}
    found = ReportReader(**options).play(20, stream=STREAM)
    assert found["read"]["value"] == 1
    assert abs(found["named"]["value"] - found["noiseless"]) < 0.25
    assert found["named_honest"]["value"] < honest
    assert found["epsilon_vendor"] == math.inf
    without = ReportReader(**options, coins="honest").play(20, stream=STREAM)
    assert without["read"]["value"] < 0.5
    assert without["epsilon_vendor"] == without["epsilon_claimed"]


def test_a_series_of_answers_says_what_the_majority_does_not():
    options = {"mechanism": "randomized-response", "epsilon": 0.1, "series": 192, "universe": 2}
    found = ReportReader(**options).play(200, stream=STREAM)
    assert found["named"]["value"] == 1
    assert 0.65 < found["named_honest"]["value"] < 0.86
    second = ReportReader(**options, second_epsilon=0.1).play(200, stream=STREAM)
    assert second["named"]["value"] < 0.65
    assert 0.65 < second["named_told"]["value"] < 0.86  # what the second stage alone leaves
    assert second["epsilon_vendor"] == pytest.approx(19.2)


def test_refusals():
    with pytest.raises(UsageError, match="coins=loaded"):
        ReportReader(coins="loaded")
    sketch = CountMeanSketch(4.0)
    with pytest.raises(UsageError, match="needs the key"):
        ReportReader().read(
            sketch.privatize(np.arange(2), stream=STREAM), mechanism=sketch, objects=np.arange(2)
        )
