"""Pipelines that end, flood, hide or lie; EXPECTED is how a replay must end, and what it says.

"refused" is an error in time. What is not judged must be named, so "no-finding" needs a word that
says what was not seen.
"""

import atexit
import contextlib
import ctypes
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

KEPT = []
_RUNS = []


def _noised(data):
    return len(data) + np.random.laplace()


def forks(data):
    """The child does the work; its noise comes back through a pipe."""
    read, write = os.pipe()
    if os.fork() == 0:
        os.write(write, str(len(data) + np.random.laplace()).encode())
        os._exit(0)
    os.wait()
    return float(os.read(read, 100))


def forks_and_returns(data):
    os.fork()
    return _noised(data)


def starts(data):
    subprocess.run(["true"])
    return _noised(data)


def starts_a_source(data):
    code = "import random; print(random.random())"
    return len(data) + float(subprocess.check_output([sys.executable, "-c", code]))


def threaded(data):
    out = []
    t = threading.Thread(target=lambda: out.append(np.random.laplace()))
    t.start()
    t.join()
    return len(data) + out[0]


def many_threads(data):
    out = []
    ts = [threading.Thread(target=lambda: out.append(np.random.laplace())) for _ in range(8)]
    for t in ts:
        t.start()
    for t in ts:
        t.join()
    return len(data) + sum(out)


def thread_goes_on(data):
    threading.Thread(target=lambda: time.sleep(1000), daemon=False).start()
    return _noised(data)


def native_file(data):
    with open("/dev/urandom", "rb") as file:
        return len(data) + int.from_bytes(file.read(2), "big")


def native_libc(data):
    libc = ctypes.CDLL(None)
    libc.srand(time.time_ns() % 100000)
    return len(data) + libc.rand()


def native_constant(data):
    """libc rand without a seed gives the same numbers in each fork."""
    return len(data) + ctypes.CDLL(None).rand()


def native_getrandom(data):
    return len(data) + int.from_bytes(os.getrandom(2), "big")


def replaces_laplace(data):
    np.random.laplace = lambda *a, **k: 0.0
    return len(data)


def replaces_urandom(data):
    os.urandom = lambda n: b"\0" * n
    return len(data)


def replaces_random(data):
    random.random = lambda: 0.5
    return len(data) + random.random()


def replaces_default_rng(data):
    np.random.default_rng = lambda *a: None
    return len(data)


def replaces_and_puts_back(data):
    kept = np.random.laplace
    np.random.laplace = lambda *a, **k: 0.0
    out = len(data) + np.random.laplace()
    np.random.laplace = kept
    return out


def stops_tracing(data):
    sys.settrace(None)
    return len(data)


def exits(data):
    sys.exit(len(data))


def ends(data):
    os._exit(0)


def ends_on_some(data):
    if len(data) > 4:
        os._exit(0)
    return _noised(data)


def kills_itself(data):
    os.kill(os.getpid(), signal.SIGKILL)


def kills_parent(data):
    os.kill(os.getppid(), signal.SIGKILL)
    return _noised(data)


def segfaults(data):
    ctypes.string_at(0)


def hangs(data):
    while True:
        pass


def sleeps(data):
    time.sleep(1e6)


def hangs_on_some(data):
    while len(data) > 5:
        pass
    return _noised(data)


def needs_memory(data):
    return len(np.ones(10 << 30, dtype=np.uint8)) + len(data)


def needs_memory_and_says_so(data):
    try:
        np.ones(10 << 30, dtype=np.uint8)
    except MemoryError:
        return len(data)
    return _noised(data)


def recurses(data):
    return recurses(data) + 1


def recurses_natively(data):
    sys.setrecursionlimit(10**9)
    return recurses(data) + 1


def floods(data):
    for _ in range(100):
        print("x" * (1 << 20))
    return _noised(data)


def floods_below(data):
    for _ in range(100):
        os.write(1, b"x" * (1 << 20))
    return _noised(data)


def floods_with_data(data):
    print("x" * (100 << 20) + str(len(data)))
    return _noised(data)


def writes_below(data):
    os.write(1, str(len(data)).encode())
    return _noised(data)


def writes_stderr(data):
    print(len(data), file=sys.stderr)
    return _noised(data)


def escapes(data):
    print(chr(27) + "[31m")
    return _noised(data)


def writes_outside(data):
    Path("~/left.txt").expanduser().write_text(str(len(data)))
    return _noised(data)


def writes_a_file(data):
    Path(tempfile.gettempdir(), "left.txt").write_text(str(len(data)))
    return _noised(data)


