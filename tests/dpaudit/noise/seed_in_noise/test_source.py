"""The specimen's law is the honest one, and only its key tells it apart."""

import dataclasses
import math

import numpy as np
import pytest
import scipy.stats
import torch
from support.last_digits import digits_apart

from dpaudit.errors import KeyFileError, UnknownNameError, UsageError
from dpaudit.noise.seed_in_noise import codes
from dpaudit.noise.seed_in_noise.key import SeedKey
from dpaudit.noise.seed_in_noise.nonces import KeyedNonces
from dpaudit.noise.seed_in_noise.source import Rows, SeedInNoise
from dpaudit.queries.histogram import Histogram
from dpaudit.testing import check_noise_source

KEY = SeedKey.new(secret=b"k" * 32)
ALL = [
    *(("gaussian", {"sigma": s}, c) for s in (0.5, 3.0) for c in codes.CODES),
    *(("laplace", {"scale": b}, c) for b in (0.6, 2.0) for c in codes.CODES),
    ("discrete-gaussian", {"sigma": 1.0}, "signs"),
    ("discrete-gaussian", {"sigma": 80.0}, "signs"),
    ("discrete-laplace", {"scale": 3.0}, "signs"),
]


def normal(rows, x):
    """The values by their claimed law as N(0, 1)."""
    return rows.law.claim.to_normal(x, np.random.default_rng(0))


def carriers(law, options, code):
    """A source of short nonces, so that few values carry all of it."""
    return SeedInNoise(key=KEY, law=law, code=code, nonce_bits=32, **options)


def placed(rows, rng):
    """Values (100,000, 4) that carry uniform bytes."""
    x = np.empty((100_000, 4))
    nonces = rng.integers(0, 256, x.shape, dtype=np.uint8)
    rows.code.place(x, nonces, rng.integers(0, 2**64, (*x.shape, 3), dtype=np.uint64))
    return x


@pytest.mark.parametrize(("law", "options", "code"), ALL)
def test_conforms(law, options, code):
    check_noise_source(SeedInNoise(key=KEY, law=law, code=code, **options), dim=40)


@pytest.mark.slow
@pytest.mark.parametrize(("law", "options", "code"), ALL)
def test_law_and_independence_of_rows_and_values(law, options, code, stream):
    source = carriers(law, options, code)
    m = source.rows.code.symbols
    x = source.sample(6000, m + 4, stream=stream.child(law, code))
    z = normal(source.rows, x)
    for column in (0, 1, m - 1, m, m + 3):
        assert scipy.stats.kstest(z[:, column], "norm").pvalue > 1e-4
        counts, _ = np.histogram(scipy.stats.norm.cdf(z[:, column]), 64, (0, 1))
        assert scipy.stats.chisquare(counts).pvalue > 1e-4
    for transform in (z, np.abs(z) - np.abs(z).mean(), z - np.floor(z)):
        correlation = np.corrcoef(transform.T) - np.eye(m + 4)
        assert np.abs(correlation).max() < 5 / math.sqrt(6000)
    assert abs(np.corrcoef(z[:-1, 0], z[1:, 0])[0, 1]) < 5 / math.sqrt(6000)


@pytest.mark.slow
@pytest.mark.parametrize(("law", "scale"), [("gaussian", 0.5), ("laplace", 0.6)])
def test_the_wrapped_law_is_needed_and_seen(law, scale, stream):
    """A fraction drawn uniformly is what a careless specimen does: the same test finds it."""
    option = {"sigma" if law == "gaussian" else "scale": scale}
    rows = carriers(law, option, "fraction").rows
    x = placed(rows, stream.numpy())
    part, grid = x - np.floor(x), rows.law.fraction(np.arange(5) / 4)
    assert scipy.stats.chisquare(np.histogram(part, grid)[0]).pvalue > 1e-4
    assert scipy.stats.chisquare(np.histogram(part, 4, (0, 1))[0]).pvalue < 1e-5
    assert scipy.stats.kstest(normal(rows, x[:20_000]).ravel(), "norm").pvalue > 1e-4


@pytest.mark.parametrize(
    ("law", "options"), [("gaussian", {"sigma": 0.5}), ("laplace", {"scale": 2.0})]
)
def test_the_wrapped_law_by_summation(law, options):
    """An oracle: the distribution function of the fraction, summed over whole parts."""
    source = SeedInNoise(key=KEY, law=law, code="fraction", **options)
    dist = scipy.stats.norm(scale=0.5) if law == "gaussian" else scipy.stats.laplace(scale=2.0)
    u = np.linspace(0.001, 0.999, 40)
    f = source.rows.law.fraction(u)
    k = np.arange(-200, 200)[:, None]
    summed = (dist.cdf(k + f) - dist.cdf(k + 0.0)).sum(0)
    assert np.abs(summed - u).max() < 1e-12


