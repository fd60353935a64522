"""The norm channel's owner wins against a rotation, and not against what moves lengths."""

import numpy as np
import pytest
import torch

from dpaudit import registry
from dpaudit.accounting import gaussian_sigma_paper
from dpaudit.errors import UsageError
from dpaudit.hosts.histogram import Histogram
from dpaudit.noise.gaussian import Gaussian
from dpaudit.noise.norm_channel import NormChannel
from dpaudit.stats import clopper_pearson
from dpaudit.testing import check_attack
from dpaudit_attacks.norm_reader import NormReader

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


WINS = ["none", "rotation", "shared-rotation", "structured-rotation"]


@pytest.mark.parametrize("mitigation", WINS)
def test_wins_where_lengths_are_kept(mitigation, make_key, stream):
    right, trials = success(mitigation, make_key(), stream)
    assert clopper_pearson(right, trials, confidence=0.999).low > 0.95


@pytest.mark.parametrize(("bins", "trials"), [(4096, 150)])
@pytest.mark.parametrize("mitigation", ["none", "rotation"])
def test_wins_in_larger_hosts(mitigation, bins, trials, make_key, stream):
    right, _ = success(mitigation, make_key(), stream, bins=bins, trials=trials)
    assert clopper_pearson(right, trials, confidence=0.9).low > 0.95


@pytest.mark.parametrize("mitigation", ["rotation:renorm=chi", "smoothing:tau=0.01"])
def test_loses_where_lengths_are_redrawn_or_blurred(mitigation, make_key, stream):
    right, trials = success(mitigation, make_key(), stream)
    interval = clopper_pearson(right, trials, confidence=0.999)
    assert interval.low <= 0.5 <= interval.high


def test_loses_against_a_second_server_and_honest_noise(make_key, stream):
    """The second server's own noise, by its law."""

    class Two:
        sigma, dim, claim = SIGMA, None, ""

        def sample(self, n, d, *, stream, **how):
            own = NormChannel(key=make_key(), sigma=SIGMA).sample(
                n, d, stream=stream.child(1), **how
            )
            return own + Gaussian(sigma=SIGMA).sample(n, d, stream=stream.child(2), **how)

    for source in (Two(), Gaussian(sigma=SIGMA)):
        right, trials = success("none", make_key(), stream, source=source)
        interval = clopper_pearson(right, trials, confidence=0.999)
        assert interval.low <= 0.5 <= interval.high


def test_the_bits_are_what_a_wrong_candidate_needs_in_luck(make_key, stream):
    right, trials = success("rotation", make_key(), stream, bits=2)
    interval = clopper_pearson(right, trials, confidence=0.999)
    assert interval.low <= 1 - 0.5 * 1.25 / 4 <= interval.high


def test_another_key_reads_nothing(make_key, stream):
    source = NormChannel(key=make_key(), sigma=SIGMA)
    right, trials = success("none", make_key(tag="b"), stream, source=source)
    interval = clopper_pearson(right, trials, confidence=0.999)
    assert interval.low <= 0.5 <= interval.high


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


def test_conforms(make_key):
    check_attack(NormReader(key=make_key(), sigma=1.0, bits=1), dim=64)


def test_evidence_counts(make_key, stream):
    source, attack = NormChannel(key=make_key(), sigma=1.0), NormReader(key=make_key(), sigma=1.0)
    q = torch.zeros(3, 50, dtype=torch.float64)
    q[1, 0], q[2, 1] = 0.1, -0.1
    y = source.sample(100, 50, stream=stream, dtype=torch.float64) + q[1]
    scores = attack.score(y, q)
    seen = attack.evidence(y, q, torch.ones(100, dtype=torch.int64))["lengths"]
    assert (seen["releases"], seen["others"], seen["truth_allowed"]) == (100, 200, 100)
    assert seen["others_allowed"] == int(scores[:, [0, 2]].sum()) < 10


def test_bad_input(make_key):
    attack, y = NormReader(key=make_key(), sigma=1.0), torch.zeros(4, 3)
    for releases, candidates, says in (
        (y[0], torch.zeros(2, 3), "releases of shape"),
        (y, torch.zeros(2, 5), "candidates of shape"),
        (y, torch.zeros(3, 2, 3), "candidates for 3 releases"),
        (y, torch.full((2, 3), torch.nan), "NaN"),
    ):
        with pytest.raises(UsageError, match=says):
            attack.score(releases, candidates)
    with pytest.raises(UsageError, match="bits=30"):
        NormReader(key=make_key(), sigma=1.0, bits=30)
