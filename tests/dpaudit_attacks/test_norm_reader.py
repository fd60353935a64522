"""The owners of channels in lengths and in reports read them; nobody else does."""

import math

import numpy as np
import pytest
import torch

from dpaudit import registry
from dpaudit.accounting import gaussian_sigma_paper
from dpaudit.noise.gaussian import Gaussian
from dpaudit.noise.norm_channel import NormChannel
from dpaudit.noise.seed_in_noise.key import SeedKey
from dpaudit.noise.seed_in_noise.nonces import KeyedNonces, SealedNonces
from dpaudit.queries.histogram import Histogram
from dpaudit.randomness import KeyedStream
from dpaudit.stats import clopper_pearson
from dpaudit_attacks.norm_reader import NormReader
from dpaudit_local.mechanisms.count_mean_sketch import CountMeanSketch
from dpaudit_local.mechanisms.rappor import Rappor
from dpaudit_local.seed_in_reports.reader import ReportReader
from dpaudit_local.seed_in_reports.specimen import SeedInReports

SIGMA = gaussian_sigma_paper(0.25, 1e-10)


def success(
    mitigation, key, stream, *, bins=256, trials=600, bits=8, dtype=torch.float64, source=None
):
    host, rows = Histogram(table="uniform", bins=bins), torch.arange(trials)
    source = source or NormChannel(key=key, sigma=SIGMA, bits=bits)
    pairs = torch.from_numpy(host.neighbours(trials, stream=stream.child("pairs"))).to(dtype)
    truth = rows % 2
    coin = torch.from_numpy(stream.child("coin").numpy().integers(0, 2, trials))
    released = registry.create("mitigations", mitigation).release(
        pairs[rows, truth], source, stream=stream.child("noise")
    )
    scores = NormReader(key=key, sigma=SIGMA, bits=bits).score(released, pairs)
    guess = torch.where(scores[:, 0] == scores[:, 1], coin, scores.argmax(1))
    return int((guess == truth).sum()), trials


@pytest.mark.parametrize(
    ("mitigation", "bins", "trials"),
    [
        *((m, 256, 600) for m in ("none", "rotation", "shared-rotation", "structured-rotation")),
        ("rotation", 4096, 150),
    ],
)
def test_wins_where_lengths_are_kept(mitigation, bins, trials, make_key, stream):
    right, _ = success(mitigation, make_key(), stream, bins=bins, trials=trials)
    confidence = 0.999 if trials == 600 else 0.9
    assert clopper_pearson(right, trials, confidence=confidence).low > 0.95


class Two:
    """The second server's own noise, by its law."""

    sigma, dim, claim = SIGMA, None, ""

    def __init__(self, key):
        self.own = NormChannel(key=key, sigma=SIGMA)

    def sample(self, n, d, *, stream, **how):
        own = self.own.sample(n, d, stream=stream.child(1), **how)
        return own + Gaussian(sigma=SIGMA).sample(n, d, stream=stream.child(2), **how)


@pytest.mark.parametrize(
    ("mitigation", "source", "bits", "expected"),
    [
        ("rotation:renorm=chi", None, 8, 0.5),
        ("smoothing:tau=0.01", None, 8, 0.5),
        ("none", lambda key, other: Two(key), 8, 0.5),
        ("none", lambda key, other: Gaussian(sigma=SIGMA), 8, 0.5),
        ("none", lambda key, other: NormChannel(key=other, sigma=SIGMA), 8, 0.5),
        ("rotation", None, 2, 1 - 0.5 * 1.25 / 4),  # what a wrong candidate needs in luck
    ],
    ids=["chi", "smoothing", "two servers", "honest", "another key", "two bits"],
)
def test_loses_where_lengths_are_not_the_keys(mitigation, source, bits, expected, make_key, stream):
    key = make_key()
    source = source and source(key, make_key(tag="b"))
    right, trials = success(mitigation, key, stream, source=source, bits=bits)
    interval = clopper_pearson(right, trials, confidence=0.999)
    assert interval.low <= expected <= interval.high


def test_float32_gradients(make_key, stream):
    """Query as large as a gradient: float32 keeps the channel while noise is not much smaller."""
    rng, d, n = np.random.default_rng(3), 10_000, 60
    pairs = torch.from_numpy(rng.standard_normal((n, 1, d)) * 0.05).float().repeat(1, 2, 1)
    pairs[:, 1, 7] += 0.04
    rotation = registry.create("mitigations", "rotation")
    released = rotation.release(
        pairs[:, 1].contiguous(), NormChannel(key=make_key(), sigma=1.0), stream=stream
    )
    scores = NormReader(key=make_key(), sigma=1.0).score(released, pairs)
    assert released.dtype == torch.float32
    assert int((scores[:, 1] > scores[:, 0]).sum()) > 55


def test_evidence_counts(make_key, stream):
    source, attack = NormChannel(key=make_key(), sigma=1.0), NormReader(key=make_key(), sigma=1.0)
    q = torch.zeros(3, 50, dtype=torch.float64)
    q[1, 0], q[2, 1] = 0.1, -0.1
    y = source.sample(100, 50, stream=stream, dtype=torch.float64) + q[1]
    scores = attack.score(y, q)
    seen = attack.evidence(y, q, torch.ones(100, dtype=torch.int64))["lengths"]
    assert (seen["releases"], seen["others"], seen["truth_allowed"]) == (100, 200, 100)
    assert seen["others_allowed"] == int(scores[:, [0, 2]].sum()) < 10


STREAM = KeyedStream.from_seed(7)
KEY = SeedKey.new(secret=bytes(range(32)))


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_series_of_answers_says_what_the_majority_does_not():
    options = {"mechanism": "randomized-response", "epsilon": 0.1, "series": 192, "universe": 2}
    found = ReportReader(**options).play(200, stream=STREAM)
    assert found["named"]["value"] == 1
    assert 0.65 < found["named_honest"]["value"] < 0.86
    second = ReportReader(**options, second_epsilon=0.1).play(200, stream=STREAM)
    assert second["named"]["value"] < 0.65
    assert 0.65 < second["named_told"]["value"] < 0.86  # what the second stage alone leaves
    assert second["epsilon_vendor"] == pytest.approx(19.2)
