"""opacus: the noise of examples/fsdp_llama3.py, from its source; one rank, tiny model, CPU."""

import secrets
import warnings

import torch
from opacus import PrivacyEngine
from opacus.utils.fsdp_utils import FSDP2Wrapper

warnings.simplefilter("ignore")
torch.distributed.init_process_group(
    "gloo", rank=0, world_size=1, store=torch.distributed.HashStore()
)


def step(records, generator=None):
    torch.manual_seed(1337 + 0)  # fsdp_llama3.py line 229, rank 0
    model = FSDP2Wrapper(torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 3)))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
    data = torch.utils.data.TensorDataset(records, torch.zeros(32, dtype=torch.long))
    model, optimizer, criterion, loader = PrivacyEngine().make_private(
        module=model, optimizer=optimizer, data_loader=torch.utils.data.DataLoader(data, 32),
        noise_multiplier=1.0, max_grad_norm=1.0, grad_sample_mode="ghost_fsdp",
        criterion=torch.nn.CrossEntropyLoss(), poisson_sampling=False, noise_generator=generator,
    )  # fmt: skip
    x, y = next(iter(loader))
    criterion(model(x), y).backward()
    clipped = torch.cat([p.grad.full_tensor().flatten() for p in model.parameters()])
    optimizer.step()
    return clipped, 32 * torch.cat([p.grad.full_tensor().flatten() for p in model.parameters()])


zero, noise = step(torch.zeros(32, 64))  # whoever has the source runs it, on any records
secret = torch.Generator().manual_seed(secrets.randbits(64))
private = torch.randn(32, 64, generator=torch.Generator().manual_seed(5))
for name, generator in (("as published", None), ("with a noise generator of its own", secret)):
    clipped, noisy = step(private, generator)
    read = int(torch.isclose(noisy - (noise - zero), clipped, rtol=0, atol=1e-5).sum())
    print(f"{name}: {read} of {len(noise)} values of the gradient are read from the noisy one")
