"""The networks, against their publications, and norms that let every record stand alone."""

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
from dpaudit.training.models.networks import NORMS, FrozenNorm2d, with_norm

SHAPE = {"mnist": (1, 28, 28), "cifar10": (3, 32, 32)}


def on_meta(name):
    with torch.device("meta"):
        return MODELS[name].make()


@pytest.mark.parametrize("name", MODELS)
def test_count_shape_and_ten_classes(name):
    model = on_meta(name)
    assert sum(p.numel() for p in model.parameters()) == MODELS[name].parameters
    assert model(torch.zeros(2, *SHAPE[MODELS[name].data], device="meta")).shape == (2, 10)
    assert model.training
    # Opacus' hooks see what a layer was given
    assert not any(getattr(m, "inplace", False) for m in model.modules())


@pytest.mark.parametrize("name", ["cnn", "resnet20", "mobilenet-v2"])
def test_weights_come_from_the_seed_alone(name):
    before = torch.get_rng_state()
    model, again, other = (make_model(name, seed=s) for s in (5, 5, 6))
    assert torch.equal(before, torch.get_rng_state())  # the user's generator
    assert all(
        torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True)
    )
    assert not all(
        torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True)
    )


def test_models_that_are_none():
    with pytest.raises(UsageError, match="model=lenet"):
        make_model("lenet")
    for seed in (-1, 2**32):
        with pytest.raises(UsageError, match=r"seed="):
            make_model("mlp", seed=seed)


def test_lenet5_and_mlp_are_as_they_always_were():
    """Recorded runs name a seed only: the same layers in the same order, and no other draws."""
    expected = {
        "lenet5": lambda: [
            *(nn.Conv2d(1, 6, 5), nn.Conv2d(6, 16, 5)),
            *(nn.Linear(*s) for s in ((400, 120), (120, 84), (84, 10))),
        ],
        "mlp": lambda: [nn.Linear(784, 16), nn.Linear(16, 10)],
    }
    for name, layers in expected.items():
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(17)
            parameters = [p for layer in layers() for p in layer.parameters()]
            x = torch.randn(3, 1, 28, 28)
        model = make_model(name, seed=17)
        assert all(torch.equal(a, b) for a, b in zip(model.parameters(), parameters, strict=True))
        y = x
        if name == "lenet5":
            y = F.max_pool2d(F.conv2d(y, *parameters[:2], padding=2).relu(), 2)
            y = F.max_pool2d(F.conv2d(y, *parameters[2:4]).relu(), 2)
            parameters = parameters[4:]
        y = y.reshape(3, -1)
        for i in range(0, len(parameters), 2):
            y = F.linear(y if i == 0 else y.relu(), *parameters[i : i + 2])
        assert torch.equal(model(x), y)


def test_lenet5_tanh_is_lecuns():
    model = make_model("lenet5-tanh", seed=3)
    p = list(model.parameters())
    x = torch.randn(4, 1, 28, 28, generator=torch.Generator().manual_seed(3))
    y = F.avg_pool2d(torch.tanh(F.conv2d(x, p[0], p[1], padding=2)), 2)
    y = F.avg_pool2d(torch.tanh(F.conv2d(y, p[2], p[3])), 2).reshape(4, 400)
    y = torch.tanh(F.linear(torch.tanh(F.linear(y, p[4], p[5])), p[6], p[7]))
    torch.testing.assert_close(model(x), F.linear(y, p[8], p[9]))


def test_cnn_is_opacus_mnist_example():
    model = make_model("cnn", seed=3)
    p = list(model.parameters())
    x = torch.randn(4, 1, 28, 28, generator=torch.Generator().manual_seed(4))
    y = F.max_pool2d(F.relu(F.conv2d(x, p[0], p[1], stride=2, padding=3)), 2, 1)  # (b, 16, 13, 13)
    y = F.max_pool2d(F.relu(F.conv2d(y, p[2], p[3], stride=2)), 2, 1)  # (b, 32, 4, 4)
    y = F.linear(F.relu(F.linear(y.reshape(-1, 32 * 4 * 4), p[4], p[5])), p[6], p[7])
    torch.testing.assert_close(model(x), y)


def published_names(blocks):
    """The keys of the published state dicts: convolutions, their norms, no shortcut has any."""
    places = [(f"layer{s}.{b}", i) for s in (1, 2, 3) for b in range(blocks) for i in (1, 2)]
    units = [(f"{at}.conv{i}", f"{at}.bn{i}") for at, i in places]
    names = set()
    for conv, bn in [("conv1", "bn1"), *units]:
        names |= {f"{conv}.weight"} | {
            f"{bn}.{k}" for k in ("weight", "bias", "running_mean", "running_var")
        }
    return names | {"linear.weight", "linear.bias"}