def writes_and_removes(data):
    path = Path(tempfile.gettempdir(), "left.txt")
    path.write_text(str(len(data)))
    path.unlink()
    return _noised(data)


def writes_much(data):
    Path(tempfile.gettempdir(), "left.txt").write_text("x" * 100_000 + str(len(data)))
    return _noised(data)


def writes_by_descriptor(data):
    fd = os.open(Path(tempfile.gettempdir(), "left.txt"), os.O_WRONLY | os.O_CREAT)
    os.write(fd, str(len(data)).encode())
    return _noised(data)


def connects(data):
    with contextlib.suppress(OSError):
        socket.create_connection(("127.0.0.1", 9), timeout=2).send(str(len(data)).encode())
    return _noised(data)


class _Hostile:
    def __init__(self, data):
        self.value = len(data)

    def __reduce__(self):
        return os._exit, (0,)

    def __repr__(self):
        raise RuntimeError("no")

    def __eq__(self, other):
        return True

    __hash__ = None


def hostile_object(data):
    return _Hostile(data)


class _Slots:
    __slots__ = ("value",)

    def __init__(self, value):
        self.value = value

    def __repr__(self):
        raise KeyError("no")

    def __eq__(self, other):
        return True


def hostile_slots(data):
    return _Slots(len(data))


class _SameText(_Slots):
    def __repr__(self):
        return "the same"


def same_text(data):
    return _SameText(len(data))


class _LongText(_Slots):
    def __repr__(self):
        return "x" * (100 << 20)


def long_text(data):
    return _LongText(len(data))


class _Lies:
    def __init__(self, value):
        object.__setattr__(self, "value", value)

    def __getattribute__(self, name):
        if name == "__dict__":
            return {}
        if name == "_dpaudit_plain":
            return lambda: 0
        if name == "value":
            return object.__getattribute__(self, name)
        raise AttributeError(name)

    def __getattr__(self, name):
        return lambda *a: 0


def lies(data):
    return _Lies(len(data))


class _Everything:
    def __getattr__(self, name):
        return self

    def __call__(self, *args):
        return self


def has_everything(data):
    return _Everything()


class _Number(float):
    def __eq__(self, other):
        return True

    def __hash__(self):
        return 0

    def __repr__(self):
        return "0.0"

    def _dpaudit_plain(self):
        return 0.0


def lying_number(data):
    return _Number(len(data))


class _Dict(dict):
    def items(self):
        return []

    def __iter__(self):
        return iter(())


def lying_dict(data):
    return _Dict(n=len(data))


def generates(data):
    return (len(data) + i for i in range(3))


def generates_forever(data):
    while True:
        yield 1


def nested_generator(data):
    return {"n": (len(data) for _ in range(2))}


def huge(data):
    return np.random.laplace(size=10_000_000) + len(data)


def huge_list(data):
    return [float(len(data))] * 10_000_000


def huge_and_noised_list(data):
    return list(np.random.laplace(size=1_000_000) + len(data))


def circular(data):
    out = [len(data)]
    out.append(out)
    return out


def keeps(data):
    KEPT.append(len(data))
    return sum(KEPT) + np.random.laplace()


def keeps_noise(data):
    if not _RUNS:
        _RUNS.append(np.random.laplace())
    return len(data) + _RUNS[0]


def swallows(data):
    try:
        return [np.random.laplace() for _ in data]
    except BaseException:  # noqa: BLE001
        return 0


def swallows_all(data):
    while True:
        try:
            return [np.random.laplace() for _ in data]
        except BaseException:  # noqa: BLE001
            continue


def signals(data):
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM):
        signal.signal(number, lambda *_: None)
    signal.alarm(1)
    while True:
        pass


def at_exit(data):
    atexit.register(lambda: time.sleep(1000))
    return _noised(data)


def closes_descriptors(data):
    os.closerange(0, 256)
    return _noised(data)


def answers_itself(data):
    for fd in range(3, 64):
        with contextlib.suppress(OSError):
            os.write(fd, b"dpa1" + bytes(9))
    os._exit(0)


def changes_folder(data):
    os.chdir("/")
    sys.path.clear()
    sys.modules.clear()
    return _noised(data)


def raises_base(data):
    raise KeyboardInterrupt(str(len(data)))


def raises_hostile(data):
    class Bad(Exception):
        def __str__(self):
            raise RuntimeError("no")

    raise Bad(len(data))


