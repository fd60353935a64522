"""The zoo: specimens are what they say; the audit finds the gross ones and no honest one."""

import importlib
import math
from collections.abc import Mapping

import numpy as np
import pytest
import scipy

from dpaudit import registry
from dpaudit.audit import AuditOptions, run_audit
from dpaudit.claims import Claim
from dpaudit.errors import SamplerCrashError, SamplerOutputError, SpecError, UnknownNameError
from dpaudit.experiments import Store, load_spec, make_document, run_experiment
from dpaudit.interfaces import RepeatableSampler, ValueSampler
from dpaudit.randomness import KeyedStream
from dpaudit.studies import zoo
from dpaudit.studies.zoo import (
    HONEST,
    SPECIMENS,
    InProcessSampler,
    calibration,
    honest,
    peers,
    specimen,
    specimen_sampler,
)
from dpaudit.studies.zoo import measure as zoo_measure
from dpaudit.studies.zoo.generators import _Congruential, _Xorshift32
from dpaudit.studies.zoo.honest import RECOVERABLE
from dpaudit.studies.zoo.specimen import Specimen, each
from dpaudit.testing import check_closed_sampler

ROOT = KeyedStream.from_seed("tests of the zoo")


def opened(name, label=0):
    return specimen_sampler(SPECIMENS[name], stream=ROOT.child(name, label))


def values(name, n, d=None, *, label=0):
    with opened(name, label) as sampler:
        return sampler.draw(n, d or SPECIMENS[name].dim or 8, timeout=60)


def quick_tests():
    """All tests but those that go on searching for a time of their own."""
    return [name for name in registry.plugins("tests") if name != "keyless-search"]


@pytest.mark.parametrize("name", SPECIMENS)
def test_every_specimen_is_reproducible_and_serves_its_shapes(name):
    one = SPECIMENS[name]
    shapes = [(1, one.dim or 1), (2, one.dim or 5), (40, one.dim or 8), (3, one.dim or 100)]
    drawn = []
    for label in ("a", "a", "b"):
        with opened(name, label) as sampler:
            drawn.append([sampler.draw(n, d, timeout=60) for n, d in shapes])
            assert [x.shape for x in drawn[-1]] == shapes
    for x, y, z in zip(*drawn, strict=True):
        assert np.array_equal(x, y)
        assert np.array_equal(x, z) == (name == "fixed-seed") or x.size == 1
    spread = (
        np.std(np.concatenate([x.ravel() for x in drawn[0]]))
        / Claim.parse(one.claim).standard_deviation
    )
    assert 0.5 < spread < 2


def test_the_zoo_is_labelled():
    assert len(SPECIMENS) >= 60
    for name, one in SPECIMENS.items():
        assert one.name == name
        assert one.says
        assert (one.expected == "found") == (one.why == ""), name
        Claim.parse(one.claim)
    assert len({one.says for one in SPECIMENS.values()}) == len(SPECIMENS)
    assert sum(len(family.SPECIMENS) for family in zoo._FAMILIES) == len(SPECIMENS)
    with pytest.raises(UnknownNameError, match="did you mean 'cut-at-5'"):
        specimen("cut-at5")


def test_the_experiments_name_all_of_them():
    assert {cell.settings["grid"]["specimen"] for cell in load_spec("zoo").cells()} == set(
        SPECIMENS
    )
    cells = load_spec("calibrate").cells()
    assert {cell.settings["grid"]["sampler"] for cell in cells} == set(HONEST)
    assert sum(cell.settings["trials"] for cell in cells) >= 2000


def test_in_process_sampler_conforms():
    check_closed_sampler(opened("t30"))
    check_closed_sampler(opened("pancake-d16"))
    sampler = opened("wider-above-0")
    assert isinstance(sampler, RepeatableSampler)
    assert isinstance(sampler, ValueSampler)
    assert sampler.takes_value
    assert not opened("t30").takes_value


def test_in_process_sampler_refuses():
    sampler = InProcessSampler(each(lambda _, z: z * np.nan), name="broken", stream=ROOT)
    with pytest.raises(SamplerCrashError, match="with block"):
        sampler.draw(1, 1, timeout=1)
    with sampler, pytest.raises(SamplerOutputError, match="not finite"):
        sampler.draw(2, 3, timeout=1)
    with opened("sphere") as fixed, pytest.raises(SamplerCrashError, match="d=5"):
        fixed.draw(2, 5, timeout=1)


