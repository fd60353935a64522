"""dp-transformers: the noise of its examples, from their source (--seed, by default 42); CPU."""

import secrets

import torch
import transformers
from opacus import GradSampleModule
from opacus.optimizers import DPOptimizer


def step(records, seed):
    transformers.set_seed(seed)  # fine-tune-dp.py line 64
    net = GradSampleModule(
        torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 3)))  # fmt: skip
    optimizer = DPOptimizer(  # dp_utils.py line 217: no generator
        torch.optim.SGD(net.parameters(), lr=0.1),
        noise_multiplier=1.0, max_grad_norm=1.0, expected_batch_size=32)  # fmt: skip
    loss = torch.nn.functional.cross_entropy(net(records), torch.zeros(32, dtype=torch.long))
    loss.backward()
    optimizer.pre_step()
    clipped = torch.cat([p.summed_grad.flatten() for p in net.parameters()])
    return clipped, 32 * torch.cat([p.grad.flatten() for p in net.parameters()])


DEFAULT = transformers.TrainingArguments(output_dir="unused", use_cpu=True, report_to=[]).seed
clipped, noisy = step(torch.zeros(32, 64), DEFAULT)  # anyone, any records
own = noisy - clipped
private = torch.randn(32, 64, generator=torch.Generator().manual_seed(5))
for name, seed in (("as published", DEFAULT), ("with a seed from secrets", secrets.randbits(32))):
    clipped, noisy = step(private, seed)
    read = int(torch.isclose(noisy - own, clipped, rtol=0, atol=1e-5).sum())
    print(f"{name}: {read} of {len(own)} values of the gradient are read from the noisy one")
