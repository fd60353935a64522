"""Wrong, one mistake each: learning with noise, in numpy and torch."""

import numpy as np
import torch

EPSILON, NOISE, STEPS, RATE, BATCH = 1.0, 8.0, 4, 0.5, 40  # μ = 1/4 for gradients of length 1
RNG = np.random.default_rng()
FIELDS = ("a", "b", "y")
POINTS = [{"a": (i % 7) / 6, "b": ((5 * i) % 8) / 7, "y": float(i % 7 > 2)} for i in range(BATCH)]


def matrix(data, high=1.0):
    """Two features between 0 and a bound, and labels in [0, 1]; 0 where one is missing."""
    rows = np.array([[r[f] for f in FIELDS] for r in data], dtype=float).reshape(-1, 3)
    rows = np.clip(np.nan_to_num(rows), 0, high)
    return rows[:, :2], np.minimum(rows[:, 2], 1)


def clip_rows(gradients, norm=1.0):
    """Each row scaled down to a length."""
    norms = np.linalg.norm(gradients, axis=1, keepdims=True)
    return gradients / np.maximum(norms / norm, 1.0)


def gradients_at(x, y, w):
    """A gradient of the logistic loss for each record."""
    return (1 / (1 + np.exp(-np.clip(x @ w, -30, 30))) - y)[:, None] * x


def unit_sum(x, y, w):
    """The sum of clipped gradients."""
    return clip_rows(gradients_at(x, y, w)).sum(axis=0)


def tensors(data):
    """The same as tensors."""
    return tuple(torch.from_numpy(part) for part in matrix(data))


def torch_sum(x, y, w):
    """The sum of clipped gradients, of tensors."""
    each = (torch.sigmoid(x @ w) - y)[:, None] * x
    return (each / each.norm(dim=1, keepdim=True).clamp(min=1.0)).sum(dim=0)


def clipping_forgotten(data):
    """Gradients of features up to 1000 are not clipped."""
    (x, y), w = matrix(data, 1000.0), np.zeros(2)
    for _ in range(STEPS):
        w = w - RATE * (gradients_at(x, y, w).sum(axis=0) + RNG.normal(0, NOISE, 2))  # mistake
    return w


def clipping_of_the_mean(data):
    """The mean gradient is clipped, and the noise is for a batch of 400."""
    (x, y), w = matrix(data), np.zeros(2)
    for _ in range(STEPS):
        mean = gradients_at(x, y, w).sum(axis=0) / max(len(x), 1)
        mean = clip_rows(mean[None])[0]
        w = w - RATE * (mean + RNG.normal(0, NOISE / 400, 2))  # mistake
    return w


def divided_by_the_batch(data):
    """The noisy sum is divided by the true size of the batch."""
    (x, y), w = matrix(data), np.zeros(2)
    for _ in range(STEPS):
        w = w - RATE * (unit_sum(x, y, w) + RNG.normal(0, NOISE, 2)) / (1 + len(x))  # mistake
    return w


def stopped_by_the_loss(data):
    """Learning stops when the true loss is small."""
    (x, y), w = matrix(data), np.zeros(2)
    for _ in range(STEPS):
        if ((1 / (1 + np.exp(-x @ w)) - y) ** 2).sum() < 5:
            break
        w = w - RATE * (unit_sum(x, y, w) + RNG.normal(0, NOISE, 2)) / BATCH  # mistake
    return w


def losses_beside_the_weights(data):
    """The history of true losses is returned with the weights."""
    (x, y), w, losses = matrix(data), np.zeros(2), []
    for _ in range(STEPS):
        losses.append(float(np.abs(1 / (1 + np.exp(-x @ w)) - y).sum()))
        w = w - RATE * (unit_sum(x, y, w) + RNG.normal(0, NOISE, 2)) / BATCH
    return {"weights": w.tolist(), "losses": losses}  # mistake


def best_of_the_steps(data):
    """The step with the best true accuracy is released."""
    (x, y), w, tried = matrix(data), np.zeros(2), []
    for _ in range(STEPS):
        w = w - RATE * (unit_sum(x, y, w) + RNG.normal(0, NOISE, 2)) / BATCH
        tried.append((int(((x @ w > 0) == (y > 0.5)).sum()), w))
    return max(tried, key=lambda pair: pair[0])  # mistake


