import copy

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F

from dpaudit.errors import UsageError

pytest.importorskip("opacus")

from opacus import GradSampleModule
from opacus.validators import ModuleValidator

from dpaudit.training.models import MODELS, make_model
from dpaudit.training.models.norms import NORMS, FrozenNorm2d, with_norm

# Opacus' own, on a first layer
pytestmark = pytest.mark.filterwarnings("ignore:Full backward hook is firing")

CIFAR = [name for name, model in MODELS.items() if model.data == "cifar10"]
ONE_FAST = [
    pytest.param(name, marks=[] if name == "resnet20" else pytest.mark.slow) for name in CIFAR
]


def network(name, *, seed=11, dtype=torch.float64):
    """A network whose norms are no identity: random affine parts and running statistics."""
    model, rng = make_model(name, seed=seed), torch.Generator().manual_seed(seed)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            for value in (module.weight.data, module.running_var):
                value.uniform_(0.5, 1.5, generator=rng)
            for value in (module.bias.data, module.running_mean):
                value.normal_(0, 0.3, generator=rng)
    return model.to(dtype)


def without_dropout(model):
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return model


def records(n, *, seed=11, dtype=torch.float64, shape=(3, 32, 32)):
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(n, *shape, generator=rng, dtype=dtype), torch.randint(
        10, (n,), generator=rng
    )


def flat(values):
    return torch.cat([v.detach().reshape(-1) for v in values])


def one_by_one(model, x, y):
    """The slow oracle: a backward pass for each record, alone in its batch; shape (n, d)."""
    found = []
    for a, b in zip(x, y, strict=True):
        model.zero_grad()
        F.cross_entropy(model(a[None]), b[None]).backward()
        found.append(flat([p.grad for p in model.parameters()]))
    return torch.stack(found)


def by_vmap(model, x, y):
    parameters = {k: p.detach() for k, p in model.named_parameters()}

    def loss(p, a, b):
        return F.cross_entropy(functional_call(model, p, (a[None],)), b[None])

    found = vmap(grad(loss), in_dims=(None, 0, 0))(parameters, x, y)
    return torch.cat([g.reshape(len(x), -1) for g in found.values()], 1)


def by_opacus(model, x, y):
    wrapped = GradSampleModule(copy.deepcopy(model), loss_reduction="sum")
    F.cross_entropy(wrapped(x), y, reduction="sum").backward()
    return torch.cat([p.grad_sample.reshape(len(x), -1) for p in wrapped.parameters()], 1)


def agree(found, expected, *, relative=1e-9):
    assert found.shape == expected.shape
    assert bool(((found - expected).norm(dim=1) <= relative * expected.norm(dim=1)).all())


