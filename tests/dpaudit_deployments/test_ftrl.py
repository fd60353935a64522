"""dp-ftrl: factorisations and their sensitivity against oracles, and the host that uses them."""

import functools
import itertools

import numpy as np
import pytest
import torch
from scipy.linalg import toeplitz

from dpaudit import registry
from dpaudit.accounting import gaussian_epsilon
from dpaudit.errors import UsageError
from dpaudit.noise.gaussian import Gaussian
from dpaudit.randomness import KeyedStream
from dpaudit.testing import check_host
from dpaudit.training.data import load_images
from dpaudit.training.models import make_model
from dpaudit_deployments.ftrl.factorisation import (
    FACTORISATIONS,
    banded_matrix,
    factorisation,
    root_coefficients,
)
from dpaudit_deployments.ftrl.host import (
    ClientUpdates,
    CorrelatedRelease,
    DpFtrl,
    sensitivity,
    shards,
)

BANDS = {"toeplitz": 4, "banded": 4}


def made(name, steps=16, **options):
    return factorisation(name, steps=steps, bands=BANDS.get(name, 0), **options)


@pytest.mark.parametrize("restart", [0, 8])
@pytest.mark.parametrize("name", FACTORISATIONS)
def test_a_run_is_decoded_by_what_is_there_and_whitened_by_its_covariance(name, restart):
    how = made(name, restart=restart)
    np.testing.assert_allclose(how.decoder @ how.strategy, np.eye(16), atol=1e-14)
    assert (np.diff(how.due) >= 0).all()
    late = how.due[None, :] > np.arange(16)[:, None]
    assert not how.decoder[late].any()
    covariance = how.decoder @ how.decoder.T
    np.testing.assert_allclose(how.whitening @ covariance @ how.whitening.T, np.eye(16), atol=1e-13)
    if how.strategy.shape == (16, 16):
        np.testing.assert_allclose(how.whitening, how.strategy, atol=1e-13)
    np.testing.assert_allclose(how.prefix, np.tril(np.ones((16, 16))) @ how.decoder, atol=1e-15)


def test_a_tree_adds_the_nodes_of_the_binary_digits():
    how = made("tree", steps=13)
    assert set(np.unique(how.prefix)) == {0, 1}
    assert how.prefix.sum(1).tolist() == [t.bit_count() for t in range(1, 14)]


@pytest.mark.parametrize("steps", [1, 7, 8, 13])
def test_honaker_is_the_best_unbiased_estimate_from_complete_nodes(steps):
    """Among all B with B·C = A and row t on the nodes complete by t, the least norm."""
    how = made("honaker", steps=steps)
    assert len(how.strategy) == 2 * steps - steps.bit_count()
    for t in range(1, steps + 1):
        nodes = how.strategy[how.due < t, :t]
        best = np.ones(t) @ np.linalg.pinv(nodes)
        np.testing.assert_allclose(how.prefix[t - 1, how.due < t], best, atol=1e-12)


def test_the_toeplitz_root_is_the_closed_form():
    """Fichtenberger, Henzinger and Upadhyay 2023: binomial coefficients; C·C = A."""
    root = toeplitz(root_coefficients(9), np.zeros(9))
    np.testing.assert_allclose(root @ root, np.tril(np.ones((9, 9))), atol=1e-14)


@pytest.mark.parametrize(
    ("name", "bands", "mean", "largest"),
    [
        ("identity", 0, 32.5, 64),
        ("toeplitz", 1, 32.5, 64),
        ("toeplitz", 8, 7.09676191688255, None),
        ("toeplitz", 64, 4.748230282295368, None),
        ("banded", 8, 6.867109187094038, 11.294945885415537),
        ("banded", 64, 4.4093972039438, 5.301238386335483),
    ],
)
def test_errors_are_those_of_jax_privacy(name, bands, mean, largest):
    """64 steps, sensitivity 1: jax_privacy 2.0.0's optimize_banded_toeplitz and banded.optimize.

    Its dense.optimize, without bands, has 4.409448.
    """
    how = factorisation(name, steps=64, bands=bands)
    once = sensitivity(how.strategy)
    assert once.exact
    assert once.value == pytest.approx(1, abs=1e-12)
    assert how.mean_error == pytest.approx(mean, rel=1e-8)
    if largest is not None:
        assert how.max_error == pytest.approx(largest, rel=1e-5)


def brute_force(strategy, count, separation):
    """The largest ‖C·u‖ over all allowed sets of steps and all signs."""
    n, best = strategy.shape[1], 0.0
    for size in range(1, count + 1):
        for steps in itertools.combinations(range(n), size):
            if all(b - a >= separation for a, b in itertools.pairwise(steps)):
                for signs in itertools.product((1, -1), repeat=size - 1):
                    moved = strategy[:, list(steps)] @ np.array((1, *signs))
                    best = max(best, float(np.linalg.norm(moved)))
    return best