def test_calls_are_those_of_single_draws_and_other_processes_differ():
    with (
        opened("seed-every-256") as one,
        opened("seed-every-256") as two,
        two.again() as other,
        two.again() as third,
    ):
        many, seconds = one.draw_calls(300, 2, 3, timeout=60)
        singles = np.concatenate([two.draw(2, 3, timeout=60) for _ in range(300)])
        assert np.array_equal(many, singles)
        assert seconds.shape == (300,)
        assert (seconds > 0).all()
        assert np.array_equal(many[:88], many[512:600])
        a, b = other.draw(2, 3, timeout=60), third.draw(2, 3, timeout=60)
        assert not np.array_equal(a, b)
        assert not np.array_equal(a, many[:2])
    with opened("fixed-seed") as one, one.again() as two:
        assert np.array_equal(one.draw(2, 3, timeout=60), two.draw(2, 3, timeout=60))


def correlation(x, y):
    return float(np.corrcoef(np.ravel(x), np.ravel(y))[0, 1])


def lag(z, k):
    flat = z.ravel()
    return correlation(flat[:-k], flat[k:])


# name → (rows, what must hold of them); bounds are about six standard errors from honest values
FLAWS = {
    "sigma-plus-0.3pc": (250_000, lambda z: 1.0005 < z.std() < 1.0055),
    "mean-0.003": (500_000, lambda z: 0.0 < z.mean() < 0.006),
    "sign-bias-0.002": (250_000, lambda z: 0.5002 < (z > 0).mean() < 0.5038),
    "halves-1pc": (
        100_000,
        lambda z: z[z > 0].std() / z[z < 0].std() < 0.986 and abs(z.std() - 1) < 0.005,
    ),
    "t30": (100_000, lambda z: abs(z.var() - 30 / 28) < 0.015),
    "t30-unit": (
        100_000,
        lambda z: abs(z.var() - 1) < 0.01 and scipy.stats.kurtosis(z, None) > 0.12,
    ),
    "skew-0.01": (
        500_000,
        lambda z: 0.003 < scipy.stats.skew(z, None) < 0.017 and abs(z.std() - 1) < 0.003,
    ),
    "mixture-6pc": (500_000, lambda z: 0.003 < scipy.stats.kurtosis(z, None) < 0.02),
    "uniform-sum-12": (
        50_000,
        lambda z: -0.13 < scipy.stats.kurtosis(z, None) < -0.07 and np.abs(z).max() < 6,
    ),
    "hole-below-zero": (50_000, lambda z: not ((z > -1e-3) & (z < 0)).any()),
    "gap-at-0.5": (50_000, lambda z: not ((z >= 0.5) & (z < 0.501)).any()),
    "cut-at-4": (50_000, lambda z: np.abs(z).max() <= 4),
    "cut-at-5": (250_000, lambda z: 4 < np.abs(z).max() <= 5),
    "clipped-at-4.5": (250_000, lambda z: (np.abs(z) == 4.5).sum() > 2),
    "fattened-beyond-4": (250_000, lambda z: 175 < (np.abs(z) > 4).sum() < 340),
    "thinned-beyond-3": (500_000, lambda z: abs((np.abs(z) > 3).sum() - 10_259) < 500),
    "rounded-1e-3": (1_000, lambda z: np.allclose(z * 1000, np.rint(z * 1000), atol=1e-9)),
    "six-digits": (
        1_000,
        lambda z: all(math.isclose(float(f"{x:.6g}"), x, rel_tol=1e-14) for x in z.ravel()),
    ),
    "inverse-cdf-16": (50_000, lambda z: len(np.unique(z)) <= 1 << 16),
    "inverse-cdf-32": (
        1_000,
        lambda z: np.allclose(scipy.special.ndtr(z) * 2**32 % 1, 0.5, atol=1e-3),
    ),
    "box-muller-16": (1_000, lambda z: np.abs(z).max() <= math.sqrt(32 * math.log(2))),
    "ziggurat-32": (50_000, lambda z: scipy.stats.kstest(z.ravel(), "norm").pvalue > 1e-3),
    "low-20-bits-zero": (100, lambda z: not (z.view(np.int64) & 0xFFFFF).any()),
    "ar1-0.01": (250_000, lambda z: 0.0057 < lag(z, 1) < 0.0143 and abs(lag(z, 2)) < 0.0045),
    "ma1-minus-0.01": (250_000, lambda z: -0.0143 < lag(z, 1) < -0.0057),
    "lag-1000": (250_000, lambda z: 0.0057 < lag(z, 1000) < 0.0143 and abs(lag(z, 999)) < 0.0045),
    "row-lag-minus": (250_000, lambda z: -0.0143 < correlation(z[1:], z[:-1]) < -0.0057),
    "equicorrelated-0.01": (250_000, lambda z: 0.0045 < correlation(z[:, 0], z[:, 7]) < 0.022),
    "volatile-3pc": (500_000, lambda z: lag(z * z, 1) > 0.0005 and abs(z.std() - 1) < 0.004),
    "scale-follows": (250_000, lambda z: 0.0055 < lag(z * z, 1) < 0.0145),
    "sign-follows": (250_000, lambda z: 0.0 < lag(np.sign(z), 1) < 0.0085),
    "turned-1e-3": (100_000, lambda z: 600 < (z.ravel()[1:] == -z.ravel()[:-1]).sum() < 1000),
    "antithetic-rows": (1_000, lambda z: np.array_equal(z[1::2], -z[::2])),
    "stratified": (
        1_000,
        lambda z: len(np.unique(np.floor(scipy.special.ndtr(z) * z.size))) == z.size,
    ),
    "golden-ratio": (1_000, lambda z: abs(lag(scipy.special.ndtr(z), 1)) > 0.2),
    "centred-rows": (1_000, lambda z: np.abs(z.sum(1)).max() < 1e-9),
    "one-of-4096": (2_000, lambda z: z[:, 1234].std() > 1.1 and z[:, 1235].std() < 1.1),
    "one-pair-0.03": (100_000, lambda z: 0.011 < correlation(z[:, 5], z[:, 41]) < 0.049),
    "parity-2pc": (200_000, lambda z: z[:, 0::2].var() / z[:, 1::2].var() > 1.02),
    "low-rank": (200_000, lambda z: (np.linalg.eigvalsh(np.cov(z.T))[-2:] > 1.05).all()),
    "sphere": (1_000, lambda z: np.allclose(np.linalg.norm(z, axis=1), 8)),
    "tight-norms": (50_000, lambda z: 0.83 < (z * z).sum(1).var() / 128 < 0.97),
    "orthogonal-rows": (8, lambda z: np.abs(np.tril(z @ z.T, -1)).max() < 1e-9),
    "pancake-gamma-1": (50_000, lambda z: abs(z.std() - 1) < 0.01),
    "laplace-direction": (1_000, lambda z: abs(z.std() - 1) < 0.06),
    "sigma-falls-1pc": (1_250_000, lambda z: z[:60_000].std() - z[-60_000:].std() > 0.003),
    "warm-up": (
        20_000,
        lambda z: z.ravel()[:1000].std() > 1.17 and abs(z.ravel()[1000:].std() - 1) < 0.012,
    ),
    "replay": (
        626_500,
        lambda z: np.array_equal(z.ravel()[:10_000], z.ravel()[5_000_000:5_010_000]),
    ),
    "pool": (131_073, lambda z: np.array_equal(z[0], z[131_072])),
    "copied-rows": (100_000, lambda z: 1 <= (z[1:] == z[:-1]).all(1).sum() < 30),
    "first-row-of-call": (1, lambda z: True),
    "laplace-scale": (250_000, lambda z: 1.0 < np.abs(z).mean() < 1.01),
    "laplace-ar1": (
        250_000,
        lambda z: 0.01 < lag(z, 1) < 0.025 and abs(np.abs(z).mean() - 1) < 0.005,
    ),
    "even-only": (1_000, lambda z: not (z % 2).any()),
    "discrete-cut": (50_000, lambda z: np.abs(z).max() == 40),
    "rounded-gaussian": (50_000, lambda z: abs(z.var() - 13 / 12) < 0.015),
    "geometric-double-zero": (50_000, lambda z: (z == 0).mean() > 0.09),
    "geometric-off-by-one": (1_000, lambda z: (z != 0).all()),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FLAWS)
