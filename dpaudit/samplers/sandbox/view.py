"""Which folders and which environment variables a foreign program gets to see. The auditor's side: plans, does nothing.

Hidden are the home directory and all others, the auditor's working tree (the Git checkout around
the working directory, or that directory alone), ``/run`` with its sockets, and the temporary
folders. What the program needs of them stays, read-only: the folder where it lives, the Python that
runs, and what the user names. Not claimed: that other folders hold no secret; what its user may
read elsewhere (``/etc``, ``/srv``, ``/opt`` …) the program may read.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import site
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "View",
    "compiled_code",
    "environment",
    "files_of_command",
    "files_of_module",
    "files_of_options",
    "plan",
]

_HOMES = ("/home", "/root")
_TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 hidden, not used
_ALWAYS = (*_HOMES, "/run", *_TEMPORARY)
_SYSTEM = (
    "/bin",
    "/sbin",
    "/usr",
    "/lib",
    "/lib64",
    "/etc",
    "/opt",
    "/nix",
    "/proc",
    "/sys",
    "/dev",
    "/var",
    "/boot",
)
_RUN_ON = ("/bin", "/sbin", "/usr", "/lib", "/lib64", "/nix", "/proc", "/sys", "/dev")
_OURS = ("dpaudit", "dpaudit_attacks", "dpaudit_mitigations")
_FOLDERS_OF_PROGRAMS = {"bin", "sbin"}

_PASSED = re.compile(
    "PATH|HOME|USER|LOGNAME|SHELL|LANG|LANGUAGE|LC_.+|TZ|TZDIR|TERM|LD_LIBRARY_PATH|VIRTUAL_ENV|CONDA_PREFIX|"
    "PYTHON(PATH|HOME|HASHSEED|UTF8|COERCECLOCALE|NOUSERSITE|USERBASE|WARNINGS|DONTWRITEBYTECODE|PLATLIBDIR)|"
    "(OMP|OPENBLAS|MKL|NUMEXPR|NUMBA|BLIS|VECLIB|RAYON|GOTO)_.+|ATEN_CPU_CAPABILITY|"
    "(CUDA|NVIDIA|CUBLAS|NCCL|XLA|JAX|TORCH)_.+|"
    "GOMAXPROCS|JAVA_HOME|JULIA_(DEPOT_PATH|NUM_THREADS|LOAD_PATH)|R_(HOME|LIBS.*)|GEM_(HOME|PATH)|NODE_PATH|PERL5LIB|"
    "RUBYLIB|GUILE_LOAD_PATH|OCTAVE_.+|GSL_RNG_.+"
)
_SECRET = re.compile("KEY|TOKEN|SECRET|PASSW|CREDENTIAL")


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """``hidden`` are real folders, none inside another; ``kept`` is what stays to be seen inside them."""

    hidden: tuple[str, ...]
    kept: tuple[str, ...]
    home: str
    cwd: str


def plan(needs: Iterable[str], visible: Iterable[str] = ()) -> View:
    """The view of a program that needs the files and folders ``needs`` (where its code is) and ``visible`` (also asked for).

    A file brings the folder that it lies in, unless that is a hidden folder itself, or the home
    directory or one around it: then the file alone. The working tree stays whole if the program
    lives in it, unless it is the home directory. What is asked for is shown, whatever it is.
    """
    cwd = os.getcwd()
    home = os.path.expanduser("~")
    tree = _tree(cwd, os.path.realpath(home))
    needed = [
        p
        for path in needs
        if os.path.exists(p := os.path.abspath(path)) and not _below_any(p, _prefixes())
    ]
    inside = any(_within(os.path.realpath(path), tree) for path in needed)
    hidden = _outermost(
        os.path.realpath(path)
        for path in (
            *_ALWAYS,
            *([] if _of_all(home) else [home]),
            *([] if inside or _of_the_system(tree) else [tree]),
        )
        if os.path.isdir(path) and os.path.realpath(path) != "/"
    )
    never = {*hidden, *_upwards(os.path.realpath(home))}  # shown whole only if they are asked for
    wanted = [
        *(p for path in needed for p in _with_neighbours(path, never)),
        *([tree] if inside else []),
        *_python(),
    ]
    kept = dict.fromkeys(
        path
        for path in (
            *(p for p in wanted if os.path.realpath(p) not in never),
            *map(os.path.abspath, visible),
        )
        if os.path.exists(path) and _below_any(os.path.realpath(path), hidden)
    )
    return View(hidden=hidden, kept=_outermost(kept), home=home, cwd=cwd)


def environment(given: Mapping[str, str], passed: Sequence[str] = ()) -> dict[str, str]:
    """The variables of an allow-list that a program needs to run, and those asked for by name; nothing of dpaudit's.

    >>> environment({"PATH": "/bin", "AWS_SECRET_ACCESS_KEY": "…", "DPAUDIT_DATA": "…"})
    {'PATH': '/bin'}
    """
    return {
        name: value
        for name, value in given.items()
        if name in passed or (_PASSED.fullmatch(name) and not _SECRET.search(name))
    }


def _tree(cwd: str, home: str) -> str:
    """The Git checkout around ``cwd`` that is not the home directory, or ``cwd``; resolved."""
    checkouts = (
        folder for folder in _upwards(os.path.realpath(cwd)) if os.path.exists(f"{folder}/.git")
    )
    return next((folder for folder in checkouts if folder != home), os.path.realpath(cwd))


def _upwards(path: str) -> list[str]:
    """A resolved path, and the folders around it."""
    return [path, *map(str, Path(path).parents)]


def _of_the_system(tree: str) -> bool:
    """Whether hiding it would hide what programs run on."""
    return tree == "/" or any(_within(tree, folder) or _within(folder, tree) for folder in _SYSTEM)


def _of_all(home: str) -> bool:
    """Whether a home cannot be hidden: some users' is ``/``, or a folder of the system such as ``/usr/games``."""
    return any(_within(folder, home) for folder in _SYSTEM) or any(
        _within(home, folder) for folder in _RUN_ON
    )


