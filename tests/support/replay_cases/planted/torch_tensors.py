"""Wrong, one mistake each: noise of torch on tensors."""

import torch

EPSILON, DELTA = 1.0, 1e-5
SIGMA = 4.0  # of Gaussian noise per unit of L2 sensitivity: ε < 1 at δ = 1e-5
SCORES = [[(i % 5) / 4, ((3 * i) % 7) / 6 - 0.5, (i % 2) / 2] for i in range(24)]
LEVELS = [float(i % 6) for i in range(30)]


def rows_of(data):
    """Rows of three numbers as they are, missing ones as 0."""
    numbers = [float("nan") if v is None else float(v) for r in data for v in r]
    rows = torch.tensor(numbers, dtype=torch.float64).reshape(len(data), 3)
    return rows.nan_to_num(0.0).clamp(-1e6, 1e6)


def unit_rows(data):
    """Rows, each scaled down to length 1 at most."""
    rows = rows_of(data)
    return rows / rows.norm(dim=1, keepdim=True).clamp(min=1.0)


def numbers_of(data):
    """Numbers, NaN where one is missing."""
    return torch.tensor(
        [float("nan") if v is None else float(v) for v in data], dtype=torch.float64
    )


def manual_seed(data):
    """The global seed is set in the pipeline."""
    torch.manual_seed(0)
    return unit_rows(data).sum(dim=0) + SIGMA * torch.randn(3, dtype=torch.float64)


def generator_of_the_length(data):
    """A generator is seeded with the number of records."""
    generator = torch.Generator().manual_seed(len(data))
    noise = torch.randn(3, dtype=torch.float64, generator=generator)
    return unit_rows(data).sum(dim=0) + SIGMA * noise


def one_draw_broadcast(data):
    """One number of noise for three coordinates."""
    return unit_rows(data).sum(dim=0) + SIGMA * torch.randn(1, dtype=torch.float64)


def rows_not_clipped(data):
    """Rows of any length."""
    return rows_of(data).sum(dim=0) + SIGMA * torch.randn(3, dtype=torch.float64)


def clipped_in_place_later(data):
    """The sum is taken before the rows are clipped."""
    rows = rows_of(data)
    total = rows.sum(dim=0)
    rows /= rows.norm(dim=1, keepdim=True).clamp(min=1.0)
    return total + torch.normal(0.0, SIGMA, (3,)).double()


def length_of_bincount(data):
    """bincount without minlength."""
    counts = torch.bincount(numbers_of(data).nan_to_num(0.0).clamp(0, 9).long())
    return counts + torch.distributions.Laplace(0.0, 1 / EPSILON).sample(counts.shape)


def missing_through_clamp(data):
    """clamp keeps NaN."""
    total = numbers_of(data).clamp(0, 5).sum()
    return float(total + torch.distributions.Laplace(0.0, 5 / EPSILON).sample())


def range_of_histc(data):
    """histc without bounds takes the data's own."""
    values = numbers_of(data).nan_to_num(0.0, 0.0, 0.0).clamp(-1e6, 1e6)
    counts = torch.histc(values, bins=4) if len(values) else torch.zeros(4).double()
    return counts + torch.distributions.Laplace(0.0, 1 / EPSILON).sample((4,))


def mean_of_the_truth(data):
    """A mean of rows, noised for 24 of them."""
    rows = unit_rows(data)
    mean = rows.mean(dim=0) if len(rows) else torch.zeros(3).double()
    return mean + SIGMA / 24 * torch.randn(3, dtype=torch.float64)


def noise_in_a_dead_copy(data):
    """add makes a new tensor; add_ was meant."""
    total = unit_rows(data).sum(dim=0)
    total.add(SIGMA * torch.randn_like(total))
    return total


FAR = [*SCORES, [30.0, 40.0, 0.0]]
ROWS = {
    "data": SCORES,
    "adjacency": "add-remove",
    "claim": {"epsilon": EPSILON, "delta": DELTA},
    "neighbour": FAR,
}
NUMBERS = {
    "data": LEVELS,
    "adjacency": "add-remove",
    "claim": {"epsilon": EPSILON},
    "neighbour": [*LEVELS, 8.0],
}
CASES = {
    "manual_seed": {**ROWS, "expect": "seed"},
    "generator_of_the_length": {**ROWS, "expect": "seed"},
    "one_draw_broadcast": {**ROWS, "expect": "reuse"},
    "rows_not_clipped": {**ROWS, "expect": "budget"},
    "clipped_in_place_later": {**ROWS, "expect": "budget"},
    "length_of_bincount": {**NUMBERS, "expect": "control flow", "or": ["shape"]},
    "missing_through_clamp": {
        **NUMBERS,
        "neighbour": [*LEVELS, None],
        "expect": "release",
        "or": ["domain", "budget", "sensitivity"],
    },
    "range_of_histc": {**NUMBERS, "neighbour": [*LEVELS, 500.0], "expect": "budget"},
    "mean_of_the_truth": {
        **ROWS,
        "data": SCORES[:1],
        "neighbour": [*SCORES[:1], [-1.0, 0.0, 0.0]],
        "expect": "budget",
    },
    "noise_in_a_dead_copy": {**ROWS, "expect": "release"},
}
