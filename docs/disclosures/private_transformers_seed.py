"""private-transformers: the noise of examples/table2text (run.sh), from its source; tiny, CPU."""

import secrets

import torch
import transformers
from private_transformers import PrivacyEngine


def step(records, seed, noise_multiplier=1.0):
    transformers.set_seed(seed)  # run_language_modeling.py line 91; run.sh line 41: 0
    net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 3))
    transformers.set_seed(seed)  # trainer.py line 124
    optimizer = torch.optim.SGD(net.parameters(), lr=5e-4)
    engine = PrivacyEngine(
        net, batch_size=32, sample_size=3200, noise_multiplier=noise_multiplier, epochs=3,
        max_grad_norm=0.1, clipping_mode="default", skip_checks=True,
    )  # fmt: skip
    engine.attach(optimizer)
    labels = torch.zeros(32, dtype=torch.long)
    loss = torch.nn.functional.cross_entropy(net(records), labels, reduction="none")
    optimizer.step(loss=loss)
    return 32 * torch.cat([p.grad.flatten() for p in net.parameters()])


own = step(torch.zeros(32, 64), 0) - step(torch.zeros(32, 64), 0, 0.0)  # anyone, any records
private = torch.randn(32, 64, generator=torch.Generator().manual_seed(5))
for name, seed in (("as published", 0), ("with a seed from secrets", secrets.randbits(32))):
    noisy, clipped = step(private, seed), step(private, seed, 0.0)
    read = int(torch.isclose(noisy - own, clipped, rtol=0, atol=1e-6).sum())
    print(f"{name}: {read} of {len(own)} values of the gradient are read from the noisy one")
