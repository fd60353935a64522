"""A Mersenne Twister's state, recovered from noise, and the noise that follows from it."""

import random

import numpy as np
import pytest
import torch
from support.battery import evidence_of

from dpaudit.audit.options import AuditOptions
from dpaudit.audit.run import run_audit
from dpaudit.claims import Claim
from dpaudit.options import arguments_of
from dpaudit.targets.callables import CallableTarget
from dpaudit_attacks.state_recovery import inversions, state_recovery
from dpaudit_attacks.state_recovery import mersenne_state as mersenne
from dpaudit_attacks.state_recovery.state_recovery import (
    Prediction,
    StateRecovery,
    count_ways,
    predictions,
)

LAYOUTS = (*inversions.LAYOUTS, inversions.LOW_24, inversions.LOW_53)


def seen(blocks, claim="gaussian:sigma=1", calls=1):
    return evidence_of(StateRecovery, blocks, claim, calls=calls)


def twister(seed=7, skipped=1234):
    """Words of a generator that is somewhere inside its period."""
    made = np.random.MT19937(seed)
    made.random_raw(skipped)
    return lambda count: made.random_raw(count).astype(np.uint32)


MASKS = [(0xFFFFFFFF, 0), (0xFFFFFFC0, 0), (0xFFFFFFC0, 0.2), (0x00FFFFF0, 0), (0xFFFFF000, 0)]


@pytest.mark.parametrize(("mask", "missing"), MASKS)
def test_the_state_is_recovered_from_some_bits_of_each_word(mask, missing):
    """Some words may be missing."""
    words, known = twister()(4000), np.full(3000, mask, np.uint32)
    known[np.random.default_rng(1).random(3000) < missing] = 0
    generator = mersenne.recover_state(words[:3000] & known, known)
    assert (generator.random_raw(4000) == words)[1:].all()  # the first has bits without effect


def test_one_wrong_bit_and_other_words_are_refused():
    words, known = twister()(3000), np.full(3000, 0xFFFFFF00, np.uint32)
    wrong = words.copy()
    wrong[1700] ^= np.uint32(1 << 20)
    other = np.random.default_rng(1).integers(0, 1 << 32, 3000, dtype=np.uint32)
    for refused in (wrong, other, words[:700]):  # the last are too few
        mask = known[: len(refused)]
        assert mersenne.recover_state(refused & mask, mask) is None


def test_sparse_relations_hold_for_the_twister_and_for_nothing_else():
    words = twister()(mersenne.SPAN + 2000)
    other = np.random.default_rng(1).integers(0, 1 << 32, len(words), dtype=np.uint32)
    top = np.full(len(words), 0xFFFFC000, np.uint32)
    assert mersenne.top_bits_relation(words & top, top)
    assert not mersenne.top_bits_relation(other & top, top)
    assert not mersenne.top_bits_relation(
        words & top, top << np.uint32(1)
    )  # one bit fewer than needed
    assert len(mersenne.taps()) == 135  # Matsumoto and Nishimura 1998, Table II
    for bit in (0, 17, 31):
        assert mersenne.follows((words >> np.uint32(bit) & 1).astype(np.uint8))
        assert mersenne.follows((other >> np.uint32(bit) & 1).astype(np.uint8)) is False
    assert mersenne.follows((twister()(4 * mersenne.SPAN + 2000)[::4] >> 31).astype(np.uint8))
    assert mersenne.follows(np.zeros(mersenne.SPAN, np.uint8)) is None


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda one: one.name)
def test_a_layout_shows_only_what_is_certain(layout):
    words = twister()(4000)
    numbers = layout.numbers(words)
    assert ((numbers >= 0) & (numbers < 1)).all()
    error = 3 * 2.0**-layout.bits
    moved = numbers + np.random.default_rng(1).uniform(-error, error, len(numbers))
    shown, known = layout.certain_bits(inversions.Uniforms(moved, np.full(len(numbers), error)))
    assert (shown == words & known).all()
    each = layout.bits / layout.words
    assert each - 5 < np.bitwise_count(known).mean() < each
    exact, every = layout.certain_bits(inversions.Uniforms(numbers, np.zeros(len(numbers))))
    assert np.bitwise_count(every).mean() == each
    assert (layout.nearest(numbers) == exact).all()


def gauss(count):
    source = random.Random(123456789012345678901)
    return [source.gauss(0, 1) for _ in range(count)]


def torch_made(count, **options):
    return torch.randn(count, generator=torch.Generator().manual_seed(2**40 + 5), **options)


def legacy(draw, scale):
    return lambda count: getattr(np.random.RandomState([5, 6]), draw)(0, scale, count)


def torch_laplace(count):
    return torch.distributions.Laplace(0.0, 1.0).sample((count,))


