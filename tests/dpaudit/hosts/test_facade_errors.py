import math

import pytest
import torch
from torch import nn

from dpaudit.errors import UnknownNameError, UsageError
from dpaudit.noise.gaussian import Gaussian
from dpaudit.noise.pancake import Pancake
from dpaudit.types import Reference

pytest.importorskip("opacus")

from opacus.optimizers import AdaClipDPOptimizer, DPOptimizer, DPOptimizerFastGradientClipping
from opacus.optimizers.fsdpoptimizer_fast_gradient_clipping import FSDPOptimizerFastGradientClipping

from dpaudit.hosts.opacus import check_model, use_noise_source


def parameters(*shapes, **options):
    return [nn.Parameter(torch.ones(shape, **options)) for shape in shapes or ((3, 2), (4,))]


def optimizer(p=None, *, cls=DPOptimizer, z=1.0, clip=1.0, **options):
    p = parameters() if p is None else p
    made = cls(
        torch.optim.SGD(p, lr=0.1),
        noise_multiplier=z,
        max_grad_norm=clip,
        expected_batch_size=1,
        **options,
    )
    for q in p:
        q.summed_grad = torch.ones_like(q.data)
    return made


def refused(match, source="gaussian", made=None, error=UsageError, **options):
    made = optimizer() if made is None else made
    cls = type(made)
    with pytest.raises(error, match=match):
        use_noise_source(made, source, **options)
    assert type(made) is cls  # nothing half done


def test_optimizers_that_are_not_opacus_own():
    refused(
        r"optimizer=SGD: is not Opacus'.*make_private", made=torch.optim.SGD(parameters(), lr=0.1)
    )
    refused("is not Opacus'", made="optimizer")

    class Own(DPOptimizer):
        def add_noise(self):
            pass

    refused("optimizer=Own: has an add_noise of its own", made=optimizer(cls=Own))
    patched = optimizer()
    patched.add_noise = lambda: None
    refused("has an add_noise of its own", made=patched)
    refused(
        r"FSDP.*DistributedDataParallel", made=object.__new__(FSDPOptimizerFastGradientClipping)
    )


def test_a_subclass_that_leaves_the_draw_alone_is_fine():
    class Own(DPOptimizerFastGradientClipping):
        pass

    made = use_noise_source(optimizer(cls=Own), "gaussian", seed=1)
    made.add_noise()
    assert isinstance(made, Own)
    assert made.params[0].grad.shape == (3, 2)


def test_twice():
    made = use_noise_source(optimizer(), "gaussian")
    refused("draws from gaussian already.*once", made=made)


@pytest.mark.parametrize(
    ("z", "clip", "says"),
    [
        (0, 1.0, "noise_multiplier=0.0"),
        (math.inf, 1.0, "noise_multiplier=inf"),
        (1.0, 0.0, "max_grad_norm=0.0"),
        (1.0, math.nan, "max_grad_norm=nan"),
    ],
)
def test_no_noise_to_draw(z, clip, says):
    refused(f"{says}: .*above 0; give one", made=optimizer(z=z, clip=clip))


def test_adaclip_needs_a_multiplier_below_twice_the_counts():
    made = optimizer(
        cls=AdaClipDPOptimizer,
        target_unclipped_quantile=0.5,
        clipbound_learning_rate=0.2,
        unclipped_num_std=1.0,
        max_clipbound=9.0,
        min_clipbound=0.1,
    )
    made.noise_multiplier = 2.0  # a scheduler's work
    refused(r"noise_multiplier=2.0: must be below 2·unclipped_num_std = 2.0", made=made)


def test_parameters():
    frozen = parameters()
    for p in frozen:
        p.requires_grad_(False)
    refused("parameters=0: .*none that is trainable", made=optimizer(frozen))
    mixed = [*parameters(), *parameters(dtype=torch.float64)]
    refused("dtype=torch.float32, torch.float64: .*one vector", made=optimizer(mixed))
    apart = [*parameters(), *parameters(device="meta")]
    refused("device=cpu, meta: .*model.to", made=optimizer(apart))


