"""Wrong, one mistake each: learning with noise, in numpy and torch."""

import numpy as np
import torch

EPSILON, DELTA = 1.0, 1e-5
NOISE, STEPS, RATE, BATCH = 8.0, 4, 0.5, 40  # μ = 1/4 for gradients of length 1: ε < 1
FIELDS = ("a", "b", "y")
POINTS = [{"a": (i % 7) / 6, "b": ((5 * i) % 8) / 7, "y": float(i % 7 > 2)} for i in range(BATCH)]


def matrix(data, high=1.0):
    """All three fields between 0 and a bound; 0 where one is missing."""
    rows = np.array([[r[f] for f in FIELDS] for r in data], dtype=float).reshape(-1, 3)
    return np.clip(np.nan_to_num(rows), 0, high)


def clip_rows(gradients, norm=1.0):
    """Each row scaled down to a length."""
    norms = np.linalg.norm(gradients, axis=1, keepdims=True)
    return gradients / np.maximum(norms / norm, 1.0)


def gradients_at(x, y, w):
    """A gradient of the logistic loss for each record."""
    return ((1 / (1 + np.exp(-np.clip(x @ w, -30, 30)))) - y)[:, None] * x


def step(total, scale=NOISE):
    """A noisy step for a sum of gradients."""
    return RATE * (total + np.random.default_rng().normal(0, scale, np.shape(total))) / BATCH


def clipping_forgotten(data):
    """Gradients of features up to 1000 are not clipped."""
    rows, w = matrix(data, 1000.0), np.zeros(2)
    for _ in range(STEPS):
        w = w - step(gradients_at(rows[:, :2], np.minimum(rows[:, 2], 1), w).sum(axis=0))
    return w


def clipping_of_the_mean(data):
    """The batch's mean gradient is clipped, and the noise divided by the batch's size."""
    rows, w = matrix(data), np.zeros(2)
    for _ in range(STEPS):
        g = gradients_at(rows[:, :2], rows[:, 2], w)
        mean = clip_rows(g.mean(axis=0, keepdims=True))[0] if len(g) else np.zeros(2)
        w = w - RATE * (mean + np.random.default_rng().normal(0, NOISE / BATCH, 2))
    return w


def divided_by_the_batch(data):
    """The noisy sum is divided by the true size of the batch."""
    rows, w = matrix(data), np.zeros(2)
    for _ in range(STEPS):
        total = clip_rows(gradients_at(rows[:, :2], rows[:, 2], w)).sum(axis=0)
        w = w - RATE * (total + np.random.default_rng().normal(0, NOISE, 2)) / max(len(rows), 1)
    return w


