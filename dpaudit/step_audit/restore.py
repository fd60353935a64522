"""What a training step changes, put back: parameters, buffers, optimizers, accountants, chance."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

__all__ = ["Saved", "local", "restored_randomness"]

_OF_A_PARAMETER = ("grad", "grad_sample", "summed_grad", "norm_sample")
_ABSENT = object()


def local(tensor: torch.Tensor) -> torch.Tensor:
    """This process's part of a DTensor, or the tensor itself; no part of a graph."""
    own = tensor.detach()
    return own.to_local() if hasattr(own, "to_local") else own


@contextmanager
def restored_randomness(generators: Sequence[Any], seed: int | None = None) -> Iterator[None]:
    """Put back the random states of torch, numpy, Python and ``generators`` at the end.

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


class Saved:
    """The state of a model, of its optimizers (the inner one last) and of accountants."""

    def __init__(self, model: Any, optimizers: Sequence[Any], accountants: Sequence[Any]) -> None:
        self._tensors = [(t, local(t).clone()) for t in (*model.parameters(), *model.buffers())]
        self._attributes = [
            (p, {name: _cloned(getattr(p, name, _ABSENT)) for name in _OF_A_PARAMETER})
            for p in model.parameters()
        ]
        self._wrappers = [(o, {k: _copied(v) for k, v in vars(o).items()}) for o in optimizers[:-1]]
        self._histories = [(a, list(a.history)) for a in accountants]
        self._inner = optimizers[-1] if optimizers else None
        if self._inner is not None:
            self._groups = [dict(group) for group in self._inner.param_groups]
            self._state = {p: _cloned(dict(own)) for p, own in self._inner.state.items()}

    @torch.no_grad()
    def put_back(self) -> None:
        """Make everything as it was."""
        for tensor, value in self._tensors:
            local(tensor).copy_(value)
        for p, attributes in self._attributes:
            for name, value in attributes.items():
                if value is not _ABSENT:
                    setattr(p, name, _cloned(value))
                elif hasattr(p, name):
                    delattr(p, name)
        for wrapper, own in self._wrappers:
            vars(wrapper).clear()
            vars(wrapper).update({name: _copied(value) for name, value in own.items()})
        for accountant, history in self._histories:
            accountant.history = list(history)
        if self._inner is not None:
            for group, own in zip(self._inner.param_groups, self._groups, strict=True):
                group.update(own)
            self._inner.state.clear()
            self._inner.state.update({p: _cloned(own) for p, own in self._state.items()})


def _cloned(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _cloned(own) for name, own in value.items()}
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def _copied(value: Any) -> Any:
    """Lists and dictionaries anew, with what they hold."""
    if type(value) is dict:
        return {name: _copied(own) for name, own in value.items()}
    return list(value) if type(value) is list else value