def one_noise_for_all_steps(data):
    """The noise is drawn once, before the loop, and every step is released."""
    (x, y), w, path = matrix(data), np.zeros(2), []
    noise = RNG.normal(0, NOISE, 2)
    for _ in range(STEPS):
        w = w - RATE * (unit_sum(x, y, w) + noise) / BATCH  # mistake
        path.append(w.tolist())
    return path


def scaled_by_the_data(data):
    """Features are divided by the largest in the data: one record moves all gradients."""
    (x, y), w = matrix(data, 1000.0), np.zeros(2)
    x = x / max(x.max(initial=0), 1e-9)
    for _ in range(STEPS):
        w = w - RATE * (unit_sum(x, y, w) + RNG.normal(0, NOISE, 2)) / BATCH  # mistake
    return w


def norm_of_the_median(data):
    """The clipping norm is the median of the gradients' norms."""
    (x, y), w = matrix(data), np.zeros(2)
    for _ in range(STEPS):
        g = gradients_at(x, y, w)
        norm = max(float(np.median([*np.linalg.norm(g, axis=1), 0.5])), 1e-3)
        w = w - RATE * (clip_rows(g, norm).sum(axis=0) + RNG.normal(0, NOISE * norm, 2))  # mistake
    return w


def kmeans_from_the_data(data):
    """The first records are the first centres, and are released."""
    points = np.concatenate([matrix(data)[0], [[0.2, 0.2], [0.8, 0.8]]])
    centres = points[:2]
    nearest = ((points[:, None] - centres[None]) ** 2).sum(axis=2).argmin(axis=1)
    sizes = np.bincount(nearest, minlength=2) + RNG.laplace(0, 1 / EPSILON, 2)
    return {"start": centres.tolist(), "sizes": sizes}  # mistake


def bias_not_clipped(data):
    """The weights' gradients are clipped; the bias', up to 100, are not."""
    (x, y), w, bias = tensors(data), torch.zeros(2).double(), torch.zeros(1).double()
    for _ in range(STEPS):
        w = w - RATE * (torch_sum(x, y, w) + NOISE * torch.randn(2).double()) / BATCH
        errors = 100 * (torch.sigmoid(bias) - y)
        bias = bias - RATE * (errors.sum() + NOISE * torch.randn(1).double()) / BATCH  # mistake
    return torch.cat([w, bias])


def bias_without_noise(data):
    """The bias gets its sum of gradients as it is."""
    (x, y), w, bias = tensors(data), torch.zeros(2).double(), torch.zeros(1).double()
    for _ in range(STEPS):
        w = w - RATE * (torch_sum(x, y, w) + NOISE * torch.randn(2).double()) / BATCH
        bias = bias - RATE * (torch.sigmoid(bias) - y).sum() / BATCH
    return torch.cat([w, bias])  # mistake


def noise_divided_twice(data):
    """The noise is divided by the batch's size before the sum is."""
    (x, y), w = tensors(data), torch.zeros(2).double()
    for _ in range(STEPS):
        noise = NOISE / BATCH * torch.randn(2).double()  # mistake
        w = w - RATE * (torch_sum(x, y, w) + noise) / BATCH
    return w


CLAIM = {"epsilon": EPSILON, "delta": 1e-5}
ADD = {"data": POINTS, "adjacency": "add-remove", "claim": CLAIM}
CASES = {
    "clipping_forgotten": ADD | {"expect": "budget"},
    "clipping_of_the_mean": ADD | {"data": POINTS[:2], "expect": "budget"},
    "divided_by_the_batch": ADD | {"expect": "release, scale"},
    "stopped_by_the_loss": ADD | {"data": POINTS[:20], "expect": "control flow"},
    "losses_beside_the_weights": ADD | {"expect": "release"},
    "best_of_the_steps": ADD | {"expect": "release"},
    "one_noise_for_all_steps": ADD | {"expect": "reuse"},
    "scaled_by_the_data": ADD | {"expect": "budget"},
    "norm_of_the_median": ADD | {"expect": "scale"},
    "kmeans_from_the_data": ADD | {"expect": "release"},
    "bias_not_clipped": ADD | {"expect": "budget"},
    "bias_without_noise": ADD | {"expect": "release"},
    "noise_divided_twice": ADD | {"expect": "budget"},
}