def steps_of_the_data(data):
    """A step for each ten records."""
    rows, w = matrix(data), np.zeros(2)
    for _ in range(min(len(rows) // 10, STEPS)):
        w = w - step(clip_rows(gradients_at(rows[:, :2], rows[:, 2], w)).sum(axis=0))
    return w


def stopped_by_the_loss(data):
    """Learning stops when the true loss is small."""
    rows, w = matrix(data), np.zeros(2)
    for _ in range(STEPS):
        errors = 1 / (1 + np.exp(-rows[:, :2] @ w)) - rows[:, 2]
        if (errors**2).sum() < 10:
            break
        w = w - step(clip_rows(gradients_at(rows[:, :2], rows[:, 2], w)).sum(axis=0))
    return w


def losses_beside_the_weights(data):
    """The history of true losses is returned with the weights."""
    rows, w, losses = matrix(data), np.zeros(2), []
    for _ in range(STEPS):
        chance = np.clip(1 / (1 + np.exp(-rows[:, :2] @ w)), 1e-9, 1 - 1e-9)
        losses.append(float(-np.log(np.where(rows[:, 2] > 0.5, chance, 1 - chance)).sum()))
        w = w - step(clip_rows(gradients_at(rows[:, :2], rows[:, 2], w)).sum(axis=0))
    return {"weights": w.tolist(), "losses": losses}


def best_of_the_steps(data):
    """The step with the best true accuracy is released."""
    rows, w, tried = matrix(data), np.zeros(2), []
    for _ in range(STEPS):
        w = w - step(clip_rows(gradients_at(rows[:, :2], rows[:, 2], w)).sum(axis=0))
        tried.append((int(((rows[:, :2] @ w > 0) == (rows[:, 2] > 0.5)).sum()), w))
    return max(tried, key=lambda pair: pair[0])


def one_noise_for_all_steps(data):
    """The noise is drawn once, before the loop."""
    rows, w = matrix(data), np.zeros(2)
    noise = np.random.default_rng().normal(0, NOISE, 2)
    path = []
    for _ in range(STEPS):
        total = clip_rows(gradients_at(rows[:, :2], rows[:, 2], w)).sum(axis=0)
        w = w - RATE * (total + noise) / BATCH
        path.append(w.tolist())
    return path


def scaled_by_the_data(data):
    """Features are scaled by the largest in the data, so that one record moves all gradients."""
    rows, w = matrix(data, 1000.0), np.zeros(2)
    x = rows[:, :2] / max(rows[:, :2].max(initial=0), 1e-9)
    for _ in range(STEPS):
        w = w - step(clip_rows(gradients_at(x, np.minimum(rows[:, 2], 1), w)).sum(axis=0))
    return w


def norm_of_the_median(data):
    """The clipping norm is the median of the gradients' norms."""
    rows, w = matrix(data), np.zeros(2)
    for _ in range(STEPS):
        g = gradients_at(rows[:, :2], rows[:, 2], w)
        norm = max(float(np.median(np.linalg.norm(g, axis=1))), 1e-3) if len(g) else 1.0
        w = w - step(clip_rows(g, norm).sum(axis=0), NOISE * norm)
    return w


def kmeans_from_the_data(data):
    """The first records are the first centres, and there is one step with noise for 2."""
    points = matrix(data)[:, :2]
    centres = points[:2] if len(points) > 1 else np.array([[0.2, 0.2], [0.8, 0.8]])
    nearest = ((points[:, None] - centres[None]) ** 2).sum(axis=2).argmin(axis=1)
    counts = np.array([(nearest == k).sum() for k in range(2)], dtype=float)
    rng = np.random.default_rng()
    return {"start": centres.tolist(), "sizes": counts + rng.laplace(0, 1 / EPSILON, 2)}


def bias_not_clipped(data):
    """Weights are clipped record by record; the bias, whose gradient is up to 10, is not."""
    rows = torch.from_numpy(matrix(data))
    w, bias = torch.zeros(2, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
    for _ in range(STEPS):
        errors = 10 * (torch.sigmoid(rows[:, :2] @ w + bias) - rows[:, 2])
        each = errors[:, None] * rows[:, :2]
        each = each / each.norm(dim=1, keepdim=True).clamp(min=1.0)
        w = w - RATE * (each.sum(dim=0) + NOISE * torch.randn(2).double()) / BATCH
        bias = bias - RATE * (errors.sum() + NOISE * torch.randn(1).double()) / BATCH
    return torch.cat([w, bias])


def last_layer_without_noise(data):
    """The second of two layers gets its sum of gradients as it is."""
    rows = torch.from_numpy(matrix(data))
    weights = [torch.full((2,), 0.1).double(), torch.full((1,), 0.5).double()]
    for _ in range(STEPS):
        hidden = torch.tanh(rows[:, :2] @ weights[0])
        errors = hidden * weights[1] - rows[:, 2]
        first = (errors * weights[1] * (1 - hidden**2))[:, None] * rows[:, :2]
        flat = torch.cat([first, (errors * hidden)[:, None]], dim=1)
        total = (flat / flat.norm(dim=1, keepdim=True).clamp(min=1.0)).sum(dim=0)
        weights[0] = weights[0] - RATE * (total[:2] + NOISE * torch.randn(2).double()) / BATCH
        weights[1] = weights[1] - RATE * total[2:] / BATCH
    return torch.cat(weights).tolist()


def seed_before_the_noise(data):
    """A seed for reproducible training is one for the noise."""
    torch.manual_seed(1)
    rows = torch.from_numpy(matrix(data))
    w = torch.zeros(2, dtype=torch.float64)
    for _ in range(STEPS):
        errors = torch.sigmoid(rows[:, :2] @ w) - rows[:, 2]
        each = errors[:, None] * rows[:, :2]
        each = each / each.norm(dim=1, keepdim=True).clamp(min=1.0)
        w = w - RATE * (each.sum(dim=0) + NOISE * torch.randn(2).double()) / BATCH
    return w


MORE = [*POINTS, {"a": 1.0, "b": 1.0, "y": 0.0}]
FAR = [*POINTS, {"a": 900.0, "b": 0.0, "y": 0.0}]
ADD = {
    "data": POINTS,
    "adjacency": "add-remove",
    "claim": {"epsilon": EPSILON, "delta": DELTA},
    "neighbour": MORE,
}
CASES = {
    "clipping_forgotten": {**ADD, "neighbour": FAR, "expect": "budget"},
    "clipping_of_the_mean": {
        **ADD,
        "data": [{"a": 1.0, "b": 1.0, "y": 0.0}],
        "neighbour": [],
        "expect": "budget",
    },
    "divided_by_the_batch": {**ADD, "expect": "release", "or": ["scale", "budget"]},
    "steps_of_the_data": {
        **ADD,
        "data": POINTS[:19],
        "neighbour": POINTS[:20],
        "expect": "control flow",
    },
    "stopped_by_the_loss": {**ADD, "expect": "control flow"},
    "losses_beside_the_weights": {**ADD, "expect": "release"},
    "best_of_the_steps": {**ADD, "expect": "release"},
    "one_noise_for_all_steps": {**ADD, "expect": "reuse"},
    "scaled_by_the_data": {**ADD, "neighbour": FAR, "expect": "budget"},
    "norm_of_the_median": {**ADD, "expect": "scale"},
    "kmeans_from_the_data": {**ADD, "neighbour": POINTS[1:], "expect": "release"},
    "bias_not_clipped": {**ADD, "expect": "budget"},
    "last_layer_without_noise": {**ADD, "expect": "release"},
    "seed_before_the_noise": {**ADD, "expect": "seed"},
}
