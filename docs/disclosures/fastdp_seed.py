"""fastDP: the noise of examples/image_classification/CIFAR_TIMM.py, from its source; tiny, CPU."""

import contextlib
import io
import secrets

import torch
from fastDP import PrivacyEngine


def step(records, seed, noise_multiplier=1.0):
    torch.manual_seed(seed)  # CIFAR_TIMM.py line 156: 2
    net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 3))
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-4)
    engine = PrivacyEngine(
        net, batch_size=32, sample_size=3200, noise_multiplier=noise_multiplier, epochs=3,
        clipping_mode="MixOpt", clipping_style="all-layer",
    )  # fmt: skip
    engine.attach(optimizer)
    loss = torch.nn.functional.cross_entropy(net(records), torch.zeros(32, dtype=torch.long))
    loss.backward()
    optimizer.step()
    return 32 * torch.cat([p.grad.flatten() for p in net.parameters()])


private = torch.randn(32, 64, generator=torch.Generator().manual_seed(5))
with contextlib.redirect_stdout(io.StringIO()):
    own = step(torch.zeros(32, 64), 2) - step(torch.zeros(32, 64), 2, 0.0)  # anyone, any records
    runs = [(name, step(private, s), step(private, s, 0.0)) for name, s in (
        ("as published", 2), ("with a seed from secrets", secrets.randbits(64)))]  # fmt: skip
for name, noisy, clipped in runs:
    read = int(torch.isclose(noisy - own, clipped, rtol=0, atol=1e-5).sum())
    print(f"{name}: {read} of {len(own)} values of the gradient are read from the noisy one")
