"""Sources for these tests: fixed vectors, sparse or repeated noise, one that must not be asked."""

import math

import torch


class Fixed:
    """The rows given to it, whatever is asked for."""

    dim, claim = None, "gaussian:sigma=1"

    def __init__(self, rows, sigma=1.0):
        self.rows, self.sigma = rows, sigma

    def sample(self, n, d, *, dtype=None, **_):
        assert self.rows.shape == (n, d)
        return self.rows.to(dtype or torch.float64)

    def epsilon(self, delta, *, host):
        raise AssertionError("a rotation has nothing to ask here")


class Sparse:
    """All of the length in one coordinate."""

    sigma, dim, claim = 1.0, None, "gaussian:sigma=1"

    def sample(self, n, d, *, stream, dtype=None, device=None):
        rng = stream.numpy()
        out = torch.zeros(n, d, dtype=dtype)
        at = torch.from_numpy(rng.integers(0, d, n))
        out[torch.arange(n), at] = math.sqrt(d) * torch.from_numpy(rng.choice([-1.0, 1.0], n)).to(
            out
        )
        return out


class Repeated:
    """One Gaussian vector for all rows."""

    sigma, dim, claim = 1.0, None, "gaussian:sigma=1"

    def sample(self, n, d, *, stream, dtype=None, device=None):
        return torch.from_numpy(stream.numpy().standard_normal(d)).to(dtype).expand(n, d)


class NotToBeAsked:
    sigma, dim, claim = 1.0, None, "gaussian:sigma=1"

    def sample(self, *_, **__):
        raise AssertionError("the source was drawn from")
