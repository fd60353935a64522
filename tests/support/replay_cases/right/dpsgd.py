"""Right: learning with noise, in numpy and torch.

Gradients are clipped for each record, the batch's size is a public constant, steps and starting
points are fixed. Noise of 8 per unit in 4 steps is a Gaussian mechanism of μ = 1/4: ε < 1 at
δ = 1e-5. Subsampled runs claim the same, without amplification.
"""

import numpy as np
import torch

EPSILON, DELTA = 1.0, 1e-5
NOISE, STEPS, RATE, BATCH = 8.0, 4, 0.5, 40
FIELDS = ("a", "b", "y")
POINTS = [{"a": (i % 7) / 6, "b": ((5 * i) % 8) / 7, "y": float(i % 7 > 2)} for i in range(BATCH)]


def matrix(data):
    """All three fields in [0, 1]; 0 where one is missing."""
    rows = np.array([[r[f] for f in FIELDS] for r in data], dtype=float).reshape(-1, 3)
    return np.clip(np.nan_to_num(rows), 0, 1)


def clip_rows(gradients):
    """Each row scaled down to length 1 at most."""
    norms = np.linalg.norm(gradients, axis=1, keepdims=True)
    return gradients / np.maximum(norms, 1.0)


def logistic_gradients(x, y, w):
    """A gradient of the logistic loss for each record."""
    return ((1 / (1 + np.exp(-x @ w))) - y)[:, None] * x


def logistic_numpy(data):
    """Noisy gradient descent for a logistic regression."""
    rng = np.random.default_rng()
    rows = matrix(data)
    x, y, w = rows[:, :2], rows[:, 2], np.zeros(2)
    for _ in range(STEPS):
        total = clip_rows(logistic_gradients(x, y, w)).sum(axis=0)
        w = w - RATE * (total + rng.normal(0, NOISE, 2)) / BATCH
    return w


def logistic_subsampled(data):
    """The same on Poisson samples."""
    rng = np.random.default_rng()
    rows = matrix(data)
    w = np.zeros(2)
    for _ in range(STEPS):
        batch = rows[rng.random(len(rows)) < 0.5]
        total = clip_rows(logistic_gradients(batch[:, :2], batch[:, 2], w)).sum(axis=0)
        w -= RATE * (total + NOISE * rng.standard_normal(2)) / (BATCH / 2)
    return w.tolist()


def adaptive_clipping(data):
    """Two steps; the clipping norm follows a noisy count of small gradients."""
    rng = np.random.default_rng()
    rows = matrix(data)
    x, y, w, norm = rows[:, :2], rows[:, 2], np.zeros(2), 1.0
    for _ in range(2):
        gradients = logistic_gradients(x, y, w)
        small = (np.linalg.norm(gradients, axis=1) <= norm).sum() - len(gradients) / 2
        total = clip_rows(gradients / norm).sum(axis=0) * norm
        w = w - RATE * (total + rng.normal(0, NOISE * norm, 2)) / BATCH
        norm = float(norm * np.exp(-0.2 * (small + rng.normal(0, NOISE / 2)) / BATCH))
    return w, norm


def regression_of_moments(data):
    """Linear regression of noisy moments: a record adds nine numbers of 1 at most."""
    rng = np.random.default_rng()
    rows = matrix(data)
    design = np.column_stack([np.ones(len(rows)), rows[:, :2]])
    moments = np.concatenate([(design.T @ design)[np.triu_indices(3)], design.T @ rows[:, 2]])
    noisy = moments + rng.laplace(0, 9 / EPSILON, size=9)
    gram = np.zeros((3, 3))
    gram[np.triu_indices(3)] = noisy[:6]
    gram += np.triu(gram, 1).T
    return np.linalg.solve(gram + 100 * np.eye(3), noisy[6:])


def kmeans(data):
    """Lloyd's steps from fixed centres; a record moves counts and sums by 3 in all."""
    rng = np.random.default_rng()
    points = matrix(data)[:, :2]
    centres = np.array([[0.25, 0.25], [0.75, 0.75]])
    b = 3 * STEPS / EPSILON
    for _ in range(STEPS):
        far = ((points[:, None, :] - centres[None]) ** 2).sum(axis=2)
        nearest = far.argmin(axis=1)
        for k in range(2):
            mine = points[nearest == k]
            count = len(mine) + rng.laplace(0, b)
            total = mine.sum(axis=0) + rng.laplace(0, b, 2)
            centres[k] = np.clip(total / max(count, 1.0), 0, 1)
    return centres


