"""The game's people: what they prefer, what they choose day by day, what their devices run."""

from __future__ import annotations

import inspect
import itertools
import math
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from dpaudit import registry
from dpaudit.errors import UsageError
from dpaudit.protocols import LocalMechanism, Stream
from dpaudit.registry import nearest
from dpaudit.types import Reference
from dpaudit_local.mechanisms.hashing import RandomHashes
from dpaudit_local.pool_inference.settings import Setting

__all__ = ["DeviceOptions", "People", "people"]

_RAPPOR_LAW = {"f", "p", "q"}


@dataclass(kw_only=True, eq=False, repr=False)
class DeviceOptions:
    """The local mechanism that people's devices run, with ``epsilon`` per report."""

    mechanism: str = "count-mean-sketch"
    """A plug-in's name (``dpaudit.local``) with options of its own: ``NAME[:option=value,…]``."""
    epsilon: float | None = 4.0
    """Of one report, where the mechanism takes one."""
    m: int = 1024
    """Positions of a sketch, where the mechanism takes hash functions."""
    functions: int = 65536
    """How many of them."""

    def device(self, universe: int, *, stream: Stream) -> LocalMechanism:
        """The mechanism, for a universe of objects.

        Its own options come first. What it takes of the rest is filled in: ``epsilon``; for
        sketches ``functions`` fully random hash functions of the ``stream`` to ``m`` positions (as
        the paper's experiments); ``categories`` or ``universe``, the number of objects; a Count
        Median Sketch's ``privacy_parameter``, half of ``epsilon``. RAPPOR has no ε of its own:
        without f, p and q it is the one-time RAPPOR of that ε, f = 2/(1 + e^(ε/2h)), p = 0, q = 1.

        Raises:
            UsageError: no such mechanism or option, or ``epsilon`` missing where it is needed.
        """
        epsilon = self.epsilon
        reference = Reference.parse(self.mechanism)
        factory = registry.load("local", reference.name)
        takes = inspect.signature(factory).parameters
        options: dict[str, Any] = dict(reference.options)
        for option in options:
            if option not in takes:
                raise UsageError(
                    f"{option}={options[option]}: "
                    f"{reference.name} has no such option{nearest(option, takes)}"
                )
        if "epsilon" in takes:
            if epsilon is None and "epsilon" not in options:
                raise UsageError(f"epsilon: {reference.name} needs the ε of one report")
            options.setdefault("epsilon", epsilon)
        elif "privacy_parameter" in takes and "privacy_parameter" not in options:
            if epsilon is None:
                raise UsageError(
                    f"epsilon: {reference.name} needs the ε of one report, or privacy_parameter"
                )
            options["privacy_parameter"] = epsilon / 2
        elif reference.name == "rappor" and not _RAPPOR_LAW & options.keys():
            if epsilon is None:
                raise UsageError("epsilon: rappor needs the ε of one report, or f, p and q")
            per_object = options.get("per_object", takes["per_object"].default)
            options.update(f=2 / (1 + math.exp(epsilon / (2 * per_object))), p=0.0, q=1.0)
        for option, value in (("categories", universe), ("universe", universe)):
            if option in takes:
                options.setdefault(option, value)
        if (
            "hashes" in takes
            and {"m", "functions"} <= takes.keys()
            and not {"hashes", "seed"} & options.keys()
        ):
            size, count = options.pop("m", self.m), options.pop("functions", self.functions)
            options["hashes"] = RandomHashes(count, size, stream=stream.child("hashes"))
        mechanism: LocalMechanism = factory(**options)
        return mechanism


jit: Any = numba.njit(nogil=True, cache=True)


@dataclass(frozen=True, slots=True)
class People:
    """Users of one game; nothing here but ``objects``, privatised, reaches the adversary."""

    objects: npt.NDArray[np.int32]
    """Shape (users, n): what each chose, in the order of time."""
    preferred: npt.NDArray[np.int64]
    """Shape (users,): which pool, from 0."""
    gamma: npt.NDArray[np.float64]
    """Shape (users,): relevant interest, the share of choices in any pool of interest."""
    delta: npt.NDArray[np.float64]
    """Shape (users,): polarisation, the preferred pool's share of those."""

    def __len__(self) -> int:
        return len(self.preferred)


