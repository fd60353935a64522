"""What a training step changes, put back: parameters, buffers, optimizers, accountants, chance."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, cast

import numpy as np
import torch
import torch.distributed as dist

from dpaudit.ranks import world_size

__all__ = ["Saved", "local", "restored_randomness", "short_waits"]

_OF_A_PARAMETER = ("grad", "grad_sample", "summed_grad")
_ABSENT = object()


def local(tensor: Any) -> torch.Tensor:
    """This process's part of a DTensor, or the tensor itself; no part of a graph."""
    own = tensor.detach()
    part: torch.Tensor = own.to_local() if hasattr(own, "to_local") else own
    return part


@contextmanager
def restored_randomness(generators: Sequence[Any], seed: int | None = None) -> Iterator[None]:
    """Random states of torch, numpy, Python and ``generators``, put back at the end.

    With ``seed``, torch's follow from it until then.
    """
    python, legacy = random.getstate(), np.random.get_state()  # noqa: NPY002 it is the user's
    states = [(g, g.get_state()) for g in generators if g is not None]
    cuda: Any = torch.cuda
    devices = list(range(cuda.device_count())) if cuda.is_initialized() else []
    with torch.random.fork_rng(devices=devices):
        if seed is not None:
            torch.manual_seed(seed)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(legacy)  # noqa: NPY002
            for generator, state in states:
                generator.set_state(state)


@contextmanager
def short_waits(seconds: float) -> Iterator[None]:
    """Meanwhile no collective of a CPU's group waits longer."""
    core, cpu = cast("Any", dist).distributed_c10d, torch.device("cpu")
    groups = [g for g in core._world.pg_map if cpu in g._device_types] if world_size() > 1 else []
    before = [(g, g._get_backend(cpu).options._timeout) for g in groups]
    try:
        for group in groups:
            core._set_pg_timeout(timedelta(seconds=seconds), group)
        yield
    finally:
        for group, timeout in before:
            core._set_pg_timeout(timeout, group)


class Saved:
    """The state of tensors, of optimizers and of accountants.

    ``wrappers`` are objects whose attributes are changed, ``inner`` optimizers that take the step.
    """

    def __init__(
        self,
        tensors: Iterable[Any],
        wrappers: Sequence[Any],
        *,
        inner: Sequence[Any] = (),
        accountants: Sequence[Any] = (),
    ) -> None:
        self._tensors = [(t, local(t).clone()) for t in tensors]
        self._attributes = [(t, n, _copied(getattr(t, n, _ABSENT)))
                            for t, _ in self._tensors for n in _OF_A_PARAMETER]  # fmt: skip
        self._wrappers = [(o, _copied(vars(o), tensors=False)) for o in wrappers]
        self.histories = [(a, list(a.history)) for a in accountants]
        self._inner = [(o, [dict(g) for g in o.param_groups], _copied(dict(o.state)))
                       for o in inner]  # fmt: skip

    @torch.no_grad()
    def put_back(self) -> None:
        """Make everything as it was."""
        for tensor, value in self._tensors:
            local(tensor).copy_(value)
        for p, name, value in self._attributes:
            if value is not _ABSENT:
                setattr(p, name, _copied(value))
            elif hasattr(p, name):
                delattr(p, name)
        for wrapper, own in self._wrappers:
            vars(wrapper).clear()
            vars(wrapper).update(_copied(own, tensors=False))
        for accountant, history in self.histories:
            accountant.history = list(history)
        for inner, groups, state in self._inner:
            for group, values in zip(inner.param_groups, groups, strict=True):
                group.update(values)
            inner.state.clear()
            inner.state.update(_copied(state))


def _copied(value: Any, *, tensors: bool = True) -> Any:
    """Lists and dictionaries anew, and tensors unless told otherwise."""
    if type(value) is dict:
        return {name: _copied(own, tensors=tensors) for name, own in value.items()}
    if tensors and isinstance(value, torch.Tensor):
        return value.detach().clone()
    return list(value) if type(value) is list else value
