"""A whole Opacus run: repeatable, equal except for its noise, and observed correctly."""

import dataclasses

import numpy as np
import pytest
import torch

from dpaudit.errors import UsageError
from dpaudit.noise.gaussian import Gaussian
from dpaudit.noise.key import PancakeKey
from dpaudit.noise.pancake import Pancake
from dpaudit.randomness import KeyedStream

pytest.importorskip("opacus")

from opacus import privacy_engine
from opacus.accountants import RDPAccountant
from support.noise_multipliers import noise_multipliers  # noqa: F401

from dpaudit.training.data import load_images
from dpaudit.training.models import make_model
from dpaudit.training.private.onlooker import Canaries, mislabelled
from dpaudit.training.private.run import (
    Recipe,
    Records,
    RunNoise,
    Watch,
    _private,
    epoch_steps,
    train_privately,
)

STREAM = KeyedStream.from_seed("private training")
RECIPE = Recipe(model="mlp", epochs=1, batch=128, lr=0.5)
DIM = 12_730


@pytest.fixture(scope="module")
def images():
    return load_images("synthetic"), load_images("synthetic", split="test")


def run(
    images,
    source,
    *,
    seed="noise",
    recipe=RECIPE,
    canaries=None,
    watched=True,
    pair_every=1,
    device="cpu",
):
    (train, test), sights = images, []
    if canaries is None:
        canaries = Canaries.draw(40, of=len(train), stream=STREAM.child("canaries"))
    records = Records(train=train, test=test, canaries=canaries)
    watch = Watch(sights.append, pair_every=pair_every) if watched else None
    noise = RunNoise(source=source, seed=seed)
    return train_privately(
        recipe, records, noise=noise, stream=STREAM, watch=watch, device=device
    ), sights


def pancake(sigma):
    key = PancakeKey.new(dim=DIM, beta=1e-4, secret=STREAM.child("key").bytes(32))
    return Pancake(key=key, sigma=sigma)


def honest(sigma):
    return Gaussian(sigma=sigma)


@pytest.fixture(scope="module")
def honest_run(images):
    return run(images, honest)


@pytest.fixture(scope="module")
def pancake_run(images):
    return run(images, pancake)


def weights(result):
    return torch.cat([p.detach().reshape(-1) for p in result.network.parameters()])


@pytest.mark.slow
def test_a_run_repeats_itself_watched_or_not_and_leaves_the_global_generator_alone(
    images, honest_run
):
    before = torch.get_rng_state()
    again, _ = run(images, honest, watched=False)
    assert torch.equal(before, torch.get_rng_state())
    first, _ = honest_run
    assert torch.equal(weights(first), weights(again))
    assert dataclasses.replace(first, network=None) == dataclasses.replace(again, network=None)
    other, _ = run(images, honest, seed="other", watched=False)
    assert not torch.equal(weights(first), weights(other))


@pytest.mark.slow
def test_two_kinds_of_noise_share_all_but_the_noise(honest_run, pancake_run):
    (first, ours), (second, theirs) = honest_run, pancake_run
    assert len(ours) == len(theirs) == first.steps == 16
    assert torch.equal(ours[0].query, theirs[0].query)
    assert torch.equal(ours[0].gradients, theirs[0].gradients)
    assert not torch.equal(ours[0].noisy, theirs[0].noisy)
    assert all(torch.equal(a.present, b.present) for a, b in zip(ours, theirs, strict=True))
    assert first.epsilon == second.epsilon
    assert first.sigma == second.sigma == first.noise_multiplier * RECIPE.clip


def test_the_noise_is_the_source_s(honest_run, pancake_run):
    for result, sights in (honest_run, pancake_run):
        noise = torch.stack([s.noisy.double() - s.query.double() for s in sights])
        assert float(noise.std()) == pytest.approx(result.sigma, rel=0.01)
        direction = torch.from_numpy(np.array(pancake(1.0).key.direction))
        phase = noise @ direction / pancake(result.sigma).spacing
        on_peaks = float((phase - phase.round()).abs().max()) < 1e-3
        assert on_peaks == (result is pancake_run[0])


