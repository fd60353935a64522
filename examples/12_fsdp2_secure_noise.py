"""FSDP2 with secure noise: a private training of shards by Opacus, its noise, and its audit.

Each process holds half of every parameter. `dpaudit.secure_noise` draws exact Gaussian noise for
that half, from one key of the operating system per step: all shards together are what one process
would draw. Real steps are audited on all processes together; then three steps are trained.
Run: python examples/12_fsdp2_secure_noise.py, which starts two processes; or by torchrun.
"""

import os
import subprocess
import sys
import warnings

import torch
import torch.distributed as dist
from opacus import PrivacyEngine
from opacus.utils.fsdp_utils import FSDP2Wrapper
from torch.nn import CrossEntropyLoss
from torch.utils.data import DataLoader, TensorDataset

import dpaudit
from dpaudit.training.data import load_images
from dpaudit.training.models import make_model

if "RANK" not in os.environ:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    sys.exit(subprocess.call([*torchrun, "--nproc-per-node=2", __file__]))

warnings.simplefilter("ignore")  # Opacus' about its own random numbers, torch's about hooks
dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()
torch.set_num_threads(1)
torch.manual_seed(1)  # the same first weights on every rank
model = FSDP2Wrapper(make_model("cnn"))
torch.seed()  # batches that nobody knows, and other ones on each rank
x, y = load_images("synthetic").batch(range(2_000))
model, optimizer, criterion, loader = PrivacyEngine().make_private(
    module=model,
    optimizer=torch.optim.SGD(model.parameters(), lr=0.5),
    data_loader=DataLoader(TensorDataset(x, y), batch_size=200),
    criterion=CrossEntropyLoss(),
    noise_multiplier=1.0,
    max_grad_norm=1.0,
    grad_sample_mode="ghost_fsdp",
)
optimizer = dpaudit.secure_noise(optimizer)  # the one line


def step(batch):
    optimizer.zero_grad()
    criterion(model(batch[0]), batch[1]).backward()
    optimizer.step()


audit = dpaudit.assert_private_step(
    optimizer,
    model=model,
    step=step,
    batch=(x[rank:16:ranks], y[rank:16:ranks]),  # each rank has records of its own
    loss=lambda net, record: CrossEntropyLoss()(net(record[0]), record[1]),
)
sizes = [(step(batch), len(batch[1]))[1] for _, batch in zip(range(3), loader, strict=False)]
shard = tuple(next(model.parameters()).to_local().shape)
for turn in range(ranks):
    if turn == rank == 0:
        print(audit)
    if turn == rank:
        print(f"rank {rank}: steps on {sizes} records, {shard} of the first layer", flush=True)
    dist.barrier()
dist.destroy_process_group()