def people(
    setting: Setting,
    users: int,
    n: int,
    *,
    stream: Stream,
    gamma: float | None = None,
    delta: float | None = None,
) -> People:
    """``users`` people who choose ``n`` objects each, independently, as in equation 6 of the paper.

    The preferred pool is uniform; γ ~ U(0, 1] and δ ~ U(1/k, 1] unless given. An object is of the
    preferred pool with probability γδ, of each other pool with γ(1−δ)/(k−1), neutral with 1−γ;
    within a pool it follows the true popularity. Statistical randomness, in multiples of 2⁻⁵³: an
    object of popularity p within a pool of s comes with probability p to within s·2⁻⁵³.

    Raises:
        UsageError: no users, no objects, or a γ or δ outside its range.
    """
    k = setting.k
    if users < 1 or n < 1:
        raise UsageError(f"users={users}, n={n}: must both be at least 1")
    if gamma is not None and not 0 < gamma <= 1:
        raise UsageError(f"gamma={gamma}: must lie in (0, 1]")
    if delta is not None and not 1 / k < delta <= 1:
        raise UsageError(f"delta={delta}: must lie in (1/{k}, 1]")
    random = stream.child("behaviour").numpy()
    preferred = random.integers(0, k, users)
    own_gamma = 1 - random.random(users) if gamma is None else np.full(users, float(gamma))
    own_delta = (
        1 - (1 - 1 / k) * random.random(users) if delta is None else np.full(users, float(delta))
    )
    order = np.concatenate(setting.groups)
    starts = np.cumsum([0, *(len(group) for group in setting.groups)])
    stays, other = np.empty(len(order)), np.empty(len(order), np.int64)
    for i, (a, b) in enumerate(itertools.pairwise(starts)):
        _alias(setting.within(i), stays[a:b], other[a:b])
    objects = np.empty((users, n), np.int32)
    _choose(
        objects,
        preferred,
        own_gamma,
        own_delta,
        (order, starts, stays, other),
        stream.child("objects").numpy(),
    )
    return People(objects, preferred, own_gamma, own_delta)


@jit
def _alias(share, stays, other):  # type: ignore[no-untyped-def]
    """Walker's alias table (Vose 1991): cell i keeps ``stays[i]``, gives ``other[i]`` the rest."""
    size = share.size
    small, large = np.empty(size, np.int64), np.empty(size, np.int64)
    few, many = 0, 0
    for i in range(size):
        stays[i] = share[i] * size
        other[i] = i
        if stays[i] < 1.0:
            small[few] = i
            few += 1
        else:
            large[many] = i
            many += 1
    while few > 0 and many > 0:
        few -= 1
        i, j = small[few], large[many - 1]
        other[i] = j
        stays[j] -= 1.0 - stays[i]
        if stays[j] < 1.0:
            many -= 1
            small[few] = j
            few += 1
    for i in range(few):  # what rounding left over
        stays[small[i]] = 1.0
    for i in range(many):
        stays[large[i]] = 1.0


@jit
def _choose(objects, preferred, gamma, delta, tables, random):  # type: ignore[no-untyped-def]
    order, starts, stays, other = tables
    pools = starts.size - 2
    for user in range(objects.shape[0]):
        g, mine = gamma[user], gamma[user] * delta[user]
        for t in range(objects.shape[1]):
            u = random.random()
            if u < mine:
                group = preferred[user] + 1
            elif u < g:
                i = min(pools - 2, int((u - mine) / (g - mine) * (pools - 1)))
                group = i + 1 if i < preferred[user] else i + 2
            else:
                group = 0
            first, size = starts[group], starts[group + 1] - starts[group]
            v = random.random() * size
            cell = int(v)
            if v - cell >= stays[first + cell]:
                cell = other[first + cell]
            objects[user, t] = order[first + cell]
