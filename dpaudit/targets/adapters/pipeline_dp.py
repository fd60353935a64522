"""``pipeline-dp:MECH``: PipelineDP's additive mechanisms, set up by its own combiners.

``count``, ``sum`` and ``vector-sum`` add PyDP's noise to the value (an exact count or sum:
PipelineDP sums and bounds before), with ``noise_kind=laplace`` or ``gaussian``; ``mean`` takes the
value as the data set of one partition, each number one person's, and halves ε and δ between its
count and its sum. Options are those of its ``AggregateParams``.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dpaudit.targets.adapters.base import (
    Aggregate,
    Each,
    Library,
    LibraryMechanism,
    Option,
    Release,
    law,
)
from dpaudit.targets.adapters.python_dp import gaussian_std

__all__ = ["LIBRARY"]

_KINDS = ("laplace", "gaussian")
_NORMS = ("l1", "l2", "linf")
_COMMON: dict[str, Option | None] = {
    "epsilon": None,
    "delta": 0.0,
    "noise_kind": "laplace",
    "max_partitions_contributed": 1,
}
_COUNT: dict[str, Option | None] = {**_COMMON, "max_contributions_per_partition": 1}
_SUM: dict[str, Option | None] = {**_COUNT, "min_value": None, "max_value": None}
_VECTOR: dict[str, Option | None] = {**_COMMON, "vector_norm_kind": "linf", "vector_max_norm": 1.0}


def _params(dp: Any, metric: str, noise_kind: str, options: Mapping[str, Any]) -> Any:
    kind = getattr(dp.NoiseKind, noise_kind.upper())
    return dp.AggregateParams(metrics=[getattr(dp.Metrics, metric)], noise_kind=kind, **options)


def _spec(params: Any, epsilon: float, delta: float) -> Any:
    spec = importlib.import_module("pipeline_dp.budget_accounting").MechanismSpec(
        params.noise_kind.convert_to_mechanism_type()
    )
    spec.set_eps_delta(epsilon, delta)
    return spec


def _additive(metric: str, combiner: str) -> Callable[..., Release]:
    def make(dp: Any, *, epsilon: float, delta: float, noise_kind: str, **options: Any) -> Release:
        params = _params(dp, metric, noise_kind, options)
        make_combiner = getattr(importlib.import_module("pipeline_dp.combiners"), combiner)
        additive = make_combiner(_spec(params, epsilon, delta), params)
        return Each(additive.get_mechanism().add_noise)

    return make


def _mean(dp: Any, *, epsilon: float, delta: float, noise_kind: str, **options: Any) -> Release:
    params = _params(dp, "MEAN", noise_kind, options)
    half = _spec(params, epsilon / 2, delta / 2)
    combiners = importlib.import_module("pipeline_dp.combiners")
    combiner = combiners.MeanCombiner(half, half, params, ["mean"])
    return Aggregate(lambda x: combiner.compute_metrics(x)["mean"], combiner.create_accumulator)


def _vector(
    dp: Any,
    *,
    epsilon: float,
    delta: float,
    noise_kind: str,
    vector_norm_kind: str,
    vector_max_norm: float,
    **options: Any,
) -> Release:
    computations = importlib.import_module("pipeline_dp.dp_computations")
    norms = importlib.import_module("pipeline_dp.aggregate_params").NormKind
    norm = {"l1": norms.L1, "l2": norms.L2, "linf": norms.Linf}[vector_norm_kind]
    noise = computations.AdditiveVectorNoiseParams(
        eps=epsilon,
        delta=delta,
        max_norm=vector_max_norm,
        l0_sensitivity=options["max_partitions_contributed"],
        linf_sensitivity=1,
        norm_kind=norm,
        noise_kind=getattr(dp.NoiseKind, noise_kind.upper()),
    )
    return Aggregate(lambda value: computations.add_noise_vector(value, noise), np.array)


def _additive_law(linf: Callable[..., float]) -> Callable[..., str]:
    def claim(
        *,
        epsilon: float,
        delta: float,
        noise_kind: str,
        max_partitions_contributed: float,
        **options: float,
    ) -> str:
        size = linf(**options)
        if noise_kind == "laplace":
            return law("laplace:scale", max_partitions_contributed * size / epsilon)
        sensitivity = max_partitions_contributed**0.5 * size
        return law("gaussian:sigma", gaussian_std(epsilon, delta, sensitivity))

    return claim


_CHOICES = {"noise_kind": _KINDS, "vector_norm_kind": _NORMS}

LIBRARY = Library(
    name="pipeline-dp",
    module="pipeline_dp",
    install="pip install 'dpaudit[pipeline-dp]'",
    distribution="pipeline-dp",
    tested="0.3.1",
    table={
        "count": LibraryMechanism(
            _additive("COUNT", "CountCombiner"),
            options=_COUNT,
            choices=_CHOICES,
            claim=_additive_law(
                lambda *, max_contributions_per_partition: max_contributions_per_partition
            ),
            told=True,
        ),
        "sum": LibraryMechanism(
            _additive("SUM", "SumCombiner"),
            options=_SUM,
            choices=_CHOICES,
            claim=_additive_law(
                lambda *, max_contributions_per_partition, min_value, max_value: (
                    max_contributions_per_partition * max(abs(min_value), abs(max_value))
                )
            ),
            told=True,
        ),
        "mean": LibraryMechanism(_mean, options=_SUM, choices=_CHOICES, data=True),
        "vector-sum": LibraryMechanism(_vector, options=_VECTOR, choices=_CHOICES, told=True),
    },
)
