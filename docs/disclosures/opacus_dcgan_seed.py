"""opacus: the seed of examples/dcgan.py, one of 10,000, from one noisy gradient; small, CPU."""

import random
import secrets
import warnings

import torch
from opacus import PrivacyEngine
from torch import nn

warnings.simplefilter("ignore")
RECORDS = 640


def begin(seed):  # lines 134 and 216 to 265: weights of both networks, and the fixed noise
    torch.manual_seed(seed)
    up = [nn.ConvTranspose2d(a, b, 4, 2, 1, bias=False) for a, b in ((8, 64), (64, 32), (32, 1))]
    [m.weight.data.normal_(0.0, 0.02) for m in up]
    down = [nn.Conv2d(a, b, 4, 2, 1, bias=False) for a, b in ((1, 8), (8, 16), (16, 1))]
    [m.weight.data.normal_(0.0, 0.02) for m in down]
    torch.randn(64, 8, 1, 1)
    return nn.Sequential(down[0], nn.GroupNorm(8, 8), down[1], nn.GroupNorm(8, 16), down[2])


def step(seed):
    net = begin(seed)
    data = torch.utils.data.TensorDataset(torch.rand(
        RECORDS, 1, 8, 8, generator=torch.Generator().manual_seed(5)))  # fmt: skip
    net, optimizer, loader = PrivacyEngine().make_private(
        module=net, optimizer=torch.optim.Adam(net.parameters()), noise_multiplier=1.0,
        data_loader=torch.utils.data.DataLoader(data, 64), max_grad_norm=1.0)  # fmt: skip
    (x,) = next(iter(loader))
    torch.randn(len(x), 8, 1, 1)  # line 305
    net(x).sigmoid().log().sum().div(len(x)).backward()
    optimizer.pre_step()
    clipped = torch.cat([p.summed_grad.flatten() for p in net.parameters()])
    return clipped, 64 * torch.cat([p.grad.flatten() for p in net.parameters()])


def predict(seed):  # what step(seed) draws; of the records only their number is known
    shapes = [p.shape for p in begin(seed).parameters()]
    torch.empty((), dtype=torch.int64).random_()  # the loader's own seed
    torch.randn(int((torch.rand(RECORDS) < 1 / 10).sum()), 8, 1, 1)
    return torch.cat([torch.normal(0.0, 1.0, s).flatten() for s in shapes])


names = ("as published", "with a seed from secrets")
runs = [step(seed) for seed in (random.SystemRandom().randint(1, 10_000), secrets.randbits(64))]
scores = torch.tensor([[float(noisy @ own) for _, noisy in runs] for own in map(
    predict, range(1, 10_001))])  # fmt: skip
for name, (clipped, noisy), best in zip(names, runs, 1 + scores.argmax(0), strict=True):
    read = int(torch.isclose(noisy - predict(int(best)), clipped, rtol=0, atol=1e-5).sum())
    print(f"{name}: {read} of {len(noisy)} values of the gradient are read from the noisy one")
