"""Training functions of a user's own: planted flaws, honest ones, kinds of data, refusals."""

import numpy as np
import pytest
import scipy.stats

import dpaudit
from dpaudit.audit.claims import PrivacyClaim
from dpaudit.audit.mechanism.one_run_audits import CanaryAudit
from dpaudit.audit.options import TrainingOptions
from dpaudit.audit.request import Failure
from dpaudit.audit.training.loader import audit_loader
from dpaudit.audit.training.records import join, record, take
from dpaudit.audit.training.run import (
    Scoring,
    TrainingRequest,
    conclude,
    draw_scores,
    judge_runs,
    judge_scores,
    plan_training,
)
from dpaudit.errors import MissingExtraError, SamplerCrashError, UsageError

DIM = 400
BASE = np.zeros((50, DIM))
ODD = 10.0 * np.eye(DIM)  # orthogonal: no canary disturbs another


def summed(sigma, *, clip=True):
    """One step on everybody: the clipped sum of all records, with noise."""

    def train(data, seed):
        norms = np.linalg.norm(data, axis=1, keepdims=True)
        clipped = data / np.maximum(1.0, norms) if clip else data
        return clipped.sum(axis=0) + np.random.default_rng(seed).normal(0, sigma, data.shape[1])

    return train


def knows(model, one):
    return float(model @ one)


def audited(train, **options):
    given = {"canaries": ODD, "score": knows, "mu": 1.0, "alpha": 0.05, "seed": 1, **options}
    return dpaudit.audit_training(train, BASE, **given)


def test_half_the_noise_and_no_clipping_are_findings():
    assert audited(summed(1.0)).verdict == "no-finding"
    half = audited(summed(0.3))
    assert half.verdict == "finding"
    assert 1.0 < half.mu.low <= 1 / 0.3
    assert half.details["canaries"] == DIM
    assert half.mechanism == "training:summed.<locals>.train"
    assert "seed='1'" in half.tests[-1].reproduce
    assert audited(summed(1.0, clip=False)).verdict == "finding"


def request_of(**options):
    claim = PrivacyClaim.of(None, mu=1.0)
    return TrainingRequest(claim=claim, options=TrainingOptions(alpha=0.05, seed="1", **options))


def test_the_stages_of_an_audit_by_themselves():
    """Plan, draw, judge, conclude: nothing is trained before the second, nor after it."""
    calls, train = [], summed(0.3)

    def counted(data, seed):
        calls.append((len(data), seed))
        return train(data, seed)

    plan = plan_training(BASE, canaries=ODD, request=request_of(runs=2))
    assert not calls
    assert (plan.coins.shape, plan.seeds.shape, plan.pool.m) == ((2, DIM), (2,), DIM)
    assert not plan.compares_neighbours
    scores = draw_scores(plan, counted, Scoring(score=knows))
    sizes = len(BASE) + plan.coins.sum(axis=1)
    assert calls == list(zip(sizes.tolist(), plan.seeds.tolist(), strict=True))
    result = judge_scores(plan, scores, name="mine")
    assert (result.verdict, result.mechanism, result.samples) == ("finding", "mine", 2 * DIM)
    told = conclude(plan, result)
    assert told.details["runs"] == len(calls) == 2
    assert "runs=2" in next(t.reproduce for t in told.tests if t.finding)


def test_scores_alone_decide_the_verdict():
    """The judge sees coins and scores only: those that know the coins, and those that do not."""
    plan = plan_training(BASE, canaries=ODD, request=request_of())
    known = judge_scores(plan, plan.coins.astype(float), name="known")
    assert (known.verdict, known.epsilon.low > 3) == ("finding", True)
    noise = np.random.default_rng(5).standard_normal(plan.coins.shape)
    blind = judge_scores(plan, noise, name="blind")
    assert (blind.verdict, blind.reason[:7]) == ("no-finding", "nothing")
    spots = {spot.flaw for spot in conclude(plan, blind).cannot_rule_out}
    assert any(flaw.startswith("what the training shows") for flaw in spots)


