"""Releases of a package as its index lists them, and an environment for one of them, by pip.

Wheels only: no release is built from its source. pip reads its own configuration. The cache has
folders ``wheels`` and ``environments``; ``DPAUDIT_HISTORY`` says where it is. Offline nothing but
these wheels is installed.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import venv
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from email.parser import Parser
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import Version

from dpaudit.errors import DpauditError, SamplerError, UsageError
from dpaudit.results.text import one_line

__all__ = ["NotInstallableError", "Requirements", "built", "cache", "environment", "versions"]

_SECONDS = 1200
_UNREACHABLE = ("connection broken", "NewConnectionError", "timed out", "Max retries")
_FIRST, _REPRODUCIBLE = "2017", "2020-02-02"  # builders write such dates to be reproducible


class NotInstallableError(DpauditError):
    """A release that cannot be installed for this Python; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirements:
    """What is installed with a release.

    ``others`` are further requirements, as pip reads them. Of the release's own dependencies only
    those named in ``only`` are installed; None installs all. ``shared``: what the environment lacks
    is taken from the packages of this Python.
    """

    others: tuple[str, ...] = ()
    only: tuple[str, ...] | None = None
    shared: bool = False


def cache() -> Path:
    """The folder of wheels and environments."""
    folder = os.environ.get("DPAUDIT_HISTORY")
    users = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return (Path(folder) if folder else users / "dpaudit" / "history").resolve()


def versions(distribution: str, specifiers: Sequence[str] = ()) -> list[str]:
    """The releases that the index has for this Python, oldest first; offline those in the cache.

    With ``specifiers``, such as ``>=0.10,<0.15`` or ``==0.9.2``, those that match one of them.
    Early releases (``1.0rc1``) are left out.

    Raises:
        UsageError: an invalid specifier, no release, or an index that cannot be read.
    """
    accepted = [_specifier(text) for text in specifiers]
    if _offline():
        known = {version for name, version in _wheels() if name == canonicalize_name(distribution)}
        if not known:
            raise UsageError(
                f"offline: {cache()} has no wheel of {distribution}; run once without --offline"
            )
    else:
        listed = _pip("index", "versions", distribution)
        match = re.search(r"^Available versions: (.*)$", listed.stdout, re.MULTILINE)
        if match is None:
            raise UsageError(
                f"library={distribution}: the package index lists no release "
                f"({_last(listed.stderr)}); check pip's configuration, or use --offline"
            )
        known = {Version(text.strip()) for text in match[1].split(",")}
    known = {version for version in known if not version.is_prerelease}
    chosen = [v for v in sorted(known) if not accepted or any(s.contains(v) for s in accepted)]
    if not chosen:
        among = ", ".join(str(v) for v in sorted(known, reverse=True)[:12]) or "none"
        raise UsageError(
            f"versions={' '.join(specifiers) or 'all'}: matches no release of {distribution}; the "
            f"newest are {among}"
        )
    return [str(version) for version in chosen]


def _specifier(text: str) -> SpecifierSet:
    try:
        return SpecifierSet(text)
    except InvalidSpecifier:
        raise UsageError(
            f"versions={one_line(text)}: must be like '>=0.10' or '>=0.10,<0.15'"
        ) from None


@contextlib.contextmanager
def environment(release: str, requirements: Requirements) -> Iterator[Path]:
    """A folder with an environment that has ``release``, NAME==VERSION; deleted at the end.

    Raises:
        NotInstallableError: there is no wheel for this Python, or the requirements conflict.
        SamplerError: the index cannot be reached.
    """
    wheels, folders = cache() / "wheels", cache() / "environments"
    for folder in (wheels, folders):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    place = Path(tempfile.mkdtemp(prefix=re.sub(r"[^\w.]+", "-", release) + "-", dir=folders))
    try:
        venv.create(place, with_pip=False, symlinks=True)
        if requirements.only is None:
            _install(place, [release, *requirements.others])
        else:
            _install(place, ["--no-deps", release])
            further = [*_dependencies(release, requirements.only), *requirements.others]
            if further:
                _install(place, further)
        if requirements.shared:
            for folder in place.glob("lib/python3*/site-packages"):
                places = dict.fromkeys(map(sysconfig.get_path, ("purelib", "platlib")))
                (folder / "shared.pth").write_text("\n".join(places), encoding="utf-8")
        yield place
    finally:
        if not os.environ.get("DPAUDIT_HISTORY_KEEP"):
            shutil.rmtree(place, ignore_errors=True)


