"""Vectorised per-sample gradients against one plain backward pass a record."""

import pytest
import torch
from torch import nn

from dpaudit.errors import UsageError
from dpaudit.hosts.gradients.per_sample import PerSampleGradients
from dpaudit.training.models import make_model
from dpaudit.training.models.norms import with_norm

LARGE = 1 << 30


def slow(model, x, y):
    """One record, one backward pass, one torch.autograd.grad; float64."""
    model = model.double()
    weights = [p for p in model.parameters() if p.requires_grad]
    rows = []
    for image, label in zip(x.double(), y, strict=True):
        loss = torch.nn.functional.cross_entropy(model(image[None]), label[None])
        rows.append(torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, weights)]))
    return torch.stack(rows)


def small(norm):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        layers = (
            nn.Conv2d(3, 6, 3),
            nn.BatchNorm2d(6),
            nn.ReLU(),
            nn.Dropout(0.5),
            nn.Flatten(),
            nn.Linear(6 * 36, 10),
        )
        model = nn.Sequential(*layers)
        model(torch.randn(32, 3, 8, 8))  # running statistics of its own
    return with_norm(model, norm)


def records(n, *shape):
    g = torch.Generator().manual_seed(n)
    return torch.randn(n, *shape, generator=g), torch.randint(0, 10, (n,), generator=g)


@pytest.mark.parametrize("memory", [1, 300_000, LARGE], ids=["one by one", "some", "all at once"])
@pytest.mark.parametrize("norm", ["frozen", "group", "record"])
def test_each_row_is_that_records_own_gradient(norm, memory):
    x, y = records(7, 3, 8, 8)
    gradients = PerSampleGradients(small(norm), memory=memory)
    chunks = list(gradients.chunks(x, y))
    assert {1: len(chunks) == 7, LARGE: len(chunks) == 1}.get(memory, 1 < len(chunks) < 7)
    assert torch.allclose(torch.cat(chunks), slow(small(norm), x, y), rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize("memory", [1, LARGE])
def test_lenet5_in_its_own_order_and_length(memory):
    x, y = records(3, 1, 28, 28)
    model = make_model("lenet5-tanh", seed=3)
    found = PerSampleGradients(model, memory=memory).all(x, y)
    assert found.shape == (3, 61_706)
    assert found.dtype == torch.float64
    assert torch.allclose(
        found, slow(make_model("lenet5-tanh", seed=3), x, y), rtol=1e-11, atol=1e-14
    )


@pytest.mark.parametrize("memory", [1, LARGE])
def test_frozen_parameters_have_no_coordinates(memory):
    x, y = records(2, 3, 8, 8)
    model = small("frozen")
    model[0].weight.requires_grad_(False)
    gradients = PerSampleGradients(model, memory=memory)
    assert gradients.dim == sum(p.numel() for p in model.parameters()) - model[0].weight.numel()
    assert torch.allclose(gradients.all(x, y), slow(model, x, y), rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize("memory", [1, LARGE])
def test_the_model_is_left_as_it_is(memory):
    model = small("record")
    before = {k: v.clone() for k, v in model.state_dict().items()}
    PerSampleGradients(model, memory=memory).all(*records(3, 3, 8, 8))
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert all(p.grad is None and p.dtype == torch.float32 for p in model.parameters())


def test_float32_is_float32():
    x, y = records(4, 3, 8, 8)
    wide, narrow = (
        PerSampleGradients(small("group"), dtype=t).all(x, y)
        for t in (torch.float64, torch.float32)
    )
    assert narrow.dtype == torch.float32
    error = float(torch.linalg.vector_norm(narrow.double() - wide) / torch.linalg.vector_norm(wide))
    assert 1e-9 < error < 1e-5


def test_no_records_no_chunks():
    none = torch.empty(0, 3, 8, 8), torch.empty(0, dtype=torch.long)
    assert PerSampleGradients(small("group")).all(*none).shape[0] == 0


@pytest.mark.parametrize(
    "layer", [nn.BatchNorm2d(3), nn.Dropout(0.5)], ids=["BatchNorm", "dropout"]
)
def test_records_that_see_each_other_are_refused(layer):
    model = nn.Sequential(layer, nn.Flatten(), nn.Linear(192, 10))
    with pytest.raises(UsageError, match="with_norm"):
        PerSampleGradients(model.train())
    PerSampleGradients(model.eval())


def test_nothing_to_train():
    model = nn.Linear(4, 2).requires_grad_(False)
    with pytest.raises(UsageError, match="requires_grad"):
        PerSampleGradients(model)
