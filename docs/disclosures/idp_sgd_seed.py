"""idp-sgd (checkout in $IDP_SGD): the noise of idp_sgd/cli.py, from its source; tiny, CPU."""

import os
import secrets
import sys

import torch

sys.path.insert(0, os.environ.get("IDP_SGD", ".") + "/opacus")  # its own copy of opacus
import opacus.utils.weighted_sampler  # no release of opacus has it


def step(records, seed):
    torch.manual_seed(seed)  # cli.py line 202: 0
    net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 3))
    data = torch.utils.data.TensorDataset(records, torch.zeros(320, dtype=torch.long))
    engine = opacus.PrivacyEngine(individualize=None, weights=None, pp_budgets=None)
    net, optimizer, loader = engine.make_private(  # individual_dp_sgd.py lines 444 and 461
        module=net, optimizer=torch.optim.SGD(net.parameters(), lr=0.05), noise_multiplier=1.0,
        data_loader=torch.utils.data.DataLoader(data, 32), max_grad_norm=1.0)  # fmt: skip
    x, y = next(iter(loader))
    torch.nn.functional.cross_entropy(net(x), y).backward()
    optimizer.pre_step()
    clipped = torch.cat([p.summed_grad.flatten() for p in net.parameters()])
    return clipped, 32 * torch.cat([p.grad.flatten() for p in net.parameters()])


clipped, noisy = step(torch.zeros(320, 64), 0)  # anyone, any records
own = noisy - clipped
private = torch.randn(320, 64, generator=torch.Generator().manual_seed(5))
for name, seed in (("as published", 0), ("with a seed from secrets", secrets.randbits(32))):
    clipped, noisy = step(private, seed)
    read = int(torch.isclose(noisy - own, clipped, rtol=0, atol=1e-5).sum())
    print(f"{name}: {read} of {len(own)} values of the gradient are read from the noisy one")