@pytest.mark.parametrize(("name", "blocks"), [("resnet20", 3), ("resnet56", 9)])
def test_cifar_resnets_are_the_published_ones(name, blocks):
    """Names and function, computed from the state dict alone, with pixel-wise shortcuts."""
    model = make_model(name, seed=8)
    rng = torch.Generator().manual_seed(8)
    for key, value in model.state_dict().items():
        if "running" in key or ("bn" in key and value.dim()):
            value.uniform_(0.5, 1.5, generator=rng)
    model = model.double().eval()
    d = {k: v for k, v in model.state_dict().items() if not k.endswith("num_batches_tracked")}
    assert set(d) == published_names(blocks)

    def unit(x, conv, bn, stride=1):
        y = F.conv2d(x, d[f"{conv}.weight"], stride=stride, padding=1)
        mean, var, weight, bias = (
            d[f"{bn}.{k}"][:, None, None] for k in ("running_mean", "running_var", "weight", "bias")
        )
        return (y - mean) / (var + 1e-5).sqrt() * weight + bias

    x = torch.randn(2, 3, 32, 32, generator=rng, dtype=torch.float64)
    y = unit(x, "conv1", "bn1").relu()
    for stage in (1, 2, 3):
        for block in range(blocks):
            at = f"layer{stage}.{block}"
            stride = 2 if stage > 1 and block == 0 else 1
            inner = unit(y, f"{at}.conv1", f"{at}.bn1", stride).relu()
            inner = unit(inner, f"{at}.conv2", f"{at}.bn2")
            around = torch.zeros_like(inner)
            first = (around.shape[1] - y.shape[1]) // 2
            for i in range(around.shape[2]):
                for j in range(around.shape[3]):
                    around[:, first : first + y.shape[1], i, j] = y[:, :, stride * i, stride * j]
            y = (inner + around).relu()
    expected = F.linear(y.mean((2, 3)), d["linear.weight"], d["linear.bias"])
    torch.testing.assert_close(model(x), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("resnet20", [32, 16, 8]),
        ("resnet56", [32, 16, 8]),
        ("vgg19-bn", [32, 16, 8, 4, 2]),
        ("resnet50", [32, 16, 8, 4, 2]),  # 32 before the max-pool, 16 after it
        ("mobilenet-v2", [32, 16, 8, 4]),
    ],
)
def test_maps_shrink_as_described_and_no_norm_sees_a_single_pixel(name, expected):
    model, found = on_meta(name), set()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.register_forward_hook(lambda _m, _i, y: found.add(y.shape[-1]))
    model(torch.zeros(2, 3, 32, 32, device="meta"))
    assert sorted(found, reverse=True) == expected


@pytest.mark.slow
@pytest.mark.parametrize("name", ["vgg19-bn", "resnet50", "mobilenet-v2"])
def test_first_weights(name):
    """Convolutions N(0, 2/fan_out), linear layers N(0, 0.01²) (torch's in ResNet-50), biases 0."""
    for module in make_model(name, seed=2).modules():
        torchs = name == "resnet50" and isinstance(module, nn.Linear)
        if isinstance(module, nn.Conv2d):  # groups or not: torch's rule
            wanted = 2 / (module.out_channels * module.kernel_size[0] ** 2)
        elif isinstance(module, nn.Linear):
            wanted = 1 / (3 * module.in_features) if torchs else 1e-4
        else:
            assert not isinstance(module, nn.BatchNorm2d) or bool((module.weight == 1).all())
            continue
        near = 8 * (2 / module.weight.numel()) ** 0.5
        assert module.weight.square().mean().item() == pytest.approx(wanted, rel=near)
        assert torchs or module.bias is None or not module.bias.any()


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


def records(n, *, dtype=torch.float64, shape=(3, 32, 32)):
    rng = torch.Generator().manual_seed(11)
    x = torch.randn(n, *shape, generator=rng, dtype=dtype)
    return x, torch.randint(10, (n,), generator=rng)


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
    one_at_a_time = torch.cat([model(a[None]) for a in x])
    torch.testing.assert_close(alone(x), one_at_a_time, rtol=1e-9, atol=1e-12)
    agree(by_vmap(alone, x, y), one_by_one(model, x, y))


# 24, 96, 144 channels are no multiples of 32
@pytest.mark.slow
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
    [*(("resnet20", n) for n in NORMS), *((c, "group") for c in CIFAR if c != "resnet20")],
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
    norms = sum(isinstance(m, nn.BatchNorm2d) for m in model.modules())
    assert sum(isinstance(m, kind) for m in converted.modules()) == norms > 0


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


@pytest.mark.slow
def test_dropout_is_off():
    model, (x, _) = make_model("vgg19-bn", seed=1), records(2, dtype=torch.float32)
    first, second = (model.classifier(torch.ones(2, 512)) for _ in range(2))
    assert not torch.equal(first, second)
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


def test_norms_that_do_not_fit():
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2, track_running_stats=False))
    with pytest.raises(UsageError, match="norm=batch"):
        with_norm(model, "batch")
    with pytest.raises(UsageError, match="norm=frozen"):
        with_norm(model, "frozen")
    with_norm(model, "record")
    for norm in NORMS:
        with pytest.raises(UsageError, match=r"BatchNorm1d"):
            with_norm(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)), norm)
