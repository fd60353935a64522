"""From updated weights back to the gradient, where rounding has left it unique."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

__all__ = ["recover_gradients"]

_STEPS = 4


def recover_gradients(
    before: Sequence[torch.Tensor], after: npt.NDArray[np.float32], *, lr: float
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """The float32 gradient (d,) that one step of plain SGD went by, and where it is certain, (d,).

    ``before`` are the weights, tensor by tensor, ``after`` (d,) all of them afterwards. Each of the nine floats around
    (before − after) / lr is put through torch's own update. The update never increases as the gradient increases, so the
    gradients that lead to one weight are neighbours on the grid: a single hit inside the nine is the only one there is.
    Elsewhere, where the weight's rounding has swallowed low bits, the value means nothing.
    """
    gradients, certain = [], []
    start = 0
    for weights in before:
        end = start + weights.numel()
        target = torch.from_numpy(after[start:end]).view_as(weights)
        start = end
        guess = (weights - target) / lr
        grid = [guess]
        for towards in (-np.inf, np.inf):
            step, limit = guess, torch.tensor(towards)
            for _ in range(_STEPS):
                step = torch.nextafter(step, limit)
                grid.append(step)
        tried = torch.stack(grid)
        hits = torch.stack([torch.add(weights, g, alpha=-lr) == target for g in grid])
        inside = ~(hits[_STEPS] | hits[2 * _STEPS])
        found = tried.gather(0, hits.to(torch.uint8).argmax(0, keepdim=True))[0]
        gradients.append(found.reshape(-1))
        certain.append(((hits.sum(0) == 1) & inside).reshape(-1))
    return torch.cat(gradients).double().numpy(), torch.cat(certain).numpy()