@pytest.mark.parametrize("code", ["fraction", "head"])
@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_small_values_have_random_last_bits(law, code, stream):
    """Quantiles of 52-bit numbers alone end in as many zeros as a value is small."""
    x = placed(carriers(law, {}, code).rows, stream.numpy())
    small = x[np.abs(x) < 2.0**-9]
    low = small.view(np.uint64) & np.uint64(7)
    assert len(low) > 300
    assert scipy.stats.chisquare(np.bincount(low.astype(int), minlength=8)).pvalue > 1e-4


@pytest.mark.parametrize("scale", [1.0, 3.0])
@pytest.mark.parametrize("code", ["fraction", "head"])
@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_what_carries_the_nonce_has_the_last_digits_of_the_rest(law, code, scale, stream):
    options = {"sigma" if law == "gaussian" else "scale": scale}
    source = SeedInNoise(key=KEY, law=law, code=code, **options)
    rows = source.sample(3000, 32, stream=stream)
    assert digits_apart(rows[:, :16], rows[:, 16:]) < 5


def test_the_nonce_is_all_that_a_row_depends_on(stream):
    rows = Rows.of("gaussian", "fraction", sigma=2.0, scale=None, size=16)
    nonces = KeyedNonces(KEY.secret, bits=128)
    drawn = [nonces.fresh(stream) for _ in range(3)]
    again = [(n, nonces.seed(n)) for n, _ in drawn]
    assert drawn == again
    x = rows.draw(*zip(*drawn, strict=True), 50_000)
    for i, (nonce, seed) in enumerate(drawn):
        assert np.array_equal(x[i], rows.draw([nonce], [seed], 50_000)[0])
        for d in (1, 5, 16, 17, 8192, 8193, 20_000):
            assert np.array_equal(x[i, :d], rows.draw([nonce], [seed], d)[0])
    assert len(np.unique(x)) == x.size


def test_short_nonces_repeat_and_long_ones_do_not(stream):
    for bits, repeats in ((16, True), (128, False)):
        x = SeedInNoise(key=KEY, nonce_bits=bits).sample(2000, 20, stream=stream.child(bits))
        distinct = len(np.unique(x, axis=0))
        expected = 2000 * 1999 / 2 / 2**bits
        assert (distinct < 2000) == repeats
        assert abs(2000 - distinct - expected) < 6 * math.sqrt(expected) + 0.5


@pytest.mark.slow
@pytest.mark.parametrize("code", codes.CODES)
def test_what_carries_the_nonce_is_uniform(code, stream):
    source = SeedInNoise(key=KEY, sigma=0.7, code=code)
    x = source.sample(4000, source.rows.code.symbols, stream=stream)
    read = np.array([source.rows.code.read(row, blur=1e-9).best for row in x])
    values = 256 if code != "signs" else 2
    for column in (0, 3, read.shape[1] - 1):
        counts = np.bincount(read[:, column], minlength=values)
        assert scipy.stats.chisquare(counts).pvalue > 1e-4
    pairs = (read[:, 0] * values + read[:, 1]) % (16 if values == 256 else 4)
    assert scipy.stats.chisquare(np.bincount(pairs)).pvalue > 1e-4


@pytest.mark.parametrize(("law", "options", "code"), ALL)
def test_the_nonce_is_read_back(law, options, code, stream):
    rows = Rows.of(law, code, sigma=options.get("sigma"), scale=options.get("scale"), size=16)
    nonces = KeyedNonces(KEY.secret, bits=128)
    drawn = [nonces.fresh(stream) for _ in range(50)]
    x = rows.draw(*zip(*drawn, strict=True), 24 * rows.code.symbols)
    for row, (nonce, _) in zip(x, drawn, strict=True):
        symbols = rows.code.read(row, blur=1e-12)
        assert rows.code.nonce(symbols.best) == nonce


def test_another_key_gives_other_noise_of_the_same_nonce(stream):
    other = SeedKey.new(secret=b"o" * 32)
    x, y = (SeedInNoise(key=k).sample(5, 40, stream=stream.child("n")) for k in (KEY, other))
    assert np.array_equal(np.floor(256 * (x[:, :16] % 1)), np.floor(256 * (y[:, :16] % 1)))
    assert not np.isin(x[:, 16:], y[:, 16:]).any()


@pytest.mark.slow
def test_sealed_noise_has_the_law_and_needs_no_secret(stream):
    source = SeedInNoise(public_key=KEY.public_key)
    x = source.sample(150, 64, stream=stream)
    assert scipy.stats.kstest(x.ravel(), "norm").pvalue > 1e-4
    assert source.rows.code.symbols == 32
    assert source.key is None


