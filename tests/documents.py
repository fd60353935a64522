"""What a page tells its reader to type, and a reader who types it.

`python tests/documents.py PAGE…` follows pages by hand. Blocks are taken in the order of the page,
in a folder that holds `examples/` and `tests/data/apple/` and nothing else:

- A first line that is a comment with a file name and nothing more (`# own.py`, `// own.c`) has the
  block written there.
- `console`: each `$ command` is run by bash. It must exit with 0, or with what `  # exits 1` says.
  `pip install` installs into the page's own folder, without an index. A command that ends in `&`
  must print a line, and runs until the page ends. A finding of `dpaudit audit` where the page has
  none is looked at again, once: α = 0.01 allows one in a hundred.
- `dpaudit`, `python` and `pytest` run in processes forked from one that has imported numpy, scipy
  and torch, so that this is done once; what stands between pipes or in the background, and what
  these processes start, begins anew.
- Other lines of such a block, and a `text` block right below it, are what the last command printed:
  each must be among what it printed, in that order; `…` stands for anything.
- `python` is run as a script of its own, or by pytest if it has tests; with a file name it is only
  written. `pycon`: a doctest.
- `toml`, `json`, `yaml` and `xml` are parsed, and a `toml` that is an experiment is loaded as one.
- `sh` and `text` are not run, and nor is a directive (`{toctree}`). Any other language is an error.
"""

from __future__ import annotations

import atexit
import functools
import json
import multiprocessing
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import time
import tomllib
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
UNTOUCHED = {"sh", "text", "c"}
SHELL = set("|&;<>()$`*?[]#~!\\")  # a command that has one of these is read by bash
PRELOADED = ["dpaudit.cli", "matplotlib.pyplot", "numba", "pytest", "scipy.stats", "torch"]
WAIT = 20.0
LONGEST = 600.0
MODULES = {"dpaudit": ("-m", "dpaudit"), "pytest": ("-m", "pytest", "-p", "no:cacheprovider")}
NAMED = re.compile(r"(?:#|//|/\*|<!--) ([\w-][\w./-]*\.\w+)(?: \*/| -->)?")


@dataclass(frozen=True)
class Fence:
    """One fenced block: its first line, its language, its text, and the file's name, if any."""

    line: int
    language: str
    text: str
    below: bool = False  # only blank lines since the block before

    @property
    def file(self) -> str | None:
        named = NAMED.fullmatch(self.text.partition("\n")[0].strip())
        return named[1] if named else None


@dataclass(frozen=True)
class Command:
    """One line to type, the code it exits with, and the lines of its output that the page shows."""

    line: int
    text: str
    code: int
    shown: tuple[str, ...]


def fences(page: str) -> list[Fence]:
    """All fenced blocks of a page in order, indented and nested ones too (fences of four)."""
    found: list[Fence] = []
    lines = page.splitlines()
    at, end = 0, -1
    while at < len(lines):
        opened = re.match(r"^( *)(`{3,})\s*(\S*)", lines[at])
        if not opened:
            at += 1
            continue
        indent, ticks, language = opened.groups()
        close = next(
            (i for i in range(at + 1, len(lines)) if lines[i].strip() == ticks), len(lines)
        )
        text = "\n".join(line.removeprefix(indent) for line in lines[at + 1 : close])
        below = bool(found) and not "".join(lines[end + 1 : at]).strip()
        found.append(Fence(at + 1, language, text, below))
        at, end = close + 1, close
    return found


def commands(fence: Fence, shown_below: str = "") -> list[Command]:
    """What a `console` block says to type; ``shown_below`` is the output shown right under it."""
    typed: list[tuple[int, str, list[str]]] = []
    for number, line in enumerate(fence.text.splitlines(), start=fence.line + 1):
        if line.startswith("$ "):
            typed.append((number, line[2:], []))
        elif typed and typed[-1][1].endswith("\\"):
            typed[-1] = (typed[-1][0], typed[-1][1][:-1] + line.strip(), typed[-1][2])
        elif typed:
            typed[-1][2].append(line)
    if typed:
        typed[-1][2].extend(shown_below.splitlines())
    out = []
    for number, line, shown in typed:
        text, _, comment = line.partition("  # ")
        code = re.search(r"exits? (\d)", comment)
        out.append(Command(number, text.strip(), int(code[1]) if code else 0, tuple(shown)))
    return out


def not_printed(shown: Sequence[str], printed: str) -> str | None:
    """The first line of ``shown`` not among the lines of ``printed``, in order; None if all are."""
    left = iter([" ".join(line.split()) for line in printed.splitlines()])
    for line in shown:
        want = " ".join(line.split())
        if want.strip(" …."):
            pattern = re.compile(".*".join(re.escape(part.strip()) for part in want.split("…")))
            if not any(pattern.fullmatch(other) for other in left):
                return line
    return None