def _with_neighbours(path: str, never: Collection[str]) -> list[str]:
    """What a file or folder needs: the folder around it, of a program in ``bin`` the one around that, none of ``never``."""
    found = []
    for p in dict.fromkeys((path, os.path.realpath(path))):
        folder = p if os.path.isdir(p) else os.path.dirname(p)
        above = os.path.dirname(folder)
        if (
            os.path.basename(folder) in _FOLDERS_OF_PROGRAMS
            and os.path.realpath(above) not in never
        ):
            folder = above
        found.append(p if os.path.realpath(folder) in never else folder)
    return found


def _prefixes() -> list[str]:
    return [sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix]


def _python() -> tuple[str, ...]:
    """Where this Python, and what it imports, lies."""
    places = [*_prefixes(), *sys.path]
    places += os.environ.get("PYTHONPATH", "").split(os.pathsep)
    places += [
        os.path.dirname(os.path.realpath(sys.executable)),
        *([site.USER_SITE] if site.USER_SITE else []),
    ]
    for name in _OURS:
        spec = importlib.util.find_spec(name)
        places += [] if spec is None else spec.submodule_search_locations or []
    return tuple(os.path.abspath(place) for place in places if place and os.path.exists(place))


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _below_any(path: str, folders: Iterable[str]) -> bool:
    return any(_within(path, folder) for folder in folders)


def _outermost(paths: Iterable[str]) -> tuple[str, ...]:
    """Without those inside another."""
    found: list[str] = []
    for path in sorted(set(paths)):
        if not _below_any(path, found):
            found.append(path)
    return tuple(found)


def files_of_command(argv: Iterable[str]) -> list[str]:
    """The program and all words of its command line that are files or folders."""
    first, *rest = argv
    return [shutil.which(first) or first, *(word for word in rest if os.path.exists(word))]


def files_of_module(place: str) -> list[str]:
    """The file of a Python module: a path, or a dotted name if that is found in the working directory."""
    if "/" in place or place.endswith(".py"):
        return [place]
    top = place.partition(".")[0]
    return [path for path in (f"{top}.py", top) if os.path.exists(path)]


def files_of_options(*references: str | None) -> list[str]:
    """Files that the options of ``NAME:opt=value,…`` name, such as a key."""
    pairs = [text.partition(":")[2].split(",") for text in references if text]
    values = [pair.partition("=")[2] for some in pairs for pair in some]
    return [value for value in values if value and os.path.exists(value)]


def compiled_code(distribution: str) -> Path | None:
    """A folder that a distribution's registered sources share for compiled code; None if none can be made.

    It is the one place outside the scratch that a sandboxed source may write, and the auditor never
    reads it: compiling takes many seconds, and a sandbox that forgets would do it in every process.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "dpaudit" / "compiled" / f"{distribution}-{sys.implementation.cache_tag}"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK) else None