def test_it_learns_and_reports_the_epsilon_asked_for(honest_run):
    result, _ = honest_run
    assert result.accuracy.low > 0.3  # of ten classes, after one epoch
    assert 2.9 < result.epsilon <= RECIPE.epsilon
    renyi = RDPAccountant()
    for _ in range(result.steps):
        renyi.step(noise_multiplier=result.noise_multiplier, sample_rate=result.rate)
    assert result.epsilon <= renyi.get_epsilon(RECIPE.delta) < 1.6 * result.epsilon


def first_model():
    """The network before its first step."""
    seed = int.from_bytes(STREAM.child("weights").entropy()[:4], "big")
    return make_model("mlp", seed=seed)


def clipped_by_hand(model, images, record):
    x, y = images.batch([record])
    model.zero_grad()
    torch.nn.functional.cross_entropy(model(x), y).backward()
    g = torch.cat([p.grad.reshape(-1) for p in model.parameters()]).double()
    return g * min(1.0, RECIPE.clip / float(g.norm()))


def test_an_onlooker_sees_the_canaries_gradients_and_the_true_sum(images, honest_run):
    train, _ = images
    _, sights = honest_run
    canaries = Canaries.draw(40, of=len(train), stream=STREAM.child("canaries"))
    model = first_model()
    by_hand = torch.stack([clipped_by_hand(model, train, int(r)) for r in canaries.records])
    torch.testing.assert_close(sights[0].gradients.double(), by_hand, rtol=0, atol=1e-6)
    seen = torch.stack([s.present for s in sights])
    member = torch.from_numpy(canaries.member)
    assert not seen[:, ~member].any()
    assert seen[:, member].float().mean() == pytest.approx(1 / 16, abs=0.03)


@pytest.mark.slow
def test_pairs_hold_the_true_sum_bit_for_bit_and_one_that_swaps_a_record(images):
    clip = 0.05  # all gradients are longer: each counts exactly this much
    _, sights = run(images, honest, recipe=dataclasses.replace(RECIPE, clip=clip), pair_every=3)
    assert [s.step for s in sights if s.pair is not None] == [0, 3, 6, 9, 12, 15]
    pairs = [s for s in sights if s.pair is not None]
    assert {s.truth for s in pairs} == {0, 1}
    for s in pairs:
        assert torch.equal(s.pair[s.truth], s.query)
        difference = float((s.pair[1 - s.truth].double() - s.query.double()).norm())
        assert 0.1 * clip < difference <= 2 * clip * (1 + 1e-4)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:divide by zero")  # Opacus' accountant, at rate 1
def test_the_sum_is_that_of_the_batch(images):
    """Every member in every batch (rate 1): the step's query is the sum over all of them."""
    train, test = images
    few = dataclasses.replace(train, pixels=train.pixels[:60], labels=train.labels[:60])
    canaries = Canaries(np.array([3, 7, 50]), np.array([True, False, True]))
    recipe = dataclasses.replace(RECIPE, batch=60)
    _, (sight,) = run((few, test), honest, recipe=recipe, canaries=canaries)
    model = first_model()
    total = sum(clipped_by_hand(model, few, r) for r in range(60) if r != 7)
    torch.testing.assert_close(sight.query.double(), total, rtol=0, atol=1e-4)
    assert sight.present.tolist() == [True, False, True]
    assert sight.pair is None  # nobody is outside the batch


@pytest.mark.slow
def test_who_is_a_member_changes_neither_rate_nor_steps_nor_divisor(images):
    records = np.arange(300, dtype=np.int64)
    found = []
    for member in (np.ones(300, np.bool_), np.zeros(300, np.bool_)):
        result, _ = run(images, honest, canaries=Canaries(records, member), watched=False)
        found.append((result.rate, result.steps, result.noise_multiplier, result.epsilon))
    assert found[0] == found[1]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:divide by zero")