@pytest.mark.parametrize("name", FACTORISATIONS)
@pytest.mark.parametrize(("count", "separation"), [(1, 1), (2, 4), (3, 4), (3, 5), (2, 7), (4, 2)])
def test_sensitivity_is_that_of_every_pattern_or_above(name, count, separation):
    strategy = made(name, steps=12).strategy
    found = sensitivity(strategy, participations=count, separation=separation)
    oracle = brute_force(strategy, count, separation)
    if found.exact:
        assert found.value == pytest.approx(oracle, rel=1e-12)
    else:
        assert oracle * (1 - 1e-12) <= found.value <= 1.3 * oracle
    banded = name in BANDS and separation >= BANDS[name]
    assert found.exact is (count == 1 or name == "identity" or banded)


def test_sensitivity_with_entries_of_both_signs_is_not_below_any_pattern():
    strategy = np.random.default_rng(1).standard_normal((9, 9))
    found = sensitivity(strategy, participations=3, separation=2)
    assert found.value >= brute_force(strategy, 3, 2)


def test_bounds_are_those_of_jax_privacy():
    """get_min_sep_sensitivity_upper_bound of jax_privacy 2.0.0, Toeplitz root of 24 steps."""
    root = toeplitz(root_coefficients(24), np.zeros(24))
    for (count, separation), value in {
        (1, 1): 1.4403405868318977,
        (2, 4): 2.4592888440191447,
        (3, 8): 3.020356369838522,
        (4, 5): 3.9788708791575305,
    }.items():
        found = sensitivity(root, participations=count, separation=separation)
        assert found.value == pytest.approx(value, rel=1e-12)


def test_a_restarted_tree_is_what_dp_accounting_composes():
    """Kairouz et al. 2021, appendix D: one participation per tree, ⌈log2(n + 1)⌉ nodes each."""
    dp_accounting = pytest.importorskip("dp_accounting")
    noise, delta, epochs = 6.0, 1e-5, 3
    relation = dp_accounting.NeighboringRelation.REPLACE_SPECIAL
    for steps in (1, 2, 5, 8, 21):
        how = factorisation("honaker", steps=epochs * steps, restart=steps)
        found = sensitivity(how.strategy, participations=epochs, separation=steps)
        assert found.exact
        accountant = dp_accounting.rdp.RdpAccountant([2.0, 8.0], neighboring_relation=relation)
        event = dp_accounting.SingleEpochTreeAggregationDpEvent(noise, steps)
        accountant.compose(dp_accounting.SelfComposedDpEvent(event, epochs))
        ours = [order * found.value**2 / (2 * noise**2) for order in (2, 8)]
        np.testing.assert_allclose(accountant._rdp, ours, rtol=1e-12)
        exact = gaussian_epsilon(delta, sigma=noise, sensitivity=found.value)
        fine = dp_accounting.rdp.RdpAccountant(neighboring_relation=relation)
        fine.compose(dp_accounting.SelfComposedDpEvent(event, epochs))
        assert 0.7 * fine.get_epsilon(delta) < exact < fine.get_epsilon(delta)


def test_epsilon_is_that_of_dp_accountings_gaussian_mechanism():
    dp_accounting = pytest.importorskip("dp_accounting")
    how = factorisation("banded", steps=16, bands=4)
    found = sensitivity(how.strategy, participations=4, separation=4)
    ours = gaussian_epsilon(1e-5, sigma=3.0, sensitivity=found.value)
    assert ours == pytest.approx(dp_accounting.get_epsilon_gaussian(3.0 / found.value, 1e-5), 1e-9)


def test_a_kept_matrix_cannot_be_changed():
    with pytest.raises(ValueError, match="read-only"):
        banded_matrix(8, 2)[0, 0] = 1


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"name": "tre", "steps": 8}, "factorisation=tre.*tree"),
        ({"name": "tree", "steps": 8, "restart": 3}, "multiple of restart"),
        ({"name": "tree", "steps": 0}, "steps=0"),
        ({"name": "tree", "steps": 8, "bands": 2}, "bands=2: tree takes none"),
        ({"name": "banded", "steps": 8}, "bands=0: banded takes 1 … 8"),
        ({"name": "banded", "steps": 8, "restart": 4, "bands": 5}, "takes 1 … 4"),
    ],
    ids=str,
)
def test_factorisations_that_do_not_fit_are_refused(options, match):
    with pytest.raises(UsageError, match=match):
        factorisation(options.pop("name"), **options)
    with pytest.raises(UsageError, match="separation=0"):
        sensitivity(np.eye(3), separation=0)


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
        moved = host.factors.strategy[:, list(own.steps)] @ own.updates
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
def test_hosts_that_do_not_fit_are_refused(options, match):
    with pytest.raises(UsageError, match=match):
        DpFtrl(**{**SMALL, "factorisation": "tree", **options})
