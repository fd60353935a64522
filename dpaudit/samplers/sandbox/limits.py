"""Resource limits of a foreign process."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

__all__ = ["DEFAULT", "Limits", "cpu_seconds"]

_CORES = os.cpu_count() or 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits on one sampler and everything it starts; sizes are in bytes.

    The kernel keeps ``reserved``, ``file_size`` and ``open_files`` for each process
    (``RLIMIT_DATA``, ``RLIMIT_FSIZE``, ``RLIMIT_NOFILE``), and ``tasks`` for all together inside a
    user namespace of a user who is not root (``RLIMIT_NPROC``), or in a control group. ``written``
    is kept by the kernel if the sampler has a scratch of its own (sandbox ``full``: a tmpfs of that
    size and a sixteenth). ``memory``, ``written`` and ``processes`` are checked up to twenty times
    per second, and at least about once, over all processes together (Linux); if one is exceeded, or
    cannot be checked, all are killed, and the message says which. Not claimed: what happens between
    two checks.
    """

    memory: int = 4 << 30
    """Resident memory not backed by a file, all processes together, shared pages counted once."""
    reserved: int = 16 << 30
    """Writable memory that one process may reserve; thread stacks and CUDA reserve a lot."""
    file_size: int = 64 << 20
    """Length of one file."""
    written: int = 1 << 30
    """What is written to files in all."""
    open_files: int = 1024
    processes: int = 256
    tasks: int = 4096
    """Processes and their threads."""
    network: bool = False
    """Whether the network can be reached; kept only where namespaces can be had."""


DEFAULT = Limits()


def cpu_seconds(seconds: float) -> int:
    """The most CPU time that a process can use in ``seconds`` of wall time on all cores, plus 1."""
    return math.ceil(seconds * _CORES) + 1
