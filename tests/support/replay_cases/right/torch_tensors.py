"""Right: noise of torch on tensors."""

import torch

EPSILON, DELTA = 1.0, 1e-5
SIGMA = 4.0  # of Gaussian noise per unit of L2 sensitivity: ε < 1 at δ = 1e-5
SCORES = [[(i % 5) / 4, ((3 * i) % 7) / 6 - 0.5, (i % 2) / 2] for i in range(24)]
LEVELS = [float(i % 6) for i in range(30)]


def unit_rows(data):
    """Rows of three numbers, each scaled down to length 1 at most."""
    numbers = [float("nan") if v is None else float(v) for r in data for v in r]
    rows = torch.tensor(numbers, dtype=torch.float64).reshape(len(data), 3)
    rows = rows.nan_to_num(0.0).clamp(-1e6, 1e6)
    return rows / rows.norm(dim=1, keepdim=True).clamp(min=1.0)


def levels(data):
    """Whole levels 0 to 5 of the numbers; others count as an end."""
    numbers = [float("nan") if v is None else float(v) for v in data]
    values = torch.tensor(numbers, dtype=torch.float64)
    return values.nan_to_num(0.0).clamp(0, 5).long()


def sum_normal(data):
    """A sum plus torch.normal."""
    total = unit_rows(data).sum(dim=0)
    return total + torch.normal(0.0, SIGMA, size=total.shape, dtype=torch.float64)


def sum_randn(data):
    """A sum plus scaled randn."""
    total = unit_rows(data).sum(dim=0)
    return (total + SIGMA * torch.randn(3, dtype=torch.float64)).tolist()


def sum_in_place(data):
    """Noise added in place."""
    total = unit_rows(data).sum(dim=0)
    total.add_(torch.randn_like(total), alpha=SIGMA)
    return total.numpy()


def sum_of_filled_noise(data):
    """A tensor filled with noise, to which the data is added."""
    noise = torch.empty(3, dtype=torch.float64).normal_(0, SIGMA)
    return noise + unit_rows(data).sum(dim=0)


def sum_distribution(data):
    """The sum as the location of a distribution."""
    total = unit_rows(data).sum(dim=0)
    return torch.distributions.Normal(total, SIGMA).sample()


def levels_rsample(data):
    """Scalar noise, drawn for each level."""
    counts = torch.bincount(levels(data), minlength=6)
    noise = torch.distributions.Laplace(0.0, 1 / EPSILON)
    return {k: float(n + noise.rsample()) for k, n in enumerate(counts)}


def levels_histc(data):
    """Counts in fixed bins, with a difference of exponential draws."""
    counts = torch.histc(levels(data).double(), bins=3, min=0, max=6)
    b = torch.empty(3, dtype=torch.float64)
    noise = b.clone().exponential_(EPSILON) - b.clone().exponential_(EPSILON)
    return counts + noise


def largest_level(data):
    """The level with most noisy counts."""
    counts = torch.bincount(levels(data), minlength=6).double()
    noisy = counts + torch.distributions.Laplace(0.0, 1 / EPSILON).sample((6,))
    return int(noisy.argmax())


APPROXIMATE = {"epsilon": EPSILON, "delta": DELTA}
ROWS = {"data": SCORES, "adjacency": "add-remove", "claim": APPROXIMATE}
NUMBERS = {"data": LEVELS, "adjacency": "add-remove", "claim": {"epsilon": EPSILON, "delta": 0.0}}
CASES = {
    "sum_normal": ROWS,
    "sum_randn": ROWS,
    "sum_in_place": ROWS,
    "sum_of_filled_noise": ROWS,
    "sum_distribution": ROWS,
    "levels_rsample": NUMBERS,
    "levels_histc": NUMBERS,
    "largest_level": NUMBERS,
}
