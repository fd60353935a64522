"""``tmlt-core:MECH``: Tumult Core's ``noise_mechanisms``, from an environment of its own.

It pins numpy 1.26. Options have the names of the classes': ``scale``, ``alpha``, ``sigma_squared``.
The library adds the noise itself, 70 µs per ``laplace`` or ``gaussian`` number and 100 to 250 µs
per whole one, after 3 s for its start. Spark is not started.
"""

from __future__ import annotations

import math

from dpaudit.samplers.adapters.base import LibraryMechanism, claims, law
from dpaudit.samplers.adapters.environment import OwnEnvironment

__all__ = ["LIBRARY"]

LIBRARY = OwnEnvironment(
    name="tmlt-core",
    program="tmlt_core",
    distribution="tmlt.core",
    tested="0.20.0",
    table={
        "laplace": LibraryMechanism(
            options={"scale": 1.0}, claim=claims("laplace:scale", "scale"), told=True
        ),
        "gaussian": LibraryMechanism(
            options={"sigma_squared": 1.0},
            claim=lambda *, sigma_squared: law("gaussian:sigma", math.sqrt(sigma_squared)),
            told=True,
        ),
        "geometric": LibraryMechanism(
            options={"alpha": 1.0},
            claim=claims("discrete-laplace:scale", "alpha"),
            told=True,
            whole=True,
        ),
        "discrete-gaussian": LibraryMechanism(
            options={"sigma_squared": 100.0},
            claim=lambda *, sigma_squared: law("discrete-gaussian:sigma", math.sqrt(sigma_squared)),
            told=True,
            whole=True,
        ),
    },
)
