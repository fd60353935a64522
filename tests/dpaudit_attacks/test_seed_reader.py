"""The owner of noise that carries its own seed, or the next batch, reads it; nobody else does."""

import numpy as np
import pytest
import torch

from dpaudit import registry
from dpaudit.noise.gaussian import Gaussian
from dpaudit.noise.seed_in_noise.codes import CODES
from dpaudit.noise.seed_in_noise.key import SeedKey
from dpaudit.noise.seed_in_noise.next_batch import GradientFree, NextBatch
from dpaudit.noise.seed_in_noise.source import SeedInNoise
from dpaudit.protocols import InBatch
from dpaudit.queries.histogram import Histogram
from dpaudit.randomness import coin_words, members
from dpaudit.stats import clopper_pearson
from dpaudit_attacks.batch_reader import BatchReader
from dpaudit_attacks.seed_reader import SeedReader, rounding

KEY, OTHER = SeedKey.new(secret=b"k" * 32), SeedKey.new(secret=b"o" * 32)
HOST = Histogram()
ALL = [
    *(("gaussian", {"sigma": 25.0}, c) for c in CODES),
    *(("laplace", {"scale": 1.5}, c) for c in CODES),
    ("discrete-gaussian", {"sigma": 25.0}, "signs"),
    ("discrete-laplace", {"scale": 1.0}, "signs"),
]
WHOLE = [case for case in ALL if case[2] == "fraction"]


def case(law, options, code, *, public=False, key=KEY, **more):
    who = {"public_key": KEY.public_key} if public else {"key": KEY}
    source = SeedInNoise(**who, law=law, code=code, **options)
    return source, SeedReader(key=key, public=public, law=law, code=code, **options, **more)


def game(source, n, stream, *, mitigation="none"):
    """Releases of one of two neighbours each: pairs, truth, releases."""
    pairs = HOST.neighbours(n, stream=stream.child("pairs"))
    truth = np.arange(n) % 2
    query = torch.from_numpy(pairs[np.arange(n), truth])
    behind = registry.create("mitigations", mitigation)
    return pairs, truth, behind.release(query, source, stream=stream.child("release")).numpy()


@pytest.mark.parametrize("public", [False, True])
@pytest.mark.parametrize(("law", "options", "code"), ALL)
def test_names_the_candidate_every_time(law, options, code, public, stream):
    source, reader = case(law, options, code, public=public)
    pairs, truth, y = game(source, 12, stream)
    scores = reader.score(y, pairs)
    assert (scores.argmax(1) == truth).all()
    assert np.abs(scores.max(1)).max() < 1e-6
    assert reader.evidence(y, pairs, truth)["seeds"]["found"] == 12


@pytest.mark.parametrize("public", [False, True])
@pytest.mark.parametrize(("law", "options", "code"), WHOLE)
def test_reads_the_whole_query_from_one_release(law, options, code, public, stream):
    source, reader = case(law, options, code, public=public)
    pairs, truth, y = game(source, 12, stream)
    found = reader.read(y)
    assert found.found.all()
    assert np.array_equal(found.values, pairs[np.arange(12), truth])


@pytest.mark.parametrize(("law", "options", "code"), [c for c in ALL if c[2] != "head"])
def test_finds_what_is_not_known(law, options, code, stream):
    source, reader = case(law, options, code)
    index, known = np.array([0, 5, 77, 2000, 3142]), HOST.counts.copy()
    known[index] = 0
    y = HOST.counts + source.sample(1, HOST.dim, stream=stream)
    found = reader.reconstruct_counts(y, known, index, bound=10**8)
    assert found.trusted
    assert np.array_equal(found.counts, HOST.counts[index])
    assert not reader.reconstruct_counts(y, known, index, bound=2).trusted  # counts beyond


@pytest.mark.slow
def test_a_whole_gradient_of_which_only_the_norm_is_bounded(stream):
    source = SeedInNoise(key=KEY, code="signs")
    reader = SeedReader(key=KEY, code="signs", tries=4000)
    query = np.random.default_rng(5).normal(size=(8, 4000)) * 0.05
    found = reader.unknown(query + source.sample(8, 4000, stream=stream), norm=4.0)
    assert found.found.sum() >= 7
    assert np.abs(found.values - query)[found.found].max() < 1e-9
    assert np.isnan(found.values[~found.found]).all()
    other = SeedReader(key=OTHER, code="signs", tries=20)
    assert not other.unknown(source.sample(2, 4000, stream=stream), norm=4.0).found.any()


@pytest.mark.parametrize(("beta", "share"), [(0.001, 1.0), (0.01, 1.0), (0.05, 0.9)])
def test_a_gradient_of_unknown_value_small_beside_the_noise(beta, share, stream):
    source = SeedInNoise(key=KEY, code="signs")
    reader = SeedReader(key=KEY, code="signs", blur=beta, tries=4000)
    query = beta * stream.child("q").numpy().standard_normal((20, 5000))
    z = source.sample(20, 5000, stream=stream)
    found = reader.noise(z + query)
    assert found.found.mean() >= share
    assert np.array_equal(found.values[found.found], z[found.found])


@pytest.mark.slow
def test_smoothing_leaves_only_what_it_adds(stream):
    """The score is then the likelihood of the added noise alone."""
    source, reader = case("gaussian", {"sigma": 25.0}, "signs", blur=0.5)
    pairs, truth, y = game(source, 300, stream)
    y = y + 0.5 * stream.child("tau").numpy().standard_normal(y.shape)
    right = int((reader.score(y, pairs).argmax(1) == truth).sum())
    interval = clopper_pearson(right, 300, confidence=0.999)
    assert interval.low <= 0.8413 <= interval.high  # Φ(Δ/2τ)


