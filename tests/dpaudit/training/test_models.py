import os
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from dpaudit.errors import UsageError

pytest.importorskip("opacus")

from dpaudit.training.models import MODELS, make_model

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


def test_usage_errors():
    with pytest.raises(UsageError, match="model=lenet"):
        make_model("lenet")
    for seed in (-1, 2**32):
        with pytest.raises(UsageError, match=r"seed="):
            make_model("mlp", seed=seed)


def test_lenet5_and_mlp_are_as_they_always_were():
    """Recorded runs name a seed only: the same layers in the same order, and no other draws."""
    expected = {
        "lenet5": lambda: [
            nn.Conv2d(1, 6, 5),
            nn.Conv2d(6, 16, 5),
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
    units = [
        (f"layer{s}.{b}.conv{i}", f"layer{s}.{b}.bn{i}")
        for s in (1, 2, 3)
        for b in range(blocks)
        for i in (1, 2)
    ]
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
            inner = unit(
                unit(y, f"{at}.conv1", f"{at}.bn1", stride).relu(), f"{at}.conv2", f"{at}.bn2"
            )
            around = torch.zeros_like(inner)
            first = (around.shape[1] - y.shape[1]) // 2
            for i in range(around.shape[2]):
                for j in range(around.shape[3]):
                    around[:, first : first + y.shape[1], i, j] = y[:, :, stride * i, stride * j]
            y = (inner + around).relu()
    expected = F.linear(y.mean((2, 3)), d["linear.weight"], d["linear.bias"])
    torch.testing.assert_close(model(x), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("name", "file"), [("resnet20", "resnet20-12fca82f.th"), ("resnet56", "resnet56-4bfd9763.th")]
)
def test_published_weights_load(name, file):
    path = Path(os.environ.get("DPAUDIT_DATA", "")) / "weights" / file
    if "DPAUDIT_DATA" not in os.environ or not path.is_file():
        pytest.skip("the published weights are not here")
    state = torch.load(path, map_location="cpu", weights_only=True)["state_dict"]
    make_model(name).load_state_dict(
        {k.removeprefix("module."): v for k, v in state.items()}, strict=True
    )


def sizes(name, kind):
    """The side of the square map of each layer of a kind, repeats left out."""
    model, found = on_meta(name), []
    for module in model.modules():
        if isinstance(module, kind):
            module.register_forward_hook(lambda _m, _i, y: found.append(y.shape[-1]))
    model(torch.zeros(2, 3, 32, 32, device="meta"))
    return [n for i, n in enumerate(found) if i == 0 or n != found[i - 1]]


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
    found = sizes(name, nn.BatchNorm2d)
    assert sorted(set(found), reverse=True) == expected
    assert min(found) > 1


@pytest.mark.parametrize("name", ["vgg19-bn", "resnet50", "mobilenet-v2"])
def test_first_weights(name):
    """Convolutions N(0, 2/fan_out), linear layers N(0, 0.01²) (torch's in ResNet-50), biases 0."""
    for module in make_model(name, seed=2).modules():
        if isinstance(module, nn.Conv2d):
            n = module.weight.numel()
            # groups or not: torch's rule
            fan_out = module.out_channels * module.kernel_size[0] ** 2
            assert module.weight.square().mean().item() == pytest.approx(
                2 / fan_out, rel=8 * (2 / n) ** 0.5
            )
        elif isinstance(module, nn.Linear):
            wanted, n = (
                1 / (3 * module.in_features) if name == "resnet50" else 1e-4,
                module.weight.numel(),
            )
            assert module.weight.square().mean().item() == pytest.approx(
                wanted, rel=8 * (2 / n) ** 0.5
            )
        elif isinstance(module, nn.BatchNorm2d):
            assert bool((module.weight == 1).all())
        bias = getattr(module, "bias", None)
        if bias is not None and not (name == "resnet50" and isinstance(module, nn.Linear)):
            assert not bias.any()
