"""Helpers: a folder to run in, a C compiler, and a look at which processes are left."""

from __future__ import annotations

import shutil
import subprocess
import textwrap
import time
import uuid

import numpy as np
import psutil
import pytest
from support.http_server import serve  # noqa: F401 a fixture

from dpaudit.protocols import Request
from dpaudit.targets import open_sampler
from dpaudit.targets.resolve import open_mechanism


def processes(marker: str) -> list[list[str]]:
    """Command lines of living processes with ``marker`` in an argument."""
    found = []
    for process in psutil.process_iter():
        try:
            line = process.cmdline()
        except psutil.Error:
            continue
        if any(marker in word for word in line):
            found.append(line)
    return found


@pytest.fixture
def marker() -> str:
    return f"dpaudit-test-{uuid.uuid4().hex}"


@pytest.fixture
def alive():
    """``alive(marker)`` → processes left after 20 seconds: a busy machine kills hundreds slowly."""

    def look(marker: str) -> list[list[str]]:
        end = time.monotonic() + 20
        while (left := processes(marker)) and time.monotonic() < end:
            time.sleep(0.01)
        return left

    return look


@pytest.fixture
def present():
    """``present(marker)`` waits for such a process, so that its absence later means something."""

    def look(marker: str, *, seconds: float = 60) -> bool:
        end = time.monotonic() + seconds
        while not (found := processes(marker)) and time.monotonic() < end:
            time.sleep(0.01)
        return bool(found)

    return look


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def module(here):
    """Writes a Python module into the working directory."""

    def write(code: str, name: str = "foreign.py"):
        (here / name).write_text("import numpy as np\n" + textwrap.dedent(code))
        return here / name

    return write


PATIENT = """
import os
HERE = os.path.dirname(os.path.abspath(__file__))
def f({0}):
    made = {{}}
    exec(open(HERE + "/body.py").read(), made)
    return made["f"]({0})
"""


def patient(folder, parameters):
    """The target of a function that does what ``write(body)`` has written, and ``write``."""
    (folder / "patient.py").write_text(PATIENT.format(parameters))

    def write(body: str) -> None:
        code = f"import numpy as np\ndef f({parameters}):\n{textwrap.indent(body, ' ')}"
        (folder / "body.py").write_text(code)

    return f"python:{folder}/patient.py:f", write


@pytest.fixture(scope="module")
def ask(tmp_path_factory):
    """``ask(body, n, d)`` → noise of ``def f(n, d): body``, or of ``calls``; one worker for all."""
    text, write = patient(tmp_path_factory.mktemp("patient"), "n, d")
    with open_sampler(text, seed="1").open(timeout=60) as sampler:

        def draw(body: str, n: int = 4, d: int = 2, *, calls: int | None = None):
            write(body)
            return sampler.ask(Request(n, d, calls=calls), timeout=60).values

        yield draw


@pytest.fixture(scope="module")
def tell(tmp_path_factory):
    """``tell(body, value, n)`` → releases of ``def f(value, n): body``; one worker for all."""
    text, write = patient(tmp_path_factory.mktemp("patient"), "value, n")
    with open_mechanism(text, seed="1").open(timeout=60) as mechanism:

        def release(body: str, value=(1.0,), n: int = 4):
            write(body)
            return mechanism.ask(
                Request(n, input=np.asarray(value, dtype=np.float64)), timeout=60
            ).values

        yield release


@pytest.fixture(scope="session")
def cc(tmp_path_factory):
    """``cc(code)`` → a shared library, ``cc(code, program=True)`` → a program."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")

    def build(code: str, *, program: bool = False):
        folder = tmp_path_factory.mktemp("c")
        source, out = folder / "x.c", folder / ("noise" if program else "libnoise.so")
        source.write_text(textwrap.dedent(code))
        flags = [] if program else ["-shared", "-fPIC"]
        subprocess.run(
            [compiler, "-O0", *flags, "-o", out, source], check=True, capture_output=True
        )
        return out

    return build
