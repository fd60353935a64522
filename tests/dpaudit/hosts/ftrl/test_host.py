"""The host dp-ftrl: who takes part when, what a client sends, what is released."""

import functools

import numpy as np
import pytest
import torch

from dpaudit import registry
from dpaudit.errors import UsageError
from dpaudit.hosts.ftrl.clients import ClientUpdates, shards
from dpaudit.hosts.ftrl.factorisation import FACTORISATIONS, factorisation
from dpaudit.hosts.ftrl.host import DpFtrl
from dpaudit.hosts.ftrl.release import CorrelatedRelease
from dpaudit.noise.gaussian import Gaussian
from dpaudit.randomness import KeyedStream
from dpaudit.testing import check_host
from dpaudit.training.data import load_images
from dpaudit.training.models import make_model

STREAM = KeyedStream.from_seed("dp-ftrl tests")
SMALL = {"model": "mlp", "data": "synthetic", "cohort": 8, "clients": 40, "steps": 12}


def none():
    return registry.create("mitigations", "none")


class Counted:
    """Noise that says which row it is of: row i is 10 ** -i everywhere."""

    sigma, dim, claim = 1.0, None, "gaussian:sigma=1"

    def __init__(self):
        self.rows = 0

    def sample(self, n, d, *, stream, dtype=None, device=None):
        self.rows += 1
        return np.full((n, d), 10.0 ** (1 - self.rows))


@functools.cache
def small(**options):
    return DpFtrl(**SMALL, **options)


@pytest.mark.parametrize("name", ["identity", "tree", "honaker"])
def test_conforms(name):
    check_host(small(factorisation=name))


@pytest.mark.parametrize("name", FACTORISATIONS)
def test_a_release_is_the_updates_plus_the_decoded_noise(name):
    how = factorisation(name, steps=8, bands=3 if name in ("toeplitz", "banded") else 0)
    updates = np.random.default_rng(1).standard_normal((8, 4))
    release = CorrelatedRelease(how, Counted(), none(), dim=4, stream=STREAM)
    got = np.array([release.step(x) for x in updates])
    noise = np.repeat(10.0 ** -np.arange(len(how.strategy))[:, None], 4, axis=1)
    np.testing.assert_allclose(got, updates + how.decoder @ noise, atol=1e-13)


def test_secure_aggregation_stands_in_for_the_noise():
    how = factorisation("tree", steps=8)
    mitigation = registry.create("mitigations", "distributed-gaussian:backdoored=0")
    release = CorrelatedRelease(how, Gaussian(sigma=2.0), mitigation, dim=500, stream=STREAM)
    got = how.strategy @ np.array([release.step(np.zeros(500)) for _ in range(8)])
    assert np.std(got) == pytest.approx(mitigation.scale(2.0), rel=0.05)
    assert abs(np.corrcoef(got)[np.triu_indices(8, 1)]).max() < 0.2


def test_clients_take_turns():
    host = small(factorisation="toeplitz", bands=2)
    assert (host.separation, host.participations, host.exact) == (5, 3, True)
    first = [set(host.cohort_at(t)) for t in range(5)]
    assert len(set.union(*first)) == 40
    assert all(set(host.cohort_at(t)) == first[t % 5] for t in range(12))
    assert host.sensitivity == pytest.approx(np.sqrt(3), rel=1e-4)


def test_a_client_moves_the_whole_run_by_the_sensitivity_at_most():
    host = small(factorisation="banded", bands=5, clip=0.01)
    watched = tuple(int(c) for c in host.cohort_at(0)[:2])
    run = host.train(Gaussian(sigma=1e-9), none(), stream=STREAM, watched=watched)
    for own in run.contributions.values():
        assert own.steps == (0, 5, 10)
        moved = host.factorisation.strategy[:, list(own.steps)] @ own.updates
        assert 0.9 * host.sensitivity < np.linalg.norm(moved) <= host.sensitivity
    np.testing.assert_allclose(run.noisy, run.updates, atol=1e-6)
    assert np.linalg.norm(run.updates[0]) <= host.cohort * host.clip


def test_training_learns():
    host = DpFtrl(model="mlp", data="synthetic", cohort=64, steps=60, factorisation="tree", lr=1.0)
    run = host.train(Gaussian(sigma=0.01), none(), stream=STREAM)
    assert host.accuracy(run.weights).value > 0.5


def test_one_record_and_one_step_send_the_gradient_and_two_steps_two():
    network, images = make_model("mlp", seed=1), load_images("synthetic")
    records, weights = np.array([[5, 6]]), ClientUpdates(network, steps=1, lr=1).weights()

    def gradient(moved):
        model = make_model("mlp", seed=1)
        torch.nn.utils.vector_to_parameters(moved, model.parameters())
        x, y = images.batch([5, 6])
        loss = torch.nn.functional.cross_entropy(model(x), y)
        return torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, model.parameters())])

    first = gradient(weights)
    for steps, want in ((1, first), (2, first + gradient(weights - 0.3 * first))):
        of = ClientUpdates(network, steps=steps, lr=0.3)
        (got,) = of.clipped(weights, images, records, clip=1e9)
        assert torch.allclose(got[0], want, atol=1e-6)
        (short,) = of.clipped(weights, images, records, clip=0.5)
        assert torch.allclose(short[0], want * 0.5 / want.norm(), atol=1e-6)


def test_shards_by_label_have_a_class_or_two():
    images = load_images("synthetic")
    iid, labels = (shards(images, records=20, how=how, stream=STREAM) for how in ("iid", "labels"))
    assert iid.shape == labels.shape == (102, 20)
    for found in (iid, labels):
        assert len(np.unique(found)) == found.size
    classes = [len(np.unique(images.labels[client])) for client in labels]
    assert max(classes) <= 3
    assert np.mean([len(np.unique(images.labels[client])) for client in iid]) > 6


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"model": "ml"}, "model=ml"),
        ({"clip": 0.0}, "clip=0"),
        ({"momentum": 1.0}, "momentum=1"),
        ({"cohort": 41}, "cohort=41: must lie in 1 … 40"),
        ({"clients": 3000}, "clients=3000: the data have 2048"),
        ({"records": 0}, "records=0"),
        ({"shards_by": "odd"}, "shards=odd"),
        ({"model": "resnet20"}, "resnet20 takes"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused(options, match):
    with pytest.raises(UsageError, match=match):
        DpFtrl(**{**SMALL, "factorisation": "tree", **options})