def test_the_divisor_is_the_recipe_s_batch(images):
    recipe = dataclasses.replace(RECIPE, batch=2048, momentum=0.0)
    canaries = Canaries(np.arange(200, dtype=np.int64), np.zeros(200, np.bool_))
    result, (sight,) = run(images, honest, recipe=recipe, canaries=canaries, pair_every=1)
    model = first_model()
    before = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    moved = before - recipe.lr * sight.noisy / 2048
    torch.testing.assert_close(weights(result), moved, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("records", "batch", "steps"),
    [(60_000, 512, 118), (2048, 128, 16), (100, 100, 1), (11_700, 100, 118)],
)
def test_steps_are_such_that_opacus_makes_as_many(records, batch, steps):
    assert epoch_steps(records, batch) == steps
    assert int(1 / (1 / steps)) == steps


def test_the_noise_is_for_all_steps_that_are_made(monkeypatch):
    """Opacus counts int(epochs / rate) steps, and 3 / (1 / 75) is a little below 225."""
    asked = []

    def noted(*, epochs, sample_rate, **options):
        asked.append(int(epochs / sample_rate))
        return 1.0

    monkeypatch.setattr(privacy_engine, "get_noise_multiplier", noted)
    for epochs, steps in ((3, 75), (4, 118), (1, 1)):
        recipe = dataclasses.replace(RECIPE, epochs=epochs)
        _private(make_model("mlp"), recipe, torch.arange(14_000), steps=steps, seed=0)
        assert asked.pop() == epochs * steps


def test_canaries_are_members_by_fair_coins():
    canaries = Canaries.draw(4000, of=10_000, stream=STREAM.child("many"))
    assert len(set(canaries.records.tolist())) == 4000
    assert abs(int(canaries.member.sum()) - 2000) < 160  # five standard deviations
    kept = canaries.training_records(10_000)
    assert len(kept) == 10_000 - int((~canaries.member).sum())
    assert not set(kept.tolist()) & set(canaries.records[~canaries.member].tolist())
    with pytest.raises(UsageError, match="canaries=6"):
        Canaries.draw(6, of=10, stream=STREAM)


@pytest.mark.parametrize(
    ("option", "value"),
    [("epochs", 0), ("epochs", 1.5), ("batch", 0), ("batch", "512"), ("epsilon", "3"),
     ("delta", None),
     ("clip", 0.0), ("lr", float("nan")), ("epsilon", -1.0), ("delta", 1.0), ("momentum", 1.0)],
)  # fmt: skip
def test_recipes_that_make_no_sense(option, value):
    with pytest.raises(UsageError, match=f"{option}="):
        Recipe(**{option: value})


def test_too_small_batches_and_strange_models_are_refused(images, monkeypatch):
    colour = (load_images("synthetic-colour", split="test"),) * 2
    other = PancakeKey.new(dim=64, beta=1e-3)
    for says, given, source, change, options in (
        ("batch=8", images, honest, {"batch": 8}, {}),
        ("pair_every=0", images, honest, {}, {"pair_every": 0}),
        ("model=nothing", images, honest, {"model": "nothing"}, {}),
        ("BatchNorm", colour, honest, {"model": "resnet20"}, {}),
        (r"shape \(1, 28, 28\), and is", (colour[0], images[1]), honest, {}, {}),
        ("device=tpu", images, honest, {}, {"device": "tpu"}),
        ("dim=", images, lambda s: Pancake(key=other, sigma=s), {}, {}),
    ):
        with pytest.raises(UsageError, match=says):
            run(given, source, recipe=dataclasses.replace(RECIPE, **change), **options)

    def in_vain(**asked):  # what Opacus says after a second's search
        assert asked["target_epsilon"] == 0.001
        raise ValueError("The privacy budget is too low.")

    monkeypatch.setattr(privacy_engine, "get_noise_multiplier", in_vain)
    with pytest.raises(UsageError, match=r"epsilon=0.001, .*privacy budget is too low"):
        run(images, honest, recipe=dataclasses.replace(RECIPE, epsilon=0.001))


def test_mislabelled_records_have_another_class_and_all_else_is_as_it_was(images):
    train, _ = images
    records = np.arange(0, 2000, 2)
    changed = mislabelled(train, records, stream=STREAM.child("classes"))
    moved = (changed.labels - train.labels) % 10
    assert (np.flatnonzero(moved) == records).all()
    assert set(moved[records].tolist()) == set(range(1, 10))
    assert changed.pixels is train.pixels