def logistic_torch(data):
    """A gradient by autograd for each record, clipped, summed, noised."""
    rows = torch.from_numpy(matrix(data))
    model = torch.nn.Linear(2, 1, dtype=torch.float64)
    for p in model.parameters():
        torch.nn.init.zeros_(p)
    loss = torch.nn.BCEWithLogitsLoss()
    for _ in range(STEPS):
        total = [torch.zeros_like(p) for p in model.parameters()]
        for row in rows:
            model.zero_grad()
            loss(model(row[:2]), row[2:]).backward()
            norm = torch.sqrt(sum((p.grad**2).sum() for p in model.parameters()))
            for t, p in zip(total, model.parameters(), strict=True):
                t += p.grad / max(float(norm), 1.0)
        with torch.no_grad():
            for t, p in zip(total, model.parameters(), strict=True):
                p -= RATE * (t + NOISE * torch.randn_like(t)) / BATCH
    return {name: p.detach().numpy() for name, p in model.named_parameters()}


def network_vmap(data):
    """A small network whose gradients are taken for all records at once."""
    rows = torch.from_numpy(matrix(data))
    weights = [torch.full((2, 3), 0.1).double(), torch.full((3,), 0.2).double()]

    def loss(first, second, row):
        return (torch.tanh(row[:2] @ first) @ second - row[2]) ** 2

    gradients_of = torch.func.vmap(torch.func.grad(loss, argnums=(0, 1)), in_dims=(None, None, 0))
    for _ in range(STEPS):
        total = torch.zeros(9, dtype=torch.float64)
        if len(rows):
            flat = torch.cat([g.flatten(start_dim=1) for g in gradients_of(*weights, rows)], dim=1)
            total = (flat / flat.norm(dim=1, keepdim=True).clamp(min=1.0)).sum(dim=0)
        noisy = (total + torch.normal(0.0, NOISE, total.shape).double()) / BATCH
        for w, step in zip(weights, noisy.split([6, 3]), strict=True):
            w -= RATE * step.reshape(w.shape)
    return torch.cat([w.flatten() for w in weights]).tolist()


def optimiser_step(data):
    """Noisy gradients are put into p.grad; Adam does the rest."""
    rows = torch.from_numpy(matrix(data))
    w = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    adam = torch.optim.Adam([w], lr=RATE)
    for _ in range(STEPS):
        errors = torch.sigmoid(rows[:, :2] @ w.detach()) - rows[:, 2]
        each = errors[:, None] * rows[:, :2]
        each = each * (1 / each.norm(dim=1, keepdim=True).clamp(min=1.0))
        noise = torch.distributions.Normal(0.0, NOISE).sample((2,))
        w.grad = (each.sum(dim=0) + noise) / BATCH
        adam.step()
    return w.detach()


def teachers(data):
    """PATE: ten teachers by a record's field, a noisy vote; a record moves two votes."""
    rows = matrix(data)
    part = np.minimum((rows[:, 0] * 10).astype(int), 9)
    votes = np.zeros(2)
    for k in range(10):
        labels = rows[part == k, 2]
        votes[int(labels.sum() > len(labels) / 2)] += 1
    noisy = votes + np.random.default_rng().laplace(0, 2 / EPSILON, 2)
    return int(noisy.argmax())


APPROXIMATE = {"epsilon": EPSILON, "delta": DELTA}
ADD = {"data": POINTS, "adjacency": "add-remove", "claim": APPROXIMATE}
PURE = {**ADD, "claim": {"epsilon": EPSILON, "delta": 0.0}}
CASES = {
    "logistic_numpy": ADD,
    "logistic_subsampled": ADD,
    "adaptive_clipping": ADD,
    "regression_of_moments": PURE,
    "kmeans": PURE,
    "logistic_torch": ADD,
    "network_vmap": ADD,
    "optimiser_step": ADD,
    "teachers": PURE,
}
