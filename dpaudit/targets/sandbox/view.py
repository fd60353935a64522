"""Plan which folders and which environment variables a foreign program sees.

All home directories, the auditor's working tree (the Git checkout around the working directory, or
that directory alone), ``/run`` with its sockets, and the temporary folders are hidden. What the
program needs of them stays, read-only: the folder with its code, the running Python, and what the
user names. Not claimed: that other folders hold no secret; the program may read what its user may
read elsewhere (``/etc``, ``/srv``, ``/opt`` …).
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

from dpaudit.registry import PACKAGES

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
_RUN_ON = ("/bin", "/sbin", "/usr", "/lib", "/lib64", "/nix", "/proc", "/sys", "/dev")
_SYSTEM = (*_RUN_ON, "/etc", "/opt", "/var", "/boot")
_FOLDERS_OF_PROGRAMS = {"bin", "sbin"}

_PASSED = re.compile(
    "PATH|HOME|USER|LOGNAME|SHELL|LANG|LANGUAGE|LC_.+|TZ|TZDIR|TERM|LD_LIBRARY_PATH|VIRTUAL_ENV|"
    "CONDA_PREFIX|PYTHON(PATH|HOME|HASHSEED|UTF8|COERCECLOCALE|NOUSERSITE|USERBASE|WARNINGS|"
    "DONTWRITEBYTECODE|PLATLIBDIR)|"
    "(OMP|OPENBLAS|MKL|NUMEXPR|NUMBA|BLIS|VECLIB|RAYON|GOTO)_.+|ATEN_CPU_CAPABILITY|"
    "(CUDA|NVIDIA|CUBLAS|NCCL|XLA|JAX|TORCH)_.+|"
    "GOMAXPROCS|JAVA_HOME|JULIA_(DEPOT_PATH|NUM_THREADS|LOAD_PATH)|R_(HOME|LIBS.*)|GEM_(HOME|PATH)|"
    "NODE_PATH|PERL5LIB|RUBYLIB|GUILE_LOAD_PATH|OCTAVE_.+|GSL_RNG_.+"
)
_SECRET = re.compile("KEY|TOKEN|SECRET|PASSW|CREDENTIAL")


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """``hidden`` are real folders, none inside another; ``kept`` stays visible inside them."""

    hidden: tuple[str, ...]
    kept: tuple[str, ...]
    home: str
    cwd: str


def plan(needs: Iterable[str], visible: Iterable[str] = ()) -> View:
    """The view of a program whose code ``needs`` files and folders; ``visible`` ones are added.

    With a file comes its folder, unless that is a hidden folder itself, or the home directory or
    one around it: then the file alone. The working tree stays whole if the program lives in it,
    unless it is the home directory. A ``visible`` path is shown, whatever it is.
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
    secret = [
        *_ALWAYS,
        *([] if _of_all(home) else [home]),
        *([] if inside or _of_the_system(tree) else [tree]),
    ]
    real = (os.path.realpath(path) for path in secret if os.path.isdir(path))
    hidden = _outermost(path for path in real if path != "/")
    never = {*hidden, *_upwards(os.path.realpath(home))}  # shown whole only if they are asked for
    candidates = [p for path in needed for p in _with_neighbours(path, never)]
    candidates += [*([tree] if inside else []), *_python()]
    accessible = [p for p in candidates if os.path.realpath(p) not in never]
    accessible += map(os.path.abspath, visible)
    kept = _outermost(
        p for p in accessible if os.path.exists(p) and _below_any(os.path.realpath(p), hidden)
    )
    return View(hidden=hidden, kept=kept, home=home, cwd=cwd)


def environment(variables: Mapping[str, str], passed: Sequence[str] = ()) -> dict[str, str]:
    """The variables on the allow-list of what programs need, and those ``passed`` by name.

    >>> environment({"PATH": "/bin", "AWS_SECRET_ACCESS_KEY": "…", "DPAUDIT_DATA": "…"})
    {'PATH': '/bin'}
    """
    return {
        name: value
        for name, value in variables.items()
        if name in passed or (_PASSED.fullmatch(name) and not _SECRET.search(name))
    }


def _tree(cwd: str, home: str) -> str:
    """The Git checkout around ``cwd`` that is not the home directory, or ``cwd``; resolved."""
    cwd = os.path.realpath(cwd)
    checkouts = (folder for folder in _upwards(cwd) if os.path.exists(f"{folder}/.git"))
    return next((folder for folder in checkouts if folder != home), cwd)


def _upwards(path: str) -> list[str]:
    """A resolved path, and the folders around it."""
    return [path, *map(str, Path(path).parents)]


def _of_the_system(tree: str) -> bool:
    """Whether hiding it would hide what programs run on."""
    return tree == "/" or any(_within(tree, folder) or _within(folder, tree) for folder in _SYSTEM)


def _of_all(home: str) -> bool:
    """Whether a home cannot be hidden: some are ``/``, or a system folder like ``/usr/games``."""
    return any(_within(folder, home) for folder in _SYSTEM) or any(
        _within(home, folder) for folder in _RUN_ON
    )


def _with_neighbours(path: str, never: Collection[str]) -> list[str]:
    """A file's folder (for a program in ``bin`` the one above); the file if that is ``never``."""
    places = []
    for p in dict.fromkeys((path, os.path.realpath(path))):
        folder = p if os.path.isdir(p) else os.path.dirname(p)
        above, name = os.path.split(folder)
        if name in _FOLDERS_OF_PROGRAMS and os.path.realpath(above) not in never:
            folder = above
        places.append(p if os.path.realpath(folder) in never else folder)
    return places


def _prefixes() -> list[str]:
    return [sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix]


def _python() -> tuple[str, ...]:
    """The folders of this Python and of what it imports."""
    places: list[str | None] = [*_prefixes(), *sys.path, site.USER_SITE]
    places += os.environ.get("PYTHONPATH", "").split(os.pathsep)
    places.append(os.path.dirname(os.path.realpath(sys.executable)))
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        places += [] if spec is None else spec.submodule_search_locations or []
    return tuple(os.path.abspath(place) for place in places if place and os.path.exists(place))


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _below_any(path: str, folders: Iterable[str]) -> bool:
    return any(_within(path, folder) for folder in folders)


def _outermost(paths: Iterable[str]) -> tuple[str, ...]:
    """``paths`` without those inside another."""
    outermost: list[str] = []
    for path in sorted(set(paths)):
        if not _below_any(path, outermost):
            outermost.append(path)
    return tuple(outermost)


def files_of_command(argv: Iterable[str]) -> list[str]:
    """The program and all words of its command line that are files or folders."""
    first, *rest = argv
    return [shutil.which(first) or first, *(word for word in rest if os.path.exists(word))]


def files_of_module(place: str) -> list[str]:
    """The files of a Python module: a path, or a dotted name found in the working directory."""
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
    """A folder that a distribution's sources share for compiled code; None if it cannot be made.

    It is the one place outside the scratch that a sandboxed source may write, and the auditor never
    reads it. Without it, each process would compile again, for many seconds.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "dpaudit" / "compiled" / f"{distribution}-{sys.implementation.cache_tag}"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK) else None