def raises_long(data):
    raise ValueError("x" * (50 << 20) + str(len(data)))


def returns_function(data):
    n = len(data)
    return lambda: n


def asynchronous(data):
    async def work():
        return len(data)

    return work()


EXPECTED = {
    # other processes, threads, native noise
    "forks": ("inconclusive", "another process"),
    "forks_and_returns": ("no-finding", "another process"),
    "starts": ("no-finding", "another program"),
    "starts_a_source": ("inconclusive", "another program"),
    "threaded": ("no-finding", "a thread"),
    "many_threads": ("inconclusive", "a thread"),
    "thread_goes_on": ("no-finding", "a thread"),
    "native_file": ("inconclusive", "outside the known primitives"),
    "native_libc": ("inconclusive", "native code"),
    "native_getrandom": ("inconclusive", "outside the known primitives"),
    "native_constant": ("finding", "the release shows the data"),
    "connects": ("no-finding", "a connection"),
    # our hooks
    "replaces_laplace": ("inconclusive", "replaced what we put in place"),
    "replaces_urandom": ("inconclusive", "os.urandom"),
    "replaces_random": ("inconclusive", "random.random"),
    "replaces_default_rng": ("inconclusive", "numpy.random.default_rng"),
    "replaces_and_puts_back": ("finding", "the release shows the data"),
    "stops_tracing": ("finding", "the release shows the data"),
    "moves_folders": ("finding|inconclusive", "which noise is drawn"),
    "ends_the_tape": ("finding|inconclusive", "the release shows the data"),
    "edits_the_tape": ("inconclusive", "its source names"),
    "behaves_if_watched": ("inconclusive", "its source names"),
    "swallows": ("finding", "which noise is drawn"),
    "swallows_all": ("finding", "which noise is drawn"),
    # the end of a run
    "exits": ("finding", "SystemExit"),
    "ends": ("refused", "ended its process"),
    "ends_on_some": ("refused", "ended its process"),
    "kills_itself": ("refused", "ended its process"),
    "kills_parent": ("refused", "SIGKILL"),
    "segfaults": ("refused", "ended its process"),
    "hangs": ("refused", "no answer within"),
    "hangs_on_some": ("inconclusive", "no answer"),
    "sleeps": ("refused", "no answer within"),
    "signals": ("refused", "no answer within"),
    "generates_forever": ("refused", "no answer within"),
    "needs_memory": ("inconclusive", "MemoryError"),
    "needs_memory_and_says_so": ("finding", "the release shows the data"),
    "recurses": ("inconclusive", "RecursionError"),
    "recurses_natively": ("refused", "pipeline"),
    "raises_base": ("finding", "KeyboardInterrupt"),
    "raises_hostile": ("refused", "no"),
    "raises_long": ("inconclusive", "ValueError"),
    "closes_descriptors": ("refused", "ended its process"),
    "answers_itself": ("refused", "something else wrote"),
    "changes_folder": ("inconclusive", "ModuleNotFoundError"),
    "at_exit": ("no-finding", ""),
    # what is written
    "floods": ("no-finding", ""),
    "floods_below": ("no-finding|inconclusive", ""),
    "floods_with_data": ("finding", "stdout"),
    "writes_below": ("finding", "stdout"),
    "writes_stderr": ("no-finding", "messages"),
    "writes_outside": ("finding", "files"),
    "writes_a_file": ("finding", "files"),
    "writes_much": ("finding", "files"),
    "writes_and_removes": ("no-finding", "file"),
    "writes_by_descriptor": ("finding", "files"),
    # what is returned
    "hostile_object": ("finding", "value"),
    "hostile_slots": ("finding", "value"),
    "same_text": ("finding", "value"),
    "long_text": ("finding", "value"),
    "lies": ("inconclusive", "_Lies"),
    "has_everything": ("inconclusive", "_Everything"),
    "lying_number": ("finding", "the release shows the data"),
    "lying_dict": ("finding", "['n']"),
    "generates": ("finding", "[0]"),
    "nested_generator": ("inconclusive", "generator"),
    "returns_function": ("inconclusive", "function"),
    "asynchronous": ("inconclusive", "coroutine"),
    "circular": ("finding", "[0]"),
    "huge": ("finding|inconclusive|refused", ""),
    "huge_list": ("refused|inconclusive", "no answer"),
    "huge_and_noised_list": ("refused|inconclusive", "no answer"),
    # state: every run begins anew
    "keeps": ("no-finding", "state"),
    "keeps_noise": ("no-finding", "state"),
}