GAUSS, DOUBLES = "gaussian:sigma=1", {"dtype": torch.float64}
SAMPLERS = {
    "random.gauss": (GAUSS, gauss, "random.gauss"),
    "its second value first": (GAUSS, lambda count: gauss(count + 1)[1:], "random.gauss"),
    "numpy.random.normal": ("gaussian:sigma=3.7", legacy("normal", 3.7), "as in numpy"),
    "numpy.random.laplace": ("laplace:scale=2", legacy("laplace", 2), "numpy.random.laplace"),
    "torch.randn": (GAUSS, torch_made, "float32"),
    "torch.randn, float64": (GAUSS, lambda count: torch_made(count, **DOUBLES), "float64"),
    "torch.distributions.Laplace": ("laplace:scale=1", torch_laplace, "Laplace on the CPU"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("claim", "draw", "says"), SAMPLERS.values(), ids=list(SAMPLERS))
def test_noise_of_a_twister_is_predicted(claim, draw, says):
    torch.manual_seed(2**40 + 6)
    values = np.asarray(draw(24_640), float)
    evidence = seen([values.reshape(-1, 64)], claim)
    predicted, compared = map(int, evidence.details["predicted"].split(" of "))
    assert evidence.p < 1e-300
    assert predicted >= 0.999 * compared > 20_000
    assert evidence.details["values needed"] <= 2_500
    assert says in evidence.effect


@pytest.mark.slow
@pytest.mark.parametrize("count", [2_500, 4_000])
def test_few_values_in_a_row_are_enough(count):
    for name in ("random.gauss", "numpy.random.normal", "numpy.random.laplace", "torch.randn"):
        claim, draw, _ = SAMPLERS[name]
        assert seen([np.asarray(draw(count), float)[:, None]], claim).p < 1e-100, name


def test_the_longest_call_counts_and_not_many_short_ones():
    values = np.asarray(gauss(4_000))
    assert seen(values.reshape(-1, 8), calls=8).p == 1.0
    some = np.random.default_rng(1).standard_normal((100, 8))
    found = seen([some, values.reshape(-1, 8), some])
    assert found.p < 1e-100
    assert found.details["call"] == 1


@pytest.mark.slow
def test_honest_noise_has_p_1_in_every_precision():
    """The type-I rate: 100 audits of one test, none with anything to say."""
    rng = np.random.default_rng(5)
    for _ in range(25):
        z = rng.standard_normal((30, 64))
        assert seen([z]).p == 1.0
        assert seen([z.astype(np.float32).astype(float)]).p == 1.0
        assert seen([np.round(z * 2**20) / 2**20]).p == 1.0
        assert seen([rng.laplace(size=(30, 64))], "laplace:scale=1").p == 1.0


@pytest.mark.slow
def test_absurd_values_are_no_error():
    with np.errstate(all="raise"):
        for worst in (1e300, 0.0, -1e200):
            values = np.random.default_rng(1).standard_normal((40, 64))
            values[3:7] = worst
            assert seen([values]).p == 1.0
            assert seen([np.full((400, 64), worst)]).p == 1.0
    assert seen([np.ones((40, 64))], "discrete-gaussian:sigma=10").p == 1.0


def test_the_p_value_bounds_a_binomial_tail_times_the_ways(monkeypatch):
    log_p = Prediction("", 1000, 3, 128).log_p
    assert np.exp(log_p) == pytest.approx(341376 * 2.0**-48)  # C(128, 3)
    assert Prediction("", 1000, 0, 128).log_p == 0.0
    assert count_ways("laplace") == len(state_recovery._SIZES) * 7
    monkeypatch.setattr(state_recovery, "top_bits_relation", lambda *_: True)
    values = np.asarray(gauss(780))
    values[640:] += 1.0  # what was held out does not follow
    values[-3:] -= 1.0
    assert seen([values[:, None]]).p == pytest.approx(
        count_ways("gaussian") * np.exp(Prediction("", 640, 3, 140).log_p)
    )


@pytest.mark.slow
def test_a_prediction_never_uses_the_values_it_is_compared_with():
    values = np.asarray(gauss(4_000))
    (before,) = predictions(values, family="gaussian")
    values[before.used :] = np.random.default_rng(1).standard_normal(4_000 - before.used)
    assert all(one.predicted == 0 for one in predictions(values, family="gaussian"))


def audited(**options):
    source = random.Random(123456789012345678901)

    def draw(n, d):
        return np.array([source.gauss(0, 1) for _ in range(n * d)]).reshape(n, d)

    asked = {"seed": "1", "samples": 20_000, "dim": 8, "alpha": 1e-4, **options}
    options = AuditOptions(tests=("state-recovery", "moments"), **asked)
    with CallableTarget(draw, name="f", call=None).open(timeout=60) as opened:
        return run_audit(opened, claim=Claim.parse("gaussian:sigma=1"), options=options)


@pytest.mark.slow
def test_noise_that_can_be_computed_is_a_finding_and_says_why():
    result = audited()
    assert result.verdict == "finding"
    assert [t.name for t in result.tests if t.finding] == ["state-recovery"]
    assert "whoever sees some of it" in result.reason
    assert "The noise can be computed" in result.remarks[0]
    assert "--allow-predictable" not in result.tests[0].reproduce


@pytest.mark.slow
def test_a_simulation_may_allow_it_and_is_still_told():
    result = audited(allow_predictable=True)
    assert result.verdict == "no-finding"
    (told,) = [t for t in result.tests if t.name == "state-recovery"]
    assert told.advisory
    assert told.p < 1e-300
    assert not told.finding
    assert "--allow-predictable" in result.remarks[0]
    assert arguments_of(AuditOptions(allow_predictable=True, seed="")) == ["--allow-predictable"]