def test_a_training_that_fails_is_inconclusive_by_the_same_request():
    request = request_of(runs=3, by="me")
    result = request.inconclusive(Failure(name="training x", reason="train raised", seconds=2))
    assert (result.verdict, result.reason, result.samples) == ("inconclusive", "train raised", 0)
    assert (result.claim_mu, result.provenance.by, result.seconds) == (1.0, "me", 2.0)
    assert request.command("x:f", score="mine") == (
        "dpaudit training x:f --score mine --claim-delta 1e-05 --claim-mu 1 --runs 3 --alpha 0.05 "
        "--seed 1 --by me"
    )


@pytest.mark.slow
def test_honest_training_is_rarely_a_finding():
    """200 repetitions at the tightest claim there is, α = 0.05."""
    found = sum(audited(summed(1.0), seed=i).verdict == "finding" for i in range(200))
    assert scipy.stats.binom.sf(found - 1, 200, 0.05) > 1e-3


@pytest.mark.slow
def test_one_canary_in_many_runs_shows_what_is_there():
    """Nothing is lost to other canaries, whichever way the score points."""
    honest = audited(summed(1.0), canaries=ODD[:1], runs=300)
    assert (honest.verdict, honest.samples) == ("no-finding", 300)
    result = audited(summed(0.5), canaries=ODD[:1], runs=3_000)
    assert (result.verdict, result.method) == ("finding", "one canary in many runs")
    assert 1.4 < result.mu.low <= 2.0
    turned = audited(summed(0.5), canaries=ODD[:1], runs=3_000, score=lambda w, x: -knows(w, x))
    assert turned.mu.low > 1.4
    assert result.curve
    assert any(spot.test == "one run" for spot in audited(summed(1.0), runs=2).cannot_rule_out)


@pytest.mark.slow
def test_one_honest_canary_in_many_runs_is_rarely_a_finding():
    """200 repetitions at the tightest claim there is, α = 0.05."""
    found, claim = 0, PrivacyClaim.of(None, mu=1.0)
    for seed in range(200):
        rng = np.random.default_rng(seed)
        member = rng.random(400) < 0.5
        audit = CanaryAudit(name="", claim=claim, alpha=0.05, seed=str(seed), started=0.0)
        result = judge_runs(audit, rng.standard_normal(400) + member, member)
        found += result.verdict == "finding" or result.mu.low > 1.0
    assert scipy.stats.binom.sf(found - 1, 200, 0.05) > 1e-3


@pytest.mark.slow
def test_many_runs_show_which_noise_multiplier_is_left():
    pytest.importorskip("dp_accounting")
    claim = {"mu": None, "dpsgd": "sigma=1,rate=1,steps=1"}
    result = audited(summed(0.4), canaries=ODD[:1], runs=1_000, **claim)
    assert result.verdict == "finding"
    assert result.stated.says.startswith("a noise multiplier below 0.")
    assert result.epsilon.low == result.stated.shown.low > result.claim_epsilon


def test_few_runs_are_compared_by_rank():
    """Each run's scores lie elsewhere; no coin enters their ranks."""

    def knows_somewhere(model, one):
        return knows(model, one) + 1e3 * float(np.round(model[-1] * 1e3) % 7)

    result = audited(summed(0.4), canaries=ODD[:-1], score=knows_somewhere, runs=2)
    assert result.verdict == "finding"
    assert result.samples == 2 * (DIM - 1)


def test_scores_in_every_form():
    same = {"seed": 3, "mu": 1.0}
    by_score = audited(summed(0.5), **same)
    by_loss = audited(summed(0.5), score=None, loss=lambda w, x: -knows(w, x), **same)
    at_once = audited(summed(0.5), score=None, scores=lambda w, some: some @ w, **same)
    itself = audited(lambda d, s: ODD @ summed(0.5)(d, s), score=None, **same)
    assert by_score.mu.low == by_loss.mu.low == at_once.mu.low == itself.mu.low > 0.5


def test_canaries_among_the_data_itself():
    asked = {"canaries": 150, "score": knows, "mu": 1.0, "alpha": 0.05, "seed": 1}
    result = dpaudit.audit_training(summed(0.3), ODD, **asked)
    assert result.verdict == "finding"
    assert result.samples == 150