def test_parameters_that_change_afterwards():
    made = use_noise_source(optimizer(), "gaussian")
    made.params[1].requires_grad_(False)
    says = r"parameters=6: .*put on for 10, and parameter number 1, shape \(4,\), was frozen"
    with pytest.raises(UsageError, match=says):
        made.add_noise()
    assert made.params[0].grad is None
    made.param_groups[0]["params"][1].requires_grad_(True)
    made.add_noise()
    assert made.params[0].grad is not None

    grown = use_noise_source(optimizer(), "gaussian")
    grown.original_optimizer.add_param_group({"params": parameters((5,))})
    with pytest.raises(UsageError, match="parameters=15"):
        grown.add_noise()


def test_keys_for_another_number_of_parameters(make_key, tmp_path):
    key = make_key(dim=11)
    says = "serves dim=11, and the optimizer has 10 trainable parameters.*dpaudit key new --dim 10"
    refused(says, lambda sigma: Pancake(key=key, sigma=sigma))
    key.save(tmp_path / "key.json")
    refused(says, f"pancake:key={tmp_path / 'key.json'}")
    refused(says, Reference("pancake", {"key": key}))
    refused("cannot be read", "pancake:key=nowhere.json")
    refused("key: source pancake needs it", "pancake")


def test_sources():
    refused("source=naive-laplace: has no option sigma", "naive-laplace")
    refused("source=snapping: has no option sigma", "snapping")
    refused("sigma=2: the optimizer sets σ", "gaussian:sigma=2")
    refused("did you mean 'gaussian'", "gausian", error=UnknownNameError)
    refused("no such option", "gaussian:beta=2", error=UnknownNameError)
    refused("source=Gaussian: must be a name .* or a function of σ", Gaussian(sigma=1.0))
    refused("made a float, which is no noise source", lambda sigma: sigma)
    refused(
        "has sigma=1.0 where the accountant counts on 2.0",
        lambda sigma: Gaussian(sigma=1.0),
        optimizer(clip=2.0),
    )
    refused(
        "has sigma=.* where the accountant counts on 0.3", "discrete-gaussian", optimizer(z=0.3)
    )
    use_noise_source(optimizer(z=2.0), "discrete-gaussian")


def test_mitigations():
    refused("did you mean 'rotation'", mitigation="rotaton", error=UnknownNameError)
    refused("mitigation=3: must be a name", mitigation=3)
    refused("no such option", mitigation="none:tau=1", error=UnknownNameError)
    refused("must be a finite number > 0", mitigation="smoothing:tau=-1")


def test_secure_mode_refuses_a_seed():
    secure = optimizer(secure_mode=True)
    refused("seed: under secure_mode .*leave seed out", made=secure, seed=3)
    later = use_noise_source(optimizer(), "gaussian", seed=3)
    later.secure_mode = True
    with pytest.raises(UsageError, match="leave seed out"):
        later.add_noise()


def test_gradients_that_are_not_finite():
    made = use_noise_source(optimizer(), "gaussian")
    made.params[0].summed_grad[1, 1] = torch.nan
    with pytest.raises(UsageError, match="NaN or infinity"):
        made.add_noise()


class Norms(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3)
        self.first = nn.BatchNorm2d(2, **options)
        self.rest = nn.Sequential(*[nn.BatchNorm2d(2, **options) for _ in range(4)])


def test_models():
    check_model(nn.Sequential(nn.Conv2d(1, 2, 3), nn.GroupNorm(1, 2), nn.Linear(2, 2)))
    with pytest.raises(
        UsageError,
        match=r"BatchNorm in first, rest\.0, rest\.1 and 2 more .*with_norm\(model, 'group'\)",
    ):
        check_model(Norms())
    with pytest.raises(UsageError, match="BatchNorm in first"):  # Opacus itself lets these pass
        check_model(Norms(affine=False))
    with pytest.raises(UsageError, match=r"evaluation mode.*model\.train"):
        check_model(nn.Linear(2, 2).eval())
    with pytest.raises(UsageError, match=r"Opacus cannot train its 1: .*LSTM"):
        check_model(nn.Sequential(nn.Linear(2, 2), nn.LSTM(2, 2)))
    with pytest.raises(UsageError, match=r"Opacus cannot train its 0: "):
        check_model(nn.Sequential(nn.InstanceNorm1d(2, affine=True, track_running_stats=True)))
    settled = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2, affine=False))
    settled[1].eval()
    check_model(settled)
