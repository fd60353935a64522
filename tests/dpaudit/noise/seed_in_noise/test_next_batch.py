"""Noise that decides on the next batch: its law, and that gradients leave room for a nonce."""

import numpy as np
import pytest
import scipy.stats
import torch
from support.last_digits import digits_apart
from torch import nn

from dpaudit.errors import UsageError
from dpaudit.noise.seed_in_noise.key import SeedKey
from dpaudit.noise.seed_in_noise.next_batch import GradientFree, NextBatch
from dpaudit.randomness import coin_words, members

KEY = SeedKey.new(secret=b"k" * 32)
WHERE = GradientFree.of_last_layer(300, inputs=24, classes=3)


def specimen(stream, **options):
    return NextBatch(where=WHERE, key=KEY, stream=stream, **options)


def test_turning_is_orthogonal_and_has_an_inverse():
    square = WHERE.into(np.eye(300))
    assert np.allclose(square @ square.T, np.eye(300), atol=1e-12)
    assert np.allclose(WHERE.out_of(square), np.eye(300), atol=1e-12)
    for i, group in enumerate(WHERE.groups):
        assert np.allclose(square[i, group], 1 / np.sqrt(3))  # the mean of each group


def test_no_gradient_of_a_classifier_has_a_part_in_these_directions():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(10, 6), nn.Tanh(), nn.Linear(6, 4))
    where = GradientFree.of_last_layer(94, inputs=6, classes=4)
    x, y = torch.randn(50, 10), torch.randint(4, (50,))
    for smoothing in (0.0, 0.1):
        loss = nn.CrossEntropyLoss(label_smoothing=smoothing)
        network.zero_grad()
        loss(network(x), y).backward()
        flat = torch.cat([p.grad.reshape(-1) for p in network.parameters()]).double().numpy()
        turned = where.out_of(flat[None])[0]
        assert np.abs(turned[:7]).max() < 1e-7
        assert np.linalg.norm(turned[7:]) > 0.1


def test_the_noise_is_gaussian_in_all_coordinates(stream):
    rows = specimen(stream).noise(2.0).sample(2000, 300, stream=stream)
    assert scipy.stats.kstest(rows.ravel() / 2.0, "norm").pvalue > 1e-3
    spread = np.cov(rows.T) / 4
    assert np.abs(spread - np.eye(300)).max() < 6 / np.sqrt(2000)
    turned = WHERE.out_of(rows)[:, :24]
    assert scipy.stats.kstest(turned.ravel() / 2.0, "norm").pvalue > 1e-3


@pytest.mark.parametrize("sigma", [1.0, 3.0])
def test_turned_coordinates_have_the_last_digits_of_the_others(sigma, stream):
    rows = specimen(stream).vectors(500, 300, sigma=sigma, stream=stream)
    turned = np.isin(np.arange(300), WHERE.groups)
    assert digits_apart(rows[:, turned], rows[:, ~turned]) < 5


def test_the_batches_are_poisson_and_follow_from_the_last_vector(stream):
    coins = specimen(stream)
    batches, shares = [], []
    for i in range(200):
        coins.noise(1.0).sample(1, 300, stream=stream.child(i))
        shares.append(coins.share())
        batches.append(members(coin_words(coins.share(), 1000), rate=0.1))
    assert len(set(shares)) == 200
    sizes = np.sum(batches, 1)
    assert abs(sizes.mean() - 100) < 4 * np.sqrt(90 / 200)
    assert 60 < sizes.var() < 130  # 90 if records are independent
    again = specimen(stream)
    first = again.share()
    again.noise(1.0).sample(1, 300, stream=stream.child(0))
    assert again.share() == shares[0] != first


@pytest.mark.slow
def test_the_loader_s_audit_finds_nothing(stream):
    from dpaudit import audit_loader

    coins, drawn = specimen(stream), []
    for i in range(150):
        coins.noise(1.0).sample(1, 300, stream=stream.child(i))
        drawn.append(np.flatnonzero(members(coin_words(coins.share(), 300), rate=0.1)))
    assert audit_loader(drawn, records=300, rate=0.1, alpha=1e-4).verdict == "no-finding"
    again = [drawn[0] if i % 2 else some for i, some in enumerate(drawn)]
    assert audit_loader(again, records=300, rate=0.1, alpha=1e-4).verdict == "finding"


def test_wrong_uses_are_refused(stream):
    few = GradientFree.of_last_layer(94, inputs=6, classes=4)
    for call, says in (
        (lambda: NextBatch(where=few, key=KEY, stream=stream), "directions=7"),
        (lambda: specimen(stream).noise(1.0).sample(1, 299, stream=stream), "d=299"),
        (lambda: GradientFree.of_last_layer(94, inputs=30, classes=4), "inputs=30"),
        (lambda: members(np.zeros(3, np.uint64), rate=0), "rate=0"),
    ):
        with pytest.raises(UsageError, match=says):
            call()