@pytest.mark.slow
def test_a_claim_of_dpsgd():
    pytest.importorskip("dp_accounting")

    def steps(sigma):
        def train(data, seed):
            rng = np.random.default_rng(seed)
            shown = np.zeros(data.shape[1])
            for _ in range(4):
                batch = data[rng.random(len(data)) < 0.5]
                shown += summed(sigma)(batch, rng)
            return shown

        return train

    claim = {"mu": None, "dpsgd": "sigma=2,rate=0.5,steps=4"}
    honest, broken = audited(steps(2.0), **claim), audited(steps(0.2), **claim)
    assert honest.verdict == "no-finding"
    assert honest.details["claimed"] == "dpsgd"
    assert broken.verdict == "finding"
    curve = broken.tests[0]
    assert curve.name == "one run, DP-SGD"
    assert curve.finding
    assert 0.2 <= curve.details["sigma"] < 2
    assert broken.epsilon.low > broken.claim_epsilon > 1


def test_kinds_of_data():
    torch = pytest.importorskip("torch")
    rows = np.array([2, 0])
    x, y = np.arange(6.0).reshape(3, 2), np.array([0, 1, 1])
    both = take((x, y), rows)
    assert both[0].tolist() == [[4.0, 5.0], [0.0, 1.0]]
    assert both[1].tolist() == [1, 0]
    assert record((x, y), 1)[1] == 1
    assert take(["a", "b", "c"], rows) == ["c", "a"]
    assert join((x, y), (x, y))[0].shape == (6, 2)
    tensor = torch.arange(6.0).reshape(3, 2)
    assert take(tensor, rows).tolist() == [[4.0, 5.0], [0.0, 1.0]]
    assert join(tensor, tensor).shape == (6, 2)
    data = torch.utils.data.TensorDataset(tensor, torch.tensor([0, 1, 1]))
    assert len(join(data, take(data, rows))) == 5
    assert record(take(data, rows), 0)[0].tolist() == [4.0, 5.0]


def test_data_frames():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [1, 2, 3]}, index=[5, 5, 7])
    assert take(frame, np.array([2, 0])).a.tolist() == [3, 1]
    assert join(frame, frame).a.tolist() == [1, 2, 3, 1, 2, 3]
    assert record(frame, 1).a == 2


def test_a_torch_model_is_scored_by_its_loss():
    torch = pytest.importorskip("torch")

    def train(data, seed):
        """Logistic regression that remembers every record's label."""
        x, y = data
        model = torch.nn.Linear(DIM, 2, bias=False)
        with torch.no_grad():
            model.weight[0] = (x * (y == 0)[:, None]).sum(0)
            model.weight[1] = (x * (y == 1)[:, None]).sum(0)
        return model

    x, y = torch.eye(DIM), torch.arange(DIM) % 2
    empty = torch.zeros(5, DIM), torch.zeros(5, dtype=torch.long)
    result = dpaudit.audit_training(train, empty, canaries=(x, y), epsilon=1.0, seed=1)
    assert result.verdict == "finding"
    assert result.epsilon.low > 2


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"canaries": 60}, "canaries=60: must lie in 1…50"),
        ({"canaries": np.zeros((3, DIM))}, "runs=1: 3 canaries"),
        ({"canaries": [1.0]}, "canaries=list"),
        ({"canaries": np.zeros((9, 3))}, "do not fit"),
        ({"mu": None}, "there is no claim"),
        ({"dpsgd": "sigma=1,rate=0.1,steps=3"}, "claim-mu: cannot be given with claim-dpsgd"),
        ({"mu": None, "dpsgd": "sigma=1,rate=0.1"}, "write e.g. sigma=1,rate=0.05,steps=80"),
        ({"mu": None, "dpsgd": "sigma=1,rate=2,steps=3"}, "rate=2"),
        ({"mu": None, "dpsgd": "sigma=1,rate=1,steps=2.5"}, "steps=2.5"),
        ({"loss": knows}, "score: not together with loss"),
        ({"score": 3}, "score=3"),
        ({"score": lambda _w, _x: float("nan")}, "is not finite"),
        ({"score": None}, "one number for each of 400 canaries"),
    ],
)
def test_refusals(options, says):
    with pytest.raises((UsageError, MissingExtraError), match=says):
        audited(lambda _data, _seed: np.zeros(3), **options)