@pytest.mark.parametrize("name", ONE_FAST)
def test_frozen_is_batchnorm_in_evaluation_mode_in_either_mode(name):
    model, (x, y) = network(name).eval(), records(2)
    frozen = with_norm(model, "frozen")
    assert frozen.training
    torch.testing.assert_close(frozen(x), model(x), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(frozen.eval()(x), model(x), rtol=1e-9, atol=1e-12)
    agree(one_by_one(frozen, x, y), one_by_one(model, x, y))
    before = [b.clone() for b in frozen.buffers()]
    frozen.train()(x)
    assert all(torch.equal(a, b) for a, b in zip(before, frozen.buffers(), strict=True))


@pytest.mark.parametrize("name", ONE_FAST)
def test_record_is_batchnorm_on_batches_of_one(name):
    """The published experiment's gradients: the BatchNorm network in training mode, per record."""
    model, (x, y) = without_dropout(network(name)), records(2)
    alone = with_norm(model, "record")
    torch.testing.assert_close(
        alone(x), torch.cat([model(a[None]) for a in x]), rtol=1e-9, atol=1e-12
    )
    agree(by_vmap(alone, x, y), one_by_one(model, x, y))


# 24, 96, 144 channels are no multiples of 32
@pytest.mark.parametrize("name", ["resnet20", "mobilenet-v2"])
def test_group_is_opacus_replacement_with_the_weights_kept(name):
    model, (x, _) = without_dropout(network(name)), records(3)
    fixed = ModuleValidator.fix(model).double()
    fixed.load_state_dict(model.state_dict(), strict=False)  # Opacus starts its own at 1 and 0
    assert all(
        torch.equal(a, b) for a, b in zip(fixed.parameters(), model.parameters(), strict=True)
    )
    assert torch.equal(with_norm(model, "group")(x), fixed(x))


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", ONE_FAST)
def test_vmap_and_opacus_give_every_record_its_own_gradient(name, norm):
    model, (x, y) = with_norm(network(name), norm), records(2)
    assert ModuleValidator.is_valid(model)
    alone = one_by_one(model, x, y)
    agree(by_vmap(model, x, y), alone)
    # both in one batch: records that saw each other would differ
    agree(by_opacus(model, x, y), alone)


@pytest.mark.parametrize("name", ["lenet5", "lenet5-tanh", "mlp", "cnn"])
def test_a_network_without_batchnorm_is_copied(name):
    model, (x, y) = make_model(name, seed=4).double(), records(3, shape=(1, 28, 28))
    for norm in NORMS:
        same = with_norm(model, norm)
        assert same is not model
        assert same.state_dict().keys() == model.state_dict().keys()
        assert torch.equal(same(x), model(x))
        agree(by_vmap(same, x, y), one_by_one(model, x, y))
        agree(by_opacus(same, x, y), one_by_one(model, x, y))


@pytest.mark.parametrize(
    ("name", "norm"),
    [
        *(("resnet20", norm) for norm in NORMS),
        *((name, "group") for name in CIFAR if name != "resnet20"),
    ],
)
def test_the_flat_gradient_means_the_same_coordinates(name, norm):
    with torch.device("meta"):
        model = MODELS[name].make()
    before = {k: v.shape for k, v in model.state_dict().items()}
    converted = with_norm(model, norm)
    # the given one is left as it is
    assert {k: v.shape for k, v in model.state_dict().items()} == before
    named = [(k.replace(".affine.", "."), p.shape) for k, p in converted.named_parameters()]
    assert named == [(k, p.shape) for k, p in model.named_parameters()]
    assert not any(isinstance(m, nn.BatchNorm2d | nn.Dropout) for m in converted.modules())
    kind = {"frozen": FrozenNorm2d, "group": nn.GroupNorm, "record": nn.InstanceNorm2d}[norm]
    kinds = [
        sum(isinstance(m, k) for m in net.modules())
        for net, k in ((converted, kind), (model, nn.BatchNorm2d))
    ]
    assert kinds[0] == kinds[1] > 0


@pytest.mark.parametrize("norm", NORMS)
def test_the_copy_shares_nothing(norm):
    model = network("resnet20")
    converted = with_norm(model, norm)
    assert torch.equal(flat(converted.parameters()), flat(model.parameters()))
    kept = flat(model.state_dict().values())
    with torch.no_grad():
        for value in (*converted.parameters(), *converted.buffers()):
            value += 1
    assert torch.equal(flat(model.state_dict().values()), kept)


def test_frozen_statistics_do_not_follow_the_layer_they_came_from():
    norm = nn.BatchNorm2d(2)
    frozen = FrozenNorm2d(norm)
    norm(torch.full((1, 2, 3, 3), 5.0))
    assert norm.running_mean.all()
    assert not frozen.constants.mean.any()
    assert bool((frozen.constants.var == 1).all())


def test_dropout_is_off():
    model, (x, _) = make_model("vgg19-bn", seed=1), records(2, dtype=torch.float32)
    assert not torch.equal(
        model.classifier(torch.ones(2, 512)), model.classifier(torch.ones(2, 512))
    )
    converted = with_norm(model, "record")
    assert converted.training
    assert torch.equal(converted(x), converted(x))


@pytest.mark.parametrize("norm", NORMS)
def test_other_shapes_of_model(norm):
    root = nn.BatchNorm2d(6).double()  # the model itself
    # one layer in two places: both are replaced, and keep one set of parameters
    shared = nn.BatchNorm2d(3)
    twice = nn.Sequential(shared, nn.Conv2d(3, 3, 3), shared, nn.BatchNorm2d(3, affine=False))
    twice[0].weight.requires_grad_(False)
    assert not isinstance(with_norm(root, norm), nn.BatchNorm2d)
    converted = with_norm(twice, norm)
    assert not any(isinstance(m, nn.BatchNorm2d) for m in converted.modules())
    assert [p.requires_grad for p in converted.parameters()] == [False, True, True, True]


def test_usage_errors():
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2, track_running_stats=False))
    with pytest.raises(UsageError, match="norm=batch"):
        with_norm(model, "batch")
    with pytest.raises(UsageError, match="norm=frozen"):
        with_norm(model, "frozen")
    with_norm(model, "record")
    for norm in NORMS:
        with pytest.raises(UsageError, match=r"BatchNorm1d"):
            with_norm(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)), norm)