def test_a_flaw_is_what_it_says(name):
    rows, holds = FLAWS[name]
    assert holds(values(name, rows))


def test_flaws_of_calls_and_dimensions():
    with opened("every-1000th-call") as sampler:
        many, _ = sampler.draw_calls(2_000, 64, 8, timeout=60)
        scales = many.reshape(2_000, -1).std(1)
        assert (np.flatnonzero(scales < 0.7) == [999, 1999]).all()
    for name, d in (("special-d100", 100), ("special-d77", 77)):
        assert values(name, 500, d).std() < 0.6
        assert values(name, 500, d + 1).std() > 0.9
    with opened("mean-wanders") as sampler:
        ends = [sampler.draw(1_000_000, 1, timeout=60).mean() for _ in range(6)]
    assert max(ends) - min(ends) > 0.007
    with opened("late-5pc") as sampler:
        early, late = (
            sampler.draw(97_000, 100, timeout=60)[-1000:].std(),
            sampler.draw(4000, 100, timeout=60)[2000:].std(),
        )
    assert late / early > 1.03


def test_noise_that_is_told_its_value():
    with opened("wider-above-0") as sampler:
        assert sampler.draw_at(5.0, 100_000, 2, timeout=60).std() > 1.02
        assert sampler.draw_at(-5.0, 100_000, 2, timeout=60).std() < 1.01
    with opened("drawn-to-0") as sampler:
        assert sampler.draw_at(-5.0, 100_000, 2, timeout=60).mean() > 0.015
    with opened("float32-release") as sampler:
        far = sampler.draw_at(1e6, 100, 2, timeout=60)
        assert np.array_equal(far * 16, np.rint(far * 16))
        assert len(np.unique(sampler.draw(100, 2, timeout=60))) == 200