def test_a_training_that_raises_is_named():
    def train(_data, _seed):
        raise ValueError("no GPU")

    with pytest.raises(SamplerCrashError, match=r"train raised.*no GPU"):
        audited(train)


N, RATE, EPOCHS = 200, 0.1, 12
WEIGHTED = np.where(np.arange(N) < 180, 1.0, 5.0)
"""As torch's WeightedRandomSampler draws a rare class (Opacus issue 813)."""


def poisson(rng, *, rate=RATE, weights=None):
    chance = rate if weights is None else rate * weights
    return [np.flatnonzero(rng.random(N) < chance) for _ in range(EPOCHS * 10)]


def shuffled(rng):
    return [batch for _ in range(EPOCHS) for batch in rng.permutation(N).reshape(10, 20)]


def found(batches):
    result = audit_loader(batches, records=N, rate=RATE, seed=1)
    return {test.name for test in result.tests if test.finding}


def test_what_shuffling_shows():
    names = {"batch sizes", "successive batches", "inclusion"}
    assert names <= found(shuffled(np.random.default_rng(1)))


def in_pairs(rng):
    pairs = (np.flatnonzero(rng.random(N // 2) < RATE) for _ in range(EPOCHS * 10))
    return [(at[:, None] * 2 + [0, 1]).ravel() for at in pairs]


def fixed_size(rng, chance=None):
    return [rng.choice(N, 20, replace=chance is not None, p=chance) for _ in range(EPOCHS * 10)]


UNEVEN = np.where(np.arange(N) % 4 == 0, 1.9, 0.7)


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("rate", lambda rng: poisson(rng, rate=0.12)),
        ("inclusion", lambda rng: poisson(rng, weights=UNEVEN)),
        ("batches an epoch apart", lambda rng: poisson(rng)[:10] * EPOCHS),
        ("batch sizes", fixed_size),
        ("inclusion", lambda rng: fixed_size(rng, WEIGHTED / WEIGHTED.sum())),
        ("records twice", lambda rng: [rng.integers(0, N, 20) for _ in range(EPOCHS * 10)]),
        ("neighbours in the data", in_pairs),
    ],
)
def test_planted_flaws_are_found_by_their_test(name, make):
    assert name in found(make(np.random.default_rng(2)))


@pytest.mark.slow
def test_poisson_sampling_is_rarely_a_finding():
    asked, wrong = {"records": N, "rate": RATE, "alpha": 0.1}, 0
    for i in range(60):
        result = audit_loader(poisson(np.random.default_rng(i)), seed=i, **asked)
        wrong += result.verdict == "finding"
    assert scipy.stats.binom.sf(wrong - 1, 60, 0.1) > 1e-3


def test_a_torch_loader():
    torch = pytest.importorskip("torch")
    data = torch.utils.data.TensorDataset(torch.arange(N))
    loader = torch.utils.data.DataLoader(data, batch_size=20, shuffle=True)
    batches = (batch for _ in range(4) for batch in loader)
    result = audit_loader(batches, records=N, rate=RATE, seed=1)
    assert result.batches == 40
    assert str(result).startswith("Finding: the batches are not Poisson samples at rate 0.1: ")


@pytest.mark.parametrize(
    ("batches", "options", "says"),
    [
        ([[1, 2]] * 5, {}, "batches=5"),
        ([[1, 2]] * 30, {"rate": 1.5}, "rate=1.5"),
        ([[1, 2]] * 30, {"alpha": 0}, "alpha=0"),
        ([[1, 2]] * 30, {"records": 3}, "records=3"),
        ([[1, N]] * 30, {}, "whole numbers in 0…199"),
        ([[0.5, 1]] * 30, {}, "whole numbers"),
    ],
)
def test_batches_that_are_none_are_refused(batches, options, says):
    with pytest.raises(UsageError, match=says):
        audit_loader(batches, **{"records": N, "rate": RATE, **options})
