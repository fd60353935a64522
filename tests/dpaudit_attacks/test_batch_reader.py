"""The next batch is read from a noisy sum of gradients, or from the weights around it."""

import numpy as np
import torch

from dpaudit.interfaces import BatchAttack
from dpaudit.noise.gaussian import Gaussian
from dpaudit.noise.seed_in_noise.gradient_free import GradientFree
from dpaudit.noise.seed_in_noise.key import SeedKey
from dpaudit.noise.seed_in_noise.next_batch import NextBatch
from dpaudit.vectors.batch_coins import coin_words, members
from dpaudit_attacks.batch_reader import BatchReader, noisy_sums

KEY, OTHER = SeedKey.new(secret=b"k" * 32), SeedKey.new(secret=b"o" * 32)
D, RECORDS, RATE, SIGMA = 500, 400, 0.2, 1.5
WHERE = GradientFree.of_last_layer(D, inputs=40, classes=10)


def steps(n, stream, *, scale=30.0, **options):
    """Noisy sums (n, D) in float32 of gradients as large as you like, and the batches after."""
    coins = NextBatch(where=WHERE, key=KEY, stream=stream, **options)
    query = np.random.default_rng(3).normal(size=(n, D)) * scale
    flat = WHERE.out_of(query)
    flat[:, : len(WHERE)] = 0
    query, sums, batches = WHERE.into(flat), [], []
    for i in range(n):
        noise = coins.noise(SIGMA).sample(
            1, D, stream=stream.child(i), dtype=torch.float32, device=torch.device("cpu")
        )
        sums.append(torch.from_numpy(query[i : i + 1]).float() + noise)
        batches.append(members(coin_words(coins.share(), RECORDS), rate=RATE))
    return torch.cat(sums), np.array(batches)


def reader(key=KEY, **options):
    return BatchReader(key=key, sigma=SIGMA, rate=RATE, inputs=40, **options)


def test_every_next_batch_is_read_however_large_the_gradient_is(stream):
    sums, batches = steps(30, stream)
    assert isinstance(reader(), BatchAttack)
    named, found = reader().next_batches(sums, records=RECORDS)
    assert found.all()
    assert np.array_equal(named, batches)


def test_nothing_is_read_with_another_key_or_from_honest_noise(stream):
    sums, _ = steps(5, stream)
    for who, seen in (
        (reader(OTHER), sums),
        (reader(), Gaussian(sigma=SIGMA).sample(5, D, stream=stream)),
    ):
        named, found = who.next_batches(seen, records=RECORDS)
        assert not found.any()
        assert not named.any()


def test_weights_before_and_after_are_enough(stream):
    sums, batches = steps(10, stream, scale=3.0)
    before = torch.randn(10, D, generator=torch.Generator().manual_seed(1))
    after = before - 0.1 * (sums / 80)
    seen, blur = noisy_sums(before, after, lr=0.1, divisor=80)
    named, found = reader().next_batches(seen, records=RECORDS, blur=blur)
    assert found.all()
    assert np.array_equal(named, batches)


def test_short_nonces_and_public_keys(stream):
    sums, batches = steps(3, stream, nonce_bits=64)
    assert np.array_equal(reader(nonce_bits=64).next_batches(sums, records=RECORDS)[0], batches)
    coins = NextBatch(where=WHERE, public_key=KEY.public_key, stream=stream)
    sums = coins.noise(SIGMA).sample(1, D, stream=stream)
    named, found = reader(public=True).next_batches(sums, records=RECORDS)
    assert found.all()
    assert np.array_equal(named[0], members(coin_words(coins.share(), RECORDS), rate=RATE))
