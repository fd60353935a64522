import numpy as np
import pytest
import torch

from dpaudit import registry
from dpaudit.accounting import gaussian_epsilon
from dpaudit.errors import UsageError
from dpaudit.randomness import KeyedStream
from dpaudit.testing import check_host

pytest.importorskip("opacus")

from dpaudit.queries.gradients.step import DpSgdStep
from dpaudit.training.data import load_images
from dpaudit.training.models import make_model
from dpaudit.training.plain_training import train


@pytest.fixture(scope="module")
def host():
    return DpSgdStep(model="mlp", batch=16, neighbour="remove", reduction="mean", clip=0.5)


@pytest.mark.parametrize(
    "options",
    [
        "model=lenet5,batch=8",
        "model=mlp,batch=16,neighbour=replace,reduction=sum,clip=4",
        "model=mlp,batch=7,neighbour=replace,reduction=mean,steps=3",
    ],
)
def test_conforms(options):
    check_host(registry.create("hosts", f"dpsgd-step:{options}"))


def slow_sum(host, records, *, seed=0, model="mlp"):
    """Clip and add in float64, a record and a backward pass at a time."""
    network = make_model(model, seed=seed).double()
    total = 0
    for record in records:
        x, y = host.images.batch([record])
        network.zero_grad()
        torch.nn.functional.cross_entropy(network(x.double()), y).backward()
        g = torch.cat([p.grad.reshape(-1) for p in network.parameters()])
        total = total + g * min(1.0, host.clip / float(g.norm()))
    return total.numpy()


def test_the_value_is_the_sum_of_clipped_gradients(host, stream):
    records = host.pair(stream=stream).first
    np.testing.assert_allclose(host.value(records), slow_sum(host, records), atol=2e-6)


def test_neighbours_differ_in_one_record(host, stream):
    pair = host.pair(stream=stream)
    assert len(set(pair.first)) == 16
    (gone,) = set(pair.first) - set(pair.second)
    assert pair.second == tuple(r for r in pair.first if r != gone)
    other = DpSgdStep(model="mlp", batch=16, neighbour="replace").pair(stream=stream)
    assert sum(a != b for a, b in zip(other.first, other.second, strict=True)) == 1
    assert len(set(other.first) | set(other.second)) == 17


def test_differences_are_those_of_the_values(host):
    direction = KeyedStream.from_seed(3).numpy().standard_normal(host.dim)
    got = host.differences(direction)
    first = host.pair(stream=KeyedStream.from_seed("dpsgd-step").child("differences")).first
    for i in (0, 7, 15):
        rest = [r for r in first if r != first[i]]
        want = (host.value(first) - host.value(rest)) @ direction / 16
        assert float(got[i]) == pytest.approx(want, rel=1e-3)


@pytest.mark.parametrize("secure", [False, True])
def test_a_release_is_the_value_and_torchs_noise_in_float32(host, stream, secure):
    records = host.pair(stream=stream).first
    got = host.releases(records, 2, noise_multiplier=3.0, secure_mode=secure, stream=stream)
    generator = torch.Generator().manual_seed(int.from_bytes(stream.entropy()[:4], "big"))
    value = torch.from_numpy(host.value(records)).float()
    shapes = [p.shape for p in make_model("mlp").parameters()]
    for row in got:
        noise = []
        for shape in shapes:
            if secure:
                torch.normal(0.0, 1.5, (1, 1), generator=generator)
                four = [torch.normal(0.0, 1.5, shape, generator=generator) for _ in range(4)]
                noise.append((((four[0] + four[1]) + four[2]) + four[3]) / 2)
            else:
                noise.append(torch.normal(0.0, 1.5, shape, generator=generator))
        want = (value + torch.cat([n.reshape(-1) for n in noise])) / 16
        assert np.array_equal(row, want.double().numpy())


def test_releases_are_repeatable_and_fresh(host, stream):
    records = host.pair(stream=stream).first
    options = {"noise_multiplier": 1.0, "secure_mode": True}
    one = host.releases(records, 3, **options, stream=stream)
    assert np.array_equal(one, host.releases(records, 3, **options, stream=stream))
    assert not np.array_equal(one, host.releases(records, 3, **options, stream=stream.child(1)))
    assert len(np.unique(one[:, 0])) == 3


def test_updates_give_the_gradient_back_where_weights_are_small(host, stream):
    records = host.pair(stream=stream).first
    options = {"noise_multiplier": 1.0, "secure_mode": False, "stream": stream}
    before = host.value(records)
    gradients = host.releases(records, 2, **options)
    weights = host.updates(records, 2, lr=0.5, **options)
    assert np.array_equal(host.value(records), before)  # its own weights are as they were
    found, certain = host.gradients_of(weights, lr=0.5)
    assert 0.02 < certain.mean() < 0.98
    assert np.array_equal(found[certain], gradients[certain])
    # at 10⁻³ of the learning rate most low bits are gone
    _, fewer = host.gradients_of(host.updates(records, 2, lr=5e-4, **options), lr=5e-4)
    assert fewer.mean() < certain.mean() / 4


@pytest.mark.filterwarnings("ignore:divide by zero")  # Opacus at sample rate 1
def test_what_opacus_claims_for_a_step_is_the_gaussian_mechanism():
    from opacus.accountants import PRVAccountant

    accountant = PRVAccountant()
    accountant.step(noise_multiplier=2.0, sample_rate=1.0)
    claimed = accountant.get_epsilon(delta=1e-5)
    assert claimed == pytest.approx(gaussian_epsilon(1e-5, sigma=2.0), abs=0.03)


def test_training_is_repeatable_and_learns():
    images = load_images("synthetic")
    losses = []
    for steps in (0, 60, 60):
        model = make_model("mlp")
        train(model, images, steps=steps)
        x, y = images.batch(range(256))
        losses.append(float(torch.nn.functional.cross_entropy(model(x), y).detach()))
    assert losses[1] == losses[2] < 0.8 * losses[0]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"model": "lenet"}, "model=lenet"),
        ({"data": "cifar"}, "data=cifar"),
        ({"batch": 1}, "batch=1"),
        ({"batch": 2048}, "2047"),
        ({"clip": 0.0}, "clip=0"),
        ({"clip": float("nan")}, "clip=nan"),
        ({"neighbour": "add"}, "neighbour=add"),
        ({"reduction": "none"}, "reduction=none"),
        ({"seed": -1}, "seed=-1"),
        ({"steps": -1}, "steps=-1"),
    ],
)
def test_bad_options(options, says):
    with pytest.raises(UsageError, match=says):
        DpSgdStep(**{"model": "mlp", **options})


@pytest.mark.parametrize(
    ("options", "says"),
    [({"n": 0}, "n=0"), ({"noise_multiplier": 0.0}, "noise_multiplier=0"), ({"lr": -1.0}, "lr=-1")],
)
def test_bad_releases(host, stream, options, says):
    settings = {"n": 1, "lr": 0.1, "noise_multiplier": 1.0, "secure_mode": False}
    settings |= {"stream": stream, **options}
    with pytest.raises(UsageError, match=says):
        host.updates((0, 1), settings.pop("n"), **settings)
