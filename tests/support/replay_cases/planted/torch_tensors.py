"""Wrong, one mistake each: noise of torch on tensors."""

import torch

EPSILON = 1.0
SIGMA = 4.0  # of Gaussian noise per unit of L2 sensitivity: ε < 1 at δ = 1e-5
SCORES = [[(i % 5) / 4, ((3 * i) % 7) / 6 - 0.5, (i % 2) / 2] for i in range(24)]
LEVELS = [float(i % 6) for i in range(30)]
LAPLACE = torch.distributions.Laplace(torch.zeros(6).double(), 1 / EPSILON)


def rows_of(data):
    """Rows of three numbers as they are, missing ones as 0."""
    numbers = [float("nan") if v is None else float(v) for r in data for v in r]
    rows = torch.tensor(numbers, dtype=torch.float64).reshape(len(data), 3)
    return rows.nan_to_num(0.0).clamp(-1e6, 1e6)


def unit_rows(data):
    """Rows, each scaled down to length 1 at most."""
    return rows_of(data) / rows_of(data).norm(dim=1, keepdim=True).clamp(min=1.0)


def numbers_of(data):
    """Numbers, NaN where one is missing."""
    numbers = [float("nan") if v is None else float(v) for v in data]
    return torch.tensor(numbers, dtype=torch.float64)


def manual_seed(data):
    """The global seed is set in the pipeline."""
    torch.manual_seed(0)  # mistake
    return unit_rows(data).sum(dim=0) + SIGMA * torch.randn(3, dtype=torch.float64)


def generator_of_the_length(data):
    """A generator is seeded with the number of records."""
    generator = torch.Generator().manual_seed(len(data))  # mistake
    noise = torch.randn(3, dtype=torch.float64, generator=generator)
    return unit_rows(data).sum(dim=0) + SIGMA * noise


def one_draw_broadcast(data):
    """One number of noise for three coordinates."""
    return unit_rows(data).sum(dim=0) + SIGMA * torch.randn(1, dtype=torch.float64)  # mistake


def rows_not_clipped(data):
    """Rows of any length."""
    return rows_of(data).sum(dim=0) + SIGMA * torch.randn(3, dtype=torch.float64)  # mistake


def missing_through_clamp(data):
    """clamp keeps NaN."""
    total = numbers_of(data).clamp(0, 5).sum()
    return float(total + torch.distributions.Laplace(0.0, 5 / EPSILON).sample())  # mistake


def range_of_histc(data):
    """histc without bounds takes the data's own."""
    values = torch.cat([numbers_of(data).nan_to_num(0.0).clamp(0, 1e6), torch.arange(2).double()])
    return torch.histc(values, bins=6) + LAPLACE.sample()  # mistake


def mean_of_the_truth(data):
    """A mean of rows, noised for 240 of them, where there may be a few."""
    rows = torch.cat([unit_rows(data), torch.zeros(1, 3).double()])
    return rows.mean(dim=0) + SIGMA / 240 * torch.randn(3, dtype=torch.float64)  # mistake


def noise_in_a_dead_copy(data):
    """add makes a new tensor; add_ was meant."""
    total = unit_rows(data).sum(dim=0)
    total.add(SIGMA * torch.randn_like(total))
    return total  # mistake


GAUSSIAN, PURE = {"epsilon": EPSILON, "delta": 1e-5}, {"epsilon": EPSILON, "delta": 0.0}
ROWS = {"data": SCORES, "adjacency": "add-remove", "claim": GAUSSIAN}
NUMBERS = {"data": LEVELS, "adjacency": "add-remove", "claim": PURE}
CASES = {
    "manual_seed": ROWS | {"expect": "seed"},
    "generator_of_the_length": ROWS | {"expect": "seed"},
    "one_draw_broadcast": ROWS | {"expect": "reuse"},
    "rows_not_clipped": ROWS | {"expect": "budget"},
    "missing_through_clamp": NUMBERS | {"expect": "release, domain, budget"},
    "range_of_histc": NUMBERS | {"expect": "budget"},
    "mean_of_the_truth": ROWS | {"data": SCORES[:2], "expect": "budget"},
    "noise_in_a_dead_copy": ROWS | {"expect": "release"},
}
