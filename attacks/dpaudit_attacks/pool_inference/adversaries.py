"""What kinds of adversary there are: the same attack, with more or less knowledge of how popular objects are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit.interfaces import LocalMechanism, Stream
from dpaudit.registry import nearest
from dpaudit_attacks.pool_inference.popularity import estimate_popularity
from dpaudit_attacks.pool_inference.setting import Setting

__all__ = ["ADVERSARIES", "NON_PRIVATE", "check_adversaries", "popularities"]

NON_PRIVATE = "non-private"
ADVERSARIES = {
    "weak": "takes all objects of a pool as equally popular",
    "strong": "estimates popularity from other people's privatised submissions",
    "informed": "knows the true popularity (Appendix A.3)",
    NON_PRIVATE: "sees every object in the clear, whose it is and when: what no mechanism and no policy would leave",
}


def check_adversaries(names: Sequence[str]) -> tuple[str, ...]:
    """The names, if they are some of ``ADVERSARIES``, each once.

    Raises:
        UsageError: none, an unknown one, or one twice.
    """
    if isinstance(names, str) or not names or len(set(names)) < len(names):
        raise UsageError(f"adversaries={names!r}: a list of different names, at least one")
    for name in names:
        if name not in ADVERSARIES:
            raise UsageError(f"adversary={name}: not known{nearest(name, ADVERSARIES)}")
    return tuple(names)


def popularities(
    names: Sequence[str], setting: Setting, mechanism: LocalMechanism, *, submissions: int, stream: Stream
) -> dict[str, npt.NDArray[np.float64] | None]:
    """The popularity (universe,) that each adversary but the non-private one holds; None is uniform.

    Raises:
        UsageError: as ``popularity.estimate_popularity``, where a strong one is among them.
    """
    held: dict[str, npt.NDArray[np.float64] | None] = {}
    for name in names:
        if name == "weak":
            held[name] = None
        elif name == "strong":
            held[name] = estimate_popularity(mechanism, setting.popularity, stream=stream, submissions=submissions)
        elif name == "informed":
            held[name] = setting.popularity
    return held
