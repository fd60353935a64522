"""Who made a result, with what, on what, when."""

from __future__ import annotations

import functools
import os
import platform
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from types import MappingProxyType

from dpaudit import wording
from dpaudit.registry import source_hash
from dpaudit.report import Facts
from dpaudit.results.text import one_line
from dpaudit.types import AuditedFile, PluginOrigin, Provenance

__all__ = ["collect", "file_facts", "hardware", "versions", "with_identity"]

_REPORTED = ("dpaudit", "numpy", "scipy", "cryptography", "torch")


@functools.cache
def versions() -> dict[str, str]:
    """Versions of Python, dpaudit and the libraries that its numbers come from."""
    numbers = {"python": platform.python_version()}
    for name in _REPORTED:
        try:
            numbers[name] = version(name)
        except PackageNotFoundError:
            numbers[name] = "not installed"
    return numbers


def hardware() -> str:
    """This machine: processor, cores, system, and the CUDA device if torch is in use."""
    return f"{_processor()}{_accelerator()}"


@functools.cache
def _processor() -> str:
    model = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            model = next(
                (line.split(":", 1)[1].strip() for line in file if line.startswith("model name")),
                model,
            )
    except OSError:
        pass  # not Linux: platform's answer stays
    return f"{model}, {os.cpu_count()} cores, {platform.system()} {platform.release()}"


def _accelerator() -> str:
    """The CUDA device that torch sees, if this process has imported it."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return ""
    return f", {torch.cuda.get_device_name()}"


def with_identity(
    provenance: Provenance,
    *,
    by: str,
    files: Iterable[AuditedFile] = (),
    versions: Mapping[str, str] = MappingProxyType({}),
) -> Provenance:
    """Provenance that also says who ran the audit, and what was audited: files, or a library."""
    return replace(
        provenance,
        by=one_line(by, limit=200),
        files=tuple(files),
        versions={**provenance.versions, **versions},
    )


def collect(*, seed: str, plugins: Iterable[PluginOrigin]) -> Provenance:
    """Provenance of a result made now, in this process, from ``seed`` with ``plugins``."""
    return Provenance(
        seed=seed,
        versions=versions(),
        plugins=tuple(plugins),
        hardware=hardware(),
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        source=source_hash("dpaudit"),
    )


def file_facts(provenance: Provenance) -> tuple[Facts, ...]:
    """The audited files, each as names and values."""
    return tuple(Facts(tuple(_facts_of(file)), file=True) for file in provenance.files)


def _facts_of(file: AuditedFile) -> list[tuple[str, str]]:
    facts = [
        ("Audited file", file.name),
        ("SHA-256", file.sha256 or "the file could not be read"),
        ("Size", f"{wording.count(file.size)} bytes" if file.sha256 else ""),
        ("Modified", wording.date_text(file.modified)),
    ]
    return [(name, value) for name, value in facts if value]
