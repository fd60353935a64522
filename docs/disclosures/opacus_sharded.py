"""opacus: noise of sharded training; 4 processes over gloo on a CPU, a layer of 65,536 numbers."""

import tempfile

import torch
from opacus import PrivacyEngine, grad_sample, optimizers
from opacus.utils.adaptive_clipping.adaptive_clipping_utils import PrivacyEngineAdaptiveClipping
from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping
from torch import distributed, nn
from torch.distributed import fsdp, init_device_mesh
from torch.distributed.tensor import parallel

Z, C, B = 1.25, 4.0, 16  # noise multiplier, clipping bound, records of a process
ROWS = (("FSDP", (4,), "mean", PrivacyEngine), ("a. HSDP", (2, 2), "mean", PrivacyEngine),
        ("b. tensor parallel", (4,), "mean", None), ("c. FSDP, sum", (4,), "sum", PrivacyEngine),
        ("d. FSDP, adaptive", (4,), "mean", PrivacyEngineAdaptiveClipping))  # fmt: skip


def step(rank, z, shape, reduction, engine):
    torch.manual_seed(1)
    net, sgd = nn.Sequential(nn.Linear(256, 256, False), nn.Linear(256, 4, False)), torch.optim.SGD
    x, y = 100 * torch.eye(1, 256).repeat(B, 1), torch.zeros(B).long()  # each gradient exceeds C
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("replicas", "shards")[-len(shape) :])
    loss = nn.CrossEntropyLoss(reduction=reduction)
    kind = {"noise_multiplier": z, "max_grad_norm": C, "loss_reduction": reduction}
    if engine is None:  # as in examples/tensor_parallelism_toy.py
        plan = {"0": parallel.ColwiseParallel(), "1": parallel.RowwiseParallel()}
        net = parallel.parallelize_module(net, mesh, plan)
        model = grad_sample.GradSampleModuleFastGradientClippingTP(net, max_grad_norm=C)
        optimizer = optimizers.FSDPOptimizerFastGradientClipping(
            sgd(net.parameters()), expected_batch_size=B, **kind)  # fmt: skip
        loss = DPLossFastGradientClipping(model, optimizer, loss)
    else:
        [fsdp.fully_shard(part, mesh=mesh) for part in (*net, net)]
        model, optimizer, loss, _ = engine().make_private(
            module=net, optimizer=sgd(net.parameters()), criterion=loss, poisson_sampling=False,
            data_loader=torch.utils.data.DataLoader(range(B), B), grad_sample_mode="ghost_fsdp",
            clipbound_learning_rate=0.0, **kind)  # fmt: skip
    torch.manual_seed(rank)
    loss(model(x), y).backward()
    optimizer.step()
    return [p.grad.full_tensor() for p in net.parameters()]


def work(rank, folder):
    distributed.init_process_group("gloo", f"file://{folder}/meet", rank=rank, world_size=4)
    for name, *how in ROWS:
        plain = torch.cat([g.flatten() for g in step(rank, 1e-6, *how)]).norm()
        unit = plain / C / B / (4 if how[2] else 1)  # each record adds C to the sum
        noise = step(rank, Z, *how)[0][:, 1:].contiguous() / unit  # there all gradients are 0
        seen = [torch.empty_like(noise) for _ in range(4)]
        distributed.all_gather(seen, noise)
        means = C * (Z**-2 - ("d." in name) * (B / 10) ** -2) ** -0.5  # by Theorem 1
        if rank == 0:
            apart, mean = (noise - seen[2]).std(), (noise + seen[2]).std() / 2
            print(f"{name}: σ {noise.std():.2f}, claimed {means:.2f}", end="; ")
            print(f"processes 0 and 2 are {apart:.2f} apart, their mean has σ {mean:.2f}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.start_processes(work, (folder,), 4, start_method="fork")
