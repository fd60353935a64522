# dp-recorder on Opacus' noise: the clipped and summed gradients are its input.
import torch
from dp_recorder.auditing.audit_primitives import audit_spec
from opacus.optimizers import DPOptimizer


def distance(a, b):
    far = float(((a - b) ** 2).sum() ** 0.5)
    return float("inf") if far != far else far


@audit_spec(kind="Gaussian", input_arg="values", sensitivity_arg="sensitivity", metric_fn=distance)
def gaussian(values, sensitivity, scale):
    return values + scale * torch.randn(len(values)).numpy()


def instrumented(pipeline):
    def add_noise(self):
        whole = torch.cat([p.summed_grad.flatten() for p in self.params]).detach().numpy()
        noised = torch.tensor(gaussian(whole, self.max_grad_norm, self.noise_multiplier))
        for p in self.params:
            p.grad, noised = noised[: p.numel()].view_as(p), noised[p.numel() :]
            p.summed_grad._processed = True

    DPOptimizer.add_noise = add_noise
    state = torch.get_rng_state()

    def run(points):
        torch.set_rng_state(state)
        return pipeline.run(points)

    return run
