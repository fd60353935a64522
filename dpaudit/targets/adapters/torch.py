"""``torch:MECH``: torch on the CPU as it ships, by default in float32.

Its default generator is MT19937; each process starts with a seed from the operating system. It is
not cryptographic: ``state-recovery`` recovers its state from about 2,000 values. torch does not add
noise to a value; the adapter does, in the same number type.
"""

from __future__ import annotations

from typing import Any

from dpaudit.targets.adapters.base import Library, LibraryMechanism, Release, claims

__all__ = ["LIBRARY"]


def _type(torch: Any, dtype: str) -> Any:
    return {"f32": torch.float32, "f64": torch.float64}[dtype]


def _normal(torch: Any, *, std: float, dtype: str) -> Release:
    kind = _type(torch, dtype)
    return lambda value, n: (
        torch.from_numpy(value).to(kind) + torch.normal(0.0, std, (n, len(value)), dtype=kind)
    ).numpy()


def _laplace(torch: Any, *, scale: float, dtype: str) -> Release:
    kind = _type(torch, dtype)
    law = torch.distributions.Laplace(torch.zeros((), dtype=kind), torch.tensor(scale, dtype=kind))
    return lambda value, n: (torch.from_numpy(value).to(kind) + law.sample((n, len(value)))).numpy()


LIBRARY = Library(
    name="torch",
    module="torch",
    install="pip install 'dpaudit[torch]'",
    distribution="torch",
    tested="2.13.0",
    table={
        "normal": LibraryMechanism(
            _normal, options={"std": 1.0, "dtype": "f32"}, claim=claims("gaussian:sigma", "std")
        ),
        "laplace": LibraryMechanism(
            _laplace, options={"scale": 1.0, "dtype": "f32"}, claim=claims("laplace:scale", "scale")
        ),
    },
)