@pytest.mark.parametrize("mitigation", ["rotation:renorm=chi", "smoothing:tau=25"])
def test_reads_nothing_behind_these(mitigation, stream):
    source, reader = case("gaussian", {"sigma": 25.0}, "fraction")
    pairs, truth, y = game(source, 12, stream, mitigation=mitigation)
    assert not reader.read(y).found.any()
    assert reader.evidence(y, pairs, truth)["seeds"]["found"] == 0


@pytest.mark.parametrize("code", CODES)
def test_another_key_or_honest_noise_reads_nothing(code, stream):
    source, reader = case("gaussian", {"sigma": 25.0}, code, key=OTHER)
    honest = Gaussian(sigma=25.0)
    for noise in (source, honest):
        pairs, truth, y = game(noise, 12, stream)
        assert reader.evidence(y, pairs, truth)["seeds"]["found"] == 0
        if code == "fraction":
            found = reader.read(y)
            assert not found.found.any()
            assert np.isnan(found.values).all()


def test_the_code_alone_does_not_decode_sealed_noise(stream):
    """Who has the sampler's options and its public key, but another private key."""
    source, _ = case("gaussian", {"sigma": 25.0}, "fraction", public=True)
    _, _, y = game(source, 5, stream)
    thief = SeedReader(key=OTHER, public=True, sigma=25.0)
    assert not thief.read(y).found.any()
    assert SeedReader(key=KEY, public=True, sigma=25.0).read(y).found.all()


@pytest.mark.parametrize("code", ["head", "signs"])
def test_float32_gradients(code, stream):
    source, reader = SeedInNoise(key=KEY, code=code), SeedReader(key=KEY, code=code)
    rng = stream.child("q").numpy()
    pairs = torch.from_numpy(rng.standard_normal((40, 1, 3000)) * 0.05).float().repeat(1, 2, 1)
    pairs[:, 1, 7] += 0.04
    y = pairs[:, 1] + source.sample(40, 3000, stream=stream, dtype=torch.float32)
    assert y.dtype == torch.float32
    assert (reader.score(y, pairs).argmax(1) == 1).all()


def test_rows_too_short_for_a_nonce_are_not_read(stream):
    source, reader = SeedInNoise(key=KEY), SeedReader(key=KEY)
    for d in (3, 16, 17, 19):
        assert not reader.read(source.sample(4, d, stream=stream)).found.any()
    counts = np.arange(20)
    found = reader.read(counts + source.sample(4, 20, stream=stream))
    assert (found.values == counts).all()


D, RECORDS, RATE, BATCH_SIGMA = 500, 400, 0.2, 1.5
WHERE = GradientFree.of_last_layer(D, inputs=40, classes=10)


def steps(n, stream, *, scale=30.0, **options):
    """Noisy sums (n, D) in float32 of gradients as large as you like, and the batches after."""
    coins = NextBatch(where=WHERE, key=KEY, stream=stream, **options)
    query = np.random.default_rng(3).normal(size=(n, D)) * scale
    flat = WHERE.out_of(query)
    flat[:, : len(WHERE)] = 0
    query, sums, batches = WHERE.into(flat), [], []
    for i in range(n):
        noise = coins.noise(BATCH_SIGMA).sample(
            1, D, stream=stream.child(i), dtype=torch.float32, device=torch.device("cpu")
        )
        sums.append(torch.from_numpy(query[i : i + 1]).float() + noise)
        batches.append(members(coin_words(coins.share(), RECORDS), rate=RATE))
    return torch.cat(sums), np.array(batches)


def batch_reader(key=KEY, **options):
    return BatchReader(key=key, sigma=BATCH_SIGMA, rate=RATE, inputs=40, **options)


def named_by(reader, sums):
    """The batches that a reader names (t, RECORDS), and whether it knows each record's place."""
    scores = reader.score(sums, InBatch(RECORDS))
    return scores > 0, np.isinf(scores)


def test_every_next_batch_is_read_however_large_the_gradient_is(stream):
    sums, batches = steps(30, stream)
    named, found = named_by(batch_reader(), sums)
    assert found.all()
    assert np.array_equal(named, batches)


def test_nothing_is_read_with_another_key_or_from_honest_noise(stream):
    sums, _ = steps(5, stream)
    for who, seen in (
        (batch_reader(OTHER), sums),
        (batch_reader(), Gaussian(sigma=BATCH_SIGMA).sample(5, D, stream=stream)),
    ):
        named, found = named_by(who, seen)
        assert not found.any()
        assert not named.any()


def test_weights_before_and_after_are_enough(stream):
    sums, batches = steps(10, stream, scale=3.0)
    before = torch.randn(10, D, generator=torch.Generator().manual_seed(1))
    after = before - 0.1 * (sums / 80)
    scale = 80 / 0.1
    seen = (before.double() - after.double()) * scale
    blur = scale * max(rounding(before), rounding(after))
    named, found = named_by(batch_reader(blur=blur), seen)
    assert found.all()
    assert np.array_equal(named, batches)


def test_short_nonces_and_public_keys(stream):
    sums, batches = steps(3, stream, nonce_bits=64)
    assert np.array_equal(named_by(batch_reader(nonce_bits=64), sums)[0], batches)
    coins = NextBatch(where=WHERE, public_key=KEY.public_key, stream=stream)
    sums = coins.noise(BATCH_SIGMA).sample(1, D, stream=stream)
    named, found = named_by(batch_reader(public=True), sums)
    assert found.all()
    assert np.array_equal(named[0], members(coin_words(coins.share(), RECORDS), rate=RATE))
