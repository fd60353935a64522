"""pfl: the noise of its benchmarks' first round, from their source (--seed, by default 0); CPU."""

import secrets

import numpy as np
import torch
from pfl.algorithm import FederatedAveraging
from pfl.internal.ops import pytorch_ops
from pfl.internal.ops.selector import set_framework_module
from pfl.privacy import CentrallyAppliedPrivacyMechanism, GaussianMechanism
from pfl.stats import MappedVectorStatistics

set_framework_module(pytorch_ops)


class Context:
    cohort_size, seed = 1, None


def release(update, seed):
    torch.random.manual_seed(seed)  # benchmarks/image_classification/pytorch/train.py line 55
    np.random.seed(seed)  # line 56  # noqa: NPY002
    np.random.permutation(50_000)  # the order of the records  # noqa: NPY002
    noise = CentrallyAppliedPrivacyMechanism(GaussianMechanism(1.0, 1.0))
    Context.seed = FederatedAveraging()._get_seed()  # pfl/algorithm/base.py line 431
    stats, _ = noise.postprocess_server(
        stats=MappedVectorStatistics({"w": update}), central_context=Context, aggregate_metrics={}
    )
    return stats["w"]


own = release(torch.zeros(4096), 0)  # anyone
update = torch.randn(4096, generator=torch.Generator().manual_seed(5)) / 64
for name, seed in (("as published", 0), ("with a seed from secrets", secrets.randbits(32))):
    read = int(torch.isclose(release(update, seed) - own, update, rtol=0, atol=1e-5).sum())
    print(f"{name}: {read} of 4096 values of the update are read from the noisy one")