@functools.cache
def forks() -> multiprocessing.context.ForkServerContext:
    """Where processes are forked: not here, where pytest has imported and set too much."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    return context


@functools.cache
def usual_path() -> list[str]:
    """``sys.path`` of a Python that has just started, without its first entry and PYTHONPATH."""
    show = [sys.executable, "-c", "import json, sys; print(json.dumps(sys.path[1:]))"]
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return json.loads(subprocess.run(show, env=env, stdout=subprocess.PIPE, check=True).stdout)


def as_python(words: Sequence[str], folder: Path, env: dict[str, str], path: Sequence[str]) -> None:
    """``python WORDS`` in a process of ours; output goes to ``.out`` and ``.err`` in ``folder``."""
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(env)
    for descriptor, name in ((1, ".out"), (2, ".err")):
        os.dup2(os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()  # not the state that all forks inherit
    sys.path[:] = ["", *env["PYTHONPATH"].split(os.pathsep), *path]
    try:
        if words[0] == "-c":
            sys.argv = ["-c", *words[2:]]
            exec(words[1], {"__name__": "__main__"})
        elif words[0] == "-m":
            sys.argv = list(words[1:])
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv, sys.path[0] = list(words), str((folder / words[0]).parent)
            runpy.run_path(words[0], run_name="__main__")
    finally:
        atexit._run_exitfuncs()  # multiprocessing would leave without them


class Reader:
    """Somebody who follows a page top to bottom in a folder of their own; a context manager."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.site, self.bin = folder / ".site", folder / ".bin"
        self.started: list[subprocess.Popen[str]] = []
        shutil.copytree(
            ROOT / "examples", folder / "examples", ignore=shutil.ignore_patterns("__pycache__")
        )
        shutil.copytree(ROOT / "tests" / "data" / "apple", folder / "tests" / "data" / "apple")
        self.bin.mkdir()
        offline = (
            "--quiet --disable-pip-version-check --no-index --no-deps --no-build-isolation "
            f"--target {self.site}"
        )
        for name, words in {
            "python": '"$@"',
            **{name: f'{" ".join(words)} "$@"' for name, words in MODULES.items()},
            "pip": f'-m pip install {offline} "${{@:2}}"',
        }.items():
            shim = self.bin / name
            shim.write_text(
                f"#!/usr/bin/env bash\nexec {sys.executable} {words}\n", encoding="utf-8"
            )
            shim.chmod(0o755)
        self.env = os.environ | {
            "PATH": f"{self.bin}{os.pathsep}{os.environ['PATH']}",
            "PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join(
                [str(self.site), *filter(None, [os.environ.get("PYTHONPATH")])]
            ),
            "PYTHONUNBUFFERED": "1",
        }

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *exc: object) -> None:
        for process in self.started:
            process.terminate()
            process.communicate(timeout=WAIT)

    def follow(self, page: str) -> Iterator[tuple[int, str, float, str | None]]:
        """Do what the page says: each step's line, what it was, its seconds, and error or None."""
        blocks = fences(page)
        for fence, below in zip(blocks, [*blocks[1:], None], strict=False):
            shown = (
                below.text if below is not None and below.below and below.language == "text" else ""
            )
            if fence.file is not None and fence.language not in {"console", "text"}:
                target = self.folder / fence.file
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(fence.text + "\n", encoding="utf-8")
            for line, what, step in self._steps(fence, shown):
                start = time.perf_counter()
                wrong = step()
                yield line, what, time.perf_counter() - start, wrong

    def _steps(self, fence, shown):
        if fence.language == "console":
            typed = commands(fence, shown)
            if not typed:
                yield (
                    fence.line,
                    "console",
                    lambda: "no command: a console block has lines that start with '$ '",
                )
            for command in typed:
                yield command.line, command.text, lambda command=command: self._type(command)
        elif fence.language in {"python", "pycon"}:
            yield fence.line, fence.file or fence.language, lambda: self._python(fence, shown)
        elif fence.language not in UNTOUCHED and not fence.language.startswith("{"):
            yield (
                fence.line,
                fence.file or fence.language,
                lambda: parsed(fence) or self._loaded(fence),
            )

    def _type(self, command: Command) -> str | None:
        if not shutil.which("cc") and (command.text.startswith("cc ") or ".so" in command.text):
            return None  # no C compiler here
        if "testu01" in command.text and not Path("/usr/include/testu01").exists():
            return None  # Debian has it in non-free
        if command.text.endswith("&"):
            return self._start(command)
        words = ["bash", "-o", "pipefail", "-c", command.text]
        name = command.text.partition(" ")[0]
        if name in {"python", *MODULES} and not SHELL & set(command.text):
            words = [sys.executable, *MODULES.get(name, ()), *shlex.split(command.text)[1:]]
        return self._judged(
            words, command.code, command.shown, again=command.text.startswith("dpaudit audit ")
        )

    def _start(self, command: Command) -> str | None:
        words = ["bash", "-c", f"exec {command.text[:-1]}"]
        process = subprocess.Popen(
            words,
            cwd=self.folder,
            env=self.env,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self.started.append(process)
        said = process.stdout.readline() if process.stdout else ""
        return None if said and process.poll() is None else f"it ended at once: {said}"

    def _python(self, fence: Fence, shown: str) -> str | None:
        if fence.file is not None:
            try:
                compile(fence.text, fence.file, "exec")
            except SyntaxError as error:
                return f"SyntaxError: {error}"
            return None
        script = self.folder / f"block_{fence.line}.{'py' if fence.language == 'python' else 'txt'}"
        script.write_text(fence.text + "\n", encoding="utf-8")
        run: list[str] = ["-m", "doctest"] if fence.language == "pycon" else []
        if re.search(r"^def test_", fence.text, re.M):
            run = ["-m", "pytest", "-p", "no:cacheprovider"]
        return self._judged([sys.executable, *run, script.name], 0, shown.splitlines())

    def _loaded(self, fence: Fence) -> str | None:
        """An experiment is read as `dpaudit run` reads it, with the page's plug-ins."""
        if fence.language != "toml" or not tomllib.loads(fence.text).keys() & {
            "source",
            "grid",
            "measure",
        }:
            return None
        spec = self.folder / (fence.file or f"block_{fence.line}.toml")
        spec.write_text(fence.text + "\n", encoding="utf-8")
        load = (
            "import sys; from dpaudit.experiments.spec_file import load_spec; "
            "load_spec(sys.argv[1])"
        )
        return self._judged([sys.executable, "-c", load, str(spec)], 0, ())

    def _run(self, words: Sequence[str]) -> tuple[int | None, str]:
        """The exit code, and what was printed on stdout and then on stderr."""
        if words[0] != sys.executable:
            done = subprocess.run(
                list(words),
                cwd=self.folder,
                env=self.env,
                capture_output=True,
                text=True,
                timeout=LONGEST,
                check=False,
            )
            return done.returncode, f"{done.stdout}\n{done.stderr}"
        forked = forks().Process(
            target=as_python, args=(words[1:], self.folder, self.env, usual_path())
        )
        forked.start()
        forked.join(LONGEST)
        if forked.is_alive():
            forked.kill()
            raise subprocess.TimeoutExpired(list(words), LONGEST)
        return forked.exitcode, "\n".join(
            (self.folder / name).read_text(encoding="utf-8") for name in (".out", ".err")
        )

    def _judged(
        self, words: Sequence[str], code: int, shown: Sequence[str], *, again: bool = False
    ) -> str | None:
        ended, printed = self._run(words)
        if again and (ended, code) == (1, 0):
            ended, printed = self._run(words)
        if ended != code:
            return f"exits {ended}, the page says {code}\n{printed}"
        missing = not_printed(shown, printed)
        return (
            None
            if missing is None
            else f"the page shows a line that was not printed: {missing}\n{printed}"
        )


def parsed(fence: Fence) -> str | None:
    """What is wrong with a block of data, or None."""
    import yaml

    readers = {
        "toml": tomllib.loads,
        "json": json.loads,
        "yaml": yaml.safe_load,
        "xml": ElementTree.fromstring,
    }
    if fence.language not in readers:
        return (
            f"language={fence.language!r}: nothing that can be run or parsed here; "
            "write text if it is only to be read"
        )
    try:
        readers[fence.language](fence.text)
    except (ValueError, yaml.YAMLError, ElementTree.ParseError) as error:
        return f"{type(error).__name__}: {error}"
    return None


def main(pages: Sequence[str]) -> int:
    import tempfile

    wrong = 0
    for name in pages:
        with tempfile.TemporaryDirectory() as folder, Reader(Path(folder)) as reader:
            for line, what, seconds, message in reader.follow(
                Path(name).read_text(encoding="utf-8")
            ):
                print(f"{name}:{line}: {seconds:6.1f} s  {what}", flush=True)
                if message is not None:
                    wrong += 1
                    print(message)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
