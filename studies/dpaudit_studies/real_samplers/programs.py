"""The programs in other languages that draw normal numbers, and how each is built and started.

Each serves on its standard input and output: for every line with a number n it writes n doubles
(little-endian), and it ends with its input.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from dpaudit.errors import MissingExtraError
from dpaudit.results.text import one_line

__all__ = ["COMMONS_MATH", "LANGUAGES", "Language", "Package", "version"]

_SOURCES = Path(__file__).parent / "sources"
_SECONDS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Language:
    """``build`` and ``run`` are commands, with ``{source}`` and ``{built}`` filled in.

    ``{seed}`` in ``run`` becomes the seed, which also follows METHOD. ``version`` is a command that
    says the version, or ``("python", NAME)`` of a Python package. ``debian`` are its packages.
    """

    source: str
    run: tuple[str, ...]
    version: tuple[str, ...]
    build: tuple[str, ...] = ()
    debian: str = ""

    def command(self) -> tuple[str, ...]:
        """What starts it, built if it must be; METHOD and SEED are to follow.

        Raises:
            MissingExtraError: a program or library that it needs is not installed.
        """
        return _command(self)


@cache
def _command(language: Language) -> tuple[str, ...]:
    folder = Path(_folder().name)
    source, built = folder / language.source, folder / f"{language.source}.built"
    shutil.copyfile(_SOURCES / language.source, source)  # compilers write into its folder
    values = {"source": str(source), "built": str(built)}
    values |= {"python": sys.executable, "folder": _folder().name, "seed": "{seed}"}
    for part in filter(None, (language.build, language.run)):
        name = part[0].format(**values)
        if part is language.run and name == values["built"]:
            continue
        if shutil.which(name) is None:
            raise MissingExtraError(f"{name}: not installed; apt install {language.debian}")
    if language.build:
        build = [part.format(**values) for part in language.build]
        done = _run(build, timeout=_SECONDS, cwd=_folder().name)
        if done.returncode:
            output = one_line(done.stderr or done.stdout)[:200]
            raise MissingExtraError(
                f"{language.source}: cannot be built ({output}); apt install {language.debian}"
            )
    return tuple(part.format(**values) for part in language.run)


def _run(command: Sequence[str], **how: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, **how)


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    """Where programs are built, until this process ends."""
    return tempfile.TemporaryDirectory(prefix="dpaudit-programs-")


@cache
def version(command: tuple[str, ...]) -> str:
    """The first number with a dot in what a command says, or else an empty text."""
    if command[0] == "python":
        return _module_version(command[1])
    try:
        done = _run(command, timeout=60, stdin=subprocess.DEVNULL)
    except OSError:
        return ""
    if done.returncode:
        return ""
    for word in (done.stdout + " " + done.stderr).replace(",", " ").split():
        bare = word.strip('"():v').removeprefix("go")
        if bare[:1].isdigit() and "." in bare:
            return one_line(bare)
    return ""


def _module_version(name: str) -> str:
    if name == "python":
        return sys.version.split()[0]
    if importlib.util.find_spec(name) is None:
        return ""
    from importlib.metadata import version as installed

    return installed(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A package whose code draws: what says its ``version``, and what installs it."""

    version: tuple[str, ...]
    install: str


def _native(source: str, *build: str, debian: str, version: tuple[str, ...] = ()) -> Language:
    """A program that is compiled: by a compiler and its libraries, or by a whole command."""
    if not any("{built}" in word for word in build):
        build = (*build[:1], "-O2", "{source}", "-o", "{built}", *build[1:])
    return Language(
        source=source, build=build, run=("{built}",), debian=debian,
        version=version or (build[0], "-dumpfullversion"),
    )  # fmt: skip


def _script(source: str, *run: str, debian: str, version: tuple[str, ...] = ()) -> Language:
    """A program that an interpreter reads."""
    version = version or (run[0], "--version")
    return Language(source=source, run=(*run, "{source}"), version=version, debian=debian)


def _package(name: str) -> tuple[str, ...]:
    return ("dpkg-query", "-W", "-f", "${Version}", name)


_JAVA_PATH = "/usr/share/java/commons-math3.jar"
COMMONS_MATH = Package(
    version=_package("libcommons-math3-java"), install="apt install libcommons-math3-java"
)
LANGUAGES: Mapping[str, Language] = {
    "C": _native("normal_libc.c", "gcc", "-lm", debian="gcc libc6-dev"),
    "C, GSL": _native("normal_gsl.c", "gcc", "-lgsl", "-lgslcblas", "-lm", debian="gcc libgsl-dev",
                      version=("gsl-config", "--version")),
    "C++": _native("normal_std.cpp", "g++", debian="g++"),
    "C++, Boost": _native("normal_boost.cpp", "g++", debian="g++ libboost-random-dev",
                          version=_package("libboost-random-dev")),
    "C#": Language(source="Normal.cs", build=("mcs", "-out:{built}", "{source}"),
                   run=("mono", "{built}"), version=("mono", "--version"),
                   debian="mono-mcs mono-runtime"),
    "Go": _native("normal.go", "go", "build", "-o", "{built}", "{source}", debian="golang-go",
                  version=("go", "version")),
    "Java": _script("Normal.java", "java", "-cp", _JAVA_PATH, debian="openjdk-17-jdk-headless"),
    "JavaScript": _script("normal.js", "node", "--random-seed={seed}", debian="nodejs npm"),
    "Octave": _script("normal.m", "octave-cli", "--norc", "-q", debian="octave"),
    "Python": _script("normal.py", "{python}", version=("python", "python"), debian="python3"),
    "R": _script("normal.R", "Rscript", "--vanilla", debian="r-base-core"),
    "Tcl": _script("normal.tcl", "tclsh", version=_package("tcl"), debian="tcl"),
}  # fmt: skip