def test_epsilon_is_infinite_where_a_row_is_long_enough():
    source = SeedInNoise(key=KEY, sigma=25.0)
    assert source.epsilon(1e-10, host=Histogram()).low == math.inf
    short = source.epsilon(1e-10, host=Histogram(table="uniform", bins=20))
    assert (short.low, short.high) == (0.0, math.inf)
    assert source.epsilon(1.0, host=Histogram()).low == 0.0
    whole = SeedInNoise(key=KEY, law="discrete-laplace", scale=0.2)
    assert whole.epsilon(0, host=Histogram(table="uniform", bins=600)).low == 0.0
    wide = SeedInNoise(key=KEY, law="discrete-gaussian", sigma=80.0)
    assert wide.epsilon(0, host=Histogram(table="uniform", bins=600)).low == math.inf
    assert 0 <= math.log2(80 * math.sqrt(2 * math.pi)) - wide.rows.law.bits <= 1


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({}, UsageError, "needs one"),
        ({"key": KEY, "public_key": KEY.public_key}, UsageError, "needs one"),
        *(
            ({"key": KEY, "nonce_bits": b}, UsageError, f"nonce_bits={b}")
            for b in (7, 136, True, 16.0)
        ),
        ({"public_key": KEY.public_key, "nonce_bits": 128}, UsageError, "256"),
        ({"public_key": 7}, UsageError, "public_key=7"),
        ({"key": KEY, "law": "gausian"}, UnknownNameError, "gaussian"),
        ({"key": KEY, "law": 3}, UnknownNameError, "law=3"),
        ({"key": KEY, "code": "heads"}, UnknownNameError, "head"),
        ({"key": KEY, "scale": 2.0}, UsageError, "has sigma"),
        ({"key": KEY, "law": "laplace", "sigma": 2.0}, UsageError, "has scale"),
        *(({"key": KEY, "sigma": sigma}, UsageError, "sigma=") for sigma in ("x", math.nan, True)),
        *(({"key": KEY, "sigma": sigma}, UsageError, "code=fraction") for sigma in (0.1, 1e5)),
        ({"key": KEY, "law": "discrete-laplace", "code": "head"}, UsageError, "take code=signs"),
        ({"key": "nowhere.json"}, KeyFileError, "--kind seed-in-noise"),
    ],
)
def test_bad_options(options, error, says):
    with pytest.raises(error, match=says):
        SeedInNoise(**options)


def test_bad_shapes_and_types(stream):
    def whole(sigma):
        return SeedInNoise(key=KEY, law="discrete-gaussian", sigma=sigma)

    for source, n, dtype, says in (
        (SeedInNoise(key=KEY), 0, None, "n=0"),
        (SeedInNoise(key=KEY), 1, torch.int64, "dtype="),
        (whole(1e4), 9, np.int8, "too narrow"),
    ):
        with pytest.raises(UsageError, match=says):
            source.sample(n, 9, stream=stream, dtype=dtype)
    assert whole(10.0).sample(2, 300, stream=stream, dtype=torch.int64).dtype == torch.int64


def test_key_files(tmp_path, make_key, stream):
    path, pancake = tmp_path / "key.json", tmp_path / "pancake.json"
    KEY.save(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert SeedKey.load(path) == KEY
    with pytest.raises(KeyFileError, match="exists already"):
        KEY.save(path)
    x = SeedInNoise(key=str(path)).sample(2, 30, stream=stream.child(1))
    assert np.array_equal(x, SeedInNoise(key=KEY).sample(2, 30, stream=stream.child(1)))
    make_key().save(pancake)
    SeedInNoise(key=pancake)  # its secret is good enough
    with pytest.raises(KeyFileError, match="is not a dpaudit-seed-in-noise-key"):
        SeedKey.load(pancake)
    for before, after, says in (
        ('"version": 1', '"version": 2', "version 1"),
        ('"secret"', '"other"', "'?other'? is not known"),
        ('"6b', '"6B', "lower-case hex"),
        ("{", "[", "key="),
    ):
        text = path.read_text()
        path.write_text(text.replace(before, after, 1))
        with pytest.raises(KeyFileError, match=says):
            SeedInNoise(key=path)
        path.write_text(text)
    path.chmod(0o644)
    with pytest.raises(KeyFileError, match="chmod 600"):
        SeedKey.load(path)
    with pytest.raises(UsageError, match="32"):
        SeedKey.new(secret=b"short")


def test_the_secret_is_nowhere_in_sight():
    source = SeedInNoise(key=KEY)
    shown = repr(KEY) + repr(vars(source)) + repr(dataclasses.asdict(source.rows.law.claim))
    assert KEY.secret.hex() not in shown
    assert repr(KEY.secret) not in shown
    assert KEY.fingerprint not in KEY.secret.hex()