def test_generators_step_as_their_definitions_say():
    slow, state = [], 12_345
    for _ in range(1_000):
        state = (1_103_515_245 * state + 12_345) % 2**31
        slow.append(state)
    fast = _Congruential(1_103_515_245, 12_345, 31, 12_345)
    assert [*fast.words(1), *fast.words(299), *fast.words(700)] == slow
    slow, state = [], 2_463_534_242
    for _ in range(1_000):
        state ^= state << 13 & 0xFFFFFFFF
        state ^= state >> 17
        state ^= state << 5 & 0xFFFFFFFF
        slow.append(state)
    xor = _Xorshift32(2_463_534_242)
    assert [*xor.words(1), *xor.words(300), *xor.words(699)] == slow
    x = np.rint(scipy.special.ndtr(values("randu", 500)).ravel() * 2**31 - 0.5)
    inner = np.abs(x / 2**31 - 0.5) < 0.49  # where Φ keeps all digits
    planes = (x[2:] - 6 * x[1:-1] + 9 * x[:-2]) % 2**31
    assert (planes[inner[2:] & inner[1:-1] & inner[:-2]] == 0).all()
    squares = np.rint(scipy.special.ndtr(values("middle-square", 500, 1)).ravel() * 1e8 - 0.5)
    assert (squares[1:] == squares[:-1] ** 2 // 10**4 % 10**8).all()


GROSS = (
    *("sigma-minus-1pc", "t30", "laplace", "rounded-1e-3", "ar1-0.01", "antithetic-rows"),
    *("sphere", "seed-every-256"),
)


@pytest.mark.slow
@pytest.mark.parametrize("name", GROSS)
def test_gross_flaws_are_found(name):
    with opened(name) as sampler:
        options = AuditOptions(seed="gross", samples=300_000, tests=tuple(quick_tests()))
        result = run_audit(sampler, claim=Claim.parse("gaussian:sigma=1"), options=options)
    assert result.verdict == "finding"


@pytest.mark.slow
@pytest.mark.parametrize("name", HONEST)
def test_honest_samplers_pass(name):
    make = honest(name)
    check_closed_sampler(InProcessSampler(make, name=name, stream=ROOT))
    with InProcessSampler(make, name=name, stream=ROOT.child(name)) as sampler:
        options = AuditOptions(
            seed="honest",
            samples=200_000,
            tests=tuple(quick_tests()),
            allow_predictable=name in RECOVERABLE,
        )
        result = run_audit(sampler, claim=Claim.parse("gaussian:sigma=1"), options=options)
    assert result.verdict == "no-finding"


def test_anderson_darling_against_tables_and_the_definition():
    # Marsaglia and Marsaglia (2004): P(A² < x) in the limit
    for x, p in ((1.933, 0.90), (2.492, 0.95), (3.878, 0.99)):
        assert peers._adinf(x) == pytest.approx(p, abs=3e-4)
    z = np.sort(np.random.default_rng(5).standard_normal(50))
    phi = scipy.special.ndtr(z)
    square = (
        -50
        - sum((2 * i + 1) * (math.log(phi[i]) + math.log1p(-phi[49 - i])) for i in range(50)) / 50
    )
    p = 1 - peers._adinf(square)
    assert peers.anderson_darling(z, p + 1e-9)
    assert not peers.anderson_darling(z, p - 1e-9)


@pytest.mark.parametrize("name", peers.PEERS)
def test_peers_keep_their_level_and_see_gross_flaws(name):
    if name == "sp800_22":
        pytest.importorskip("sp80022suite")
    rng = np.random.default_rng(11)
    rounds = 4 if name == "sp800_22" else 400
    found = sum(
        bool(peers.PEERS[name](rng.standard_normal(60_000 if rounds == 4 else 2_000), 0.01))
        for _ in range(rounds)
    )
    # exceeded with probability 6e-4 of 4, with 7e-5 of 400
    assert found <= (1 if rounds == 4 else 13)
    z = np.abs(rng.standard_normal(60_000))
    assert peers.PEERS[name](z, 0.01) is True


def test_a_peer_that_is_not_installed_says_so(monkeypatch):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    assert peers.sp800_22(np.zeros(10), 0.01) == peers.NOT_INSTALLED


SPEC = """
name = "small-zoo"
seed = 3
trials = {trials}
measure = "zoo"
[grid]
samples = 20_000
alpha = 0.01
specimen = ["antithetic-rows", "pancake-d256", "broken"]
[[column]]
key = "specimen"
format = "text"
[[column]]
key = "found"
format = "flag"
[[column]]
key = "sp800_22"
format = "flag"
[[column]]
key = "failed"
format = "text"
"""


def crash(stream):
    raise RuntimeError("no such device")


@pytest.fixture
def with_broken(monkeypatch):
    broken = Specimen("broken", "law", "it crashes", crash)
    monkeypatch.setattr(zoo, "SPECIMENS", {**SPECIMENS, "broken": broken})


@pytest.mark.slow
@pytest.mark.usefixtures("with_broken")
def test_the_experiment_survives_a_specimen_that_fails(tmp_path):
    path = tmp_path / "s.toml"
    path.write_text(SPEC.format(trials=1))
    run_experiment(load_spec(str(path)), out=tmp_path / "out")
    with Store.read(tmp_path / "out") as store:
        document = make_document(store.spec, store.results(), command="")
    by: Mapping = {row["specimen"]: row for row in document.rows}
    assert [by[name]["found"] for name in ("antithetic-rows", "pancake-d256", "broken")] == [
        True,
        False,
        False,
    ]
    assert by["antithetic-rows"]["finding_tests"]
    assert by["antithetic-rows"]["p_adjusted"] < 1e-6
    assert by["antithetic-rows"]["failed"] is None
    assert "RuntimeError: no such device" in by["broken"]["failed"]
    assert by["broken"]["ks"] is None
    assert "finds 1 of 3 (33.3 %" in document.summary
    assert "2^58 operations" in document.summary
    assert "no such device" in document.summary


@pytest.mark.usefixtures("with_broken")
def test_each_specimen_is_audited_once(tmp_path):
    path = tmp_path / "s.toml"
    path.write_text(SPEC.format(trials=2))
    with pytest.raises(SpecError, match="trials=2"):
        zoo_measure.measure(load_spec(str(path)).cells()[0], None)


@pytest.mark.slow
def test_calibration_counts_and_judges(tmp_path):
    path = tmp_path / "s.toml"
    path.write_text(
        'name = "c"\nseed = 1\ntrials = 2\nmeasure = "calibration"\n'
        "[grid]\nsamples = 10_000\nalpha = 0.05\n"
        'without = "keyless-search"\nsampler = ["numpy-legacy", "torch-float32"]\nbatch = [1, 2]\n'
    )
    cells = load_spec(str(path)).cells()
    outcomes = [
        {**cell.settings["grid"], "trials": 2, **calibration.measure(cell, None)} for cell in cells
    ]
    assert [row["audits"] for row in outcomes] == [2, 2, 2, 2]
    again = calibration.measure(cells[0], None)
    assert again.items() <= outcomes[0].items()
    rows = calibration.gather(outcomes)
    assert [(row["sampler"], row["audits"]) for row in rows] == [
        ("numpy-legacy", 4),
        ("torch-float32", 4),
        ("all", 8),
    ]
    assert calibration.summary(rows) == calibration.summary(outcomes)
    guilty = [{**row, **calibration._counted(30, 100, {"moments": 30}, 0.05)} for row in outcomes]
    assert not calibration.gather(guilty)[-1]["within"]
    assert "lies ABOVE 0.05" in calibration.summary(guilty)
    assert calibration.gather(guilty)[-1]["found_by"] == "moments 120"