def built(release: str) -> str | None:
    """The day that a release's wheel in the cache was built; None if it has no date."""
    with _wheel(release) as wheel:
        dates = [i.date_time for i in wheel.infolist() if i.filename.endswith(".py")]
    day = "{:04}-{:02}-{:02}".format(*max(dates, default=(0, 0, 0))[:3])
    return day if day > _FIRST and day != _REPRODUCIBLE else None


def _dependencies(release: str, only: Sequence[str]) -> list[str]:
    """What the release's wheel requires, of those that are named in ``only``."""
    with _wheel(release) as wheel:
        metadata = next(n for n in wheel.namelist() if n.endswith(".dist-info/METADATA"))
        headers = Parser().parsestr(wheel.read(metadata).decode(errors="replace"))
    required = map(Requirement, headers.get_all("Requires-Dist", []))
    names = set(map(canonicalize_name, only))
    return [
        f"{r.name}{r.specifier}"
        for r in required
        if canonicalize_name(r.name) in names
        and (r.marker is None or r.marker.evaluate({"extra": ""}))
    ]


@contextlib.contextmanager
def _wheel(release: str) -> Iterator[zipfile.ZipFile]:
    """A release's wheel in the cache."""
    name, _, version = release.partition("==")
    identity = canonicalize_name(name), Version(version)
    folder = cache() / "wheels"
    paths = [path for path in folder.glob("*.whl") if _parsed(path) == identity]
    if not paths:
        raise NotInstallableError(f"no wheel of {release} in {folder}")
    with zipfile.ZipFile(paths[0]) as wheel:
        yield wheel


def _offline() -> bool:
    return bool(os.environ.get("DPAUDIT_HISTORY_OFFLINE"))


def _wheels() -> Iterator[tuple[str, Version]]:
    for path in (cache() / "wheels").glob("*.whl"):
        parsed = _parsed(path)
        if parsed is not None:
            yield parsed


def _parsed(wheel: Path) -> tuple[str, Version] | None:
    try:
        name, version, *_ = parse_wheel_filename(wheel.name)
    except InvalidWheelFilename:
        return None
    return name, version


def _install(folder: Path, arguments: Sequence[str]) -> None:
    """Install wheels into an environment: those in the cache, or else what pip downloads into it.

    Raises:
        NotInstallableError, SamplerError: as :func:`environment`.
    """
    wheels = ["--only-binary", ":all:", "--find-links", str(cache() / "wheels")]
    into = ["--python", str(folder / "bin" / "python"), "install", "--no-compile"]
    done = _pip(*into, "--no-index", *wheels, *arguments)
    if done.returncode and not _offline():
        done = _pip("download", "--dest", str(cache() / "wheels"), *wheels, *arguments)
        if not done.returncode:
            done = _pip(*into, "--no-index", *wheels, *arguments)
    if not done.returncode:
        return
    output = done.stderr + done.stdout
    if not _offline() and any(sign in output for sign in _UNREACHABLE):
        raise SamplerError(
            f"release={arguments[-1]}: the package index cannot be reached ({_last(output)}); "
            "check the network, then repeat the command with --resume"
        )
    lacks = re.search(r"No matching distribution found for (\S+)", output)
    if lacks is not None:
        python = f"for Python {sys.version_info.major}.{sys.version_info.minor}"
        raise NotInstallableError(
            f"no wheel of {lacks[1]} {'in the cache' if _offline() else python}"
        )
    raise NotInstallableError(f"pip: {_last(output)}")


def _pip(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", *arguments]
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise SamplerError(
            f"pip {one_line(' '.join(arguments))}: not done after {_SECONDS} s; check the network, "
            "then repeat the command with --resume"
        ) from None


def _last(output: str) -> str:
    """The last line of pip's output that names an error."""
    lines = [line for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")] or lines or ["no output"]
    return one_line(errors[-1].removeprefix("ERROR: "), limit=300)
