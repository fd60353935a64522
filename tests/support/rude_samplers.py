"""Samplers that misbehave: Python functions and programs by name, with what an audit says."""

HEAD = "import ctypes, os, signal, subprocess, sys, time\n"
SLEEP = "time.sleep(1000)"
LATE = r"no answer before timeout="

ESCAPE = f"""
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        {SLEEP}
    os._exit(0)
"""
BOMB = f"""
end = time.time() + 6  # it would stop by itself, should all else fail
while time.time() < end:
    os.fork()
{SLEEP}
"""
HUNT = f"""
pid, found = os.getpid(), []
while pid > 1:
    pid = int(open(f"/proc/{{pid}}/stat").read().rpartition(")")[2].split()[1])
    if pid > 0 and b"supervisor.py" in open(f"/proc/{{pid}}/cmdline", "rb").read():
        found.append(pid)
for pid in reversed(found):
    os.kill(pid, signal.SIGKILL)
{SLEEP}
"""

PYTHON = {
    "hangs": (SLEEP, LATE),
    "crashes": ("ctypes.string_at(0)", "signal SIGSEGV after"),
    "raises": ("raise RuntimeError('no entropy left')", "raised RuntimeError: no entropy left"),
    "nan": ("return np.full((n, d), np.nan)", "not finite"),
    "inf": ("return np.full((n, d), np.inf)", "not finite"),
    "complex": ("return np.ones((n, d), dtype=complex)", "not real numbers"),
    "too few": ("return np.ones((n - 1, d))", r"returned shape \(\d+, \d+\), wanted"),
    "100 GB": ("return np.ones(100 * 2**30, dtype=np.uint8)", "one process may reserve 16 GiB"),
    "endless file": (
        "with open('/tmp/endless', 'wb') as file:\n while True: file.write(bytes(1 << 20))",
        "File too large.* a file may have 64 MiB",
    ),
    "ignores SIGTERM": (f"signal.signal(signal.SIGTERM, signal.SIG_IGN)\n{SLEEP}", LATE),
    "escapes": (f"{ESCAPE}\n{SLEEP}", LATE),
    "escapes and dies": (f"{ESCAPE}\ntime.sleep(0.2)\nos._exit(3)", "exit status 3"),
    "fork bomb": (
        BOMB,
        rf"{LATE}|it had \d+ processes and all were killed, "
        "above the limit of 256|closed the channel",
    ),
    "closes its channels": (f"os.closerange(0, 100)\n{SLEEP}", "closed the channel|was killed"),
    "floods standard error": ("while True: os.write(2, b'x' * 10000)", LATE),
    "kills its parent": (f"os.kill(os.getppid(), signal.SIGKILL)\n{SLEEP}", f"{LATE}|was killed"),
    "kills its group": (f"os.killpg(0, signal.SIGKILL)\n{SLEEP}", "SIGKILL|was killed"),
    "stops itself": ("os.kill(os.getpid(), signal.SIGSTOP)", LATE),
    "hunts the supervisor": (HUNT, f"{LATE}|was killed|Operation not permitted"),
}
COMMAND = {
    "one byte a second": (
        "while True: sys.stdout.write('x'), sys.stdout.flush(), time.sleep(1)",
        "had not ended after",
    ),
    "garbage": ("print('garbage', end='')", r"gave 0 values \(7 bytes"),
    "too much": ("while True: sys.stdout.write('x' * 10000)", "at least .* wanted exactly"),
    "closes its output": (f"os.close(1)\n{SLEEP}", "had not ended after"),
    "fails": ("sys.exit('no licence')", "exit status 1; stderr ends with 'no licence'"),
    "endless file": (
        "os.execvp('cp', ['cp', '/dev/zero', '/tmp/endless'])",
        "exit status 1|longer than the limit of 64 MiB",
    ),
}


HARD = [
    "hangs", "ignores SIGTERM", "escapes", "escapes and dies", "fork bomb", "kills its parent",
    "kills its group", "stops itself", "hunts the supervisor",
]  # fmt: skip


def indent(code: str) -> str:
    return "\n".join(f"    {line}" for line in code.strip("\n").splitlines())
