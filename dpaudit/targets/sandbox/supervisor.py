"""A small process between the auditor and a foreign program; nothing outlives either of the two.

``python -I -S supervisor.py CONFIGURATION PROGRAM ARGUMENT…``, the configuration in JSON (see
:mod:`.process`). Four processes in a row::

    supervisor     outside; checks limits, ends all processes, writes two lines to REPORT
    └─ holder      enters new namespaces if it may
       └─ first    first process of the namespaces: confines itself, starts the program, reaps
          └─ program

With namespaces (user, process, mount, network and IPC, where the kernel allows them) the program
sees nothing outside, and the end of ``first`` is the end of everything that it ever started: the
kernel guarantees it. Without them the supervisor is a subreaper: a process that leaves its group or
its parent lands below the supervisor, which stops and kills all until none is left. Either way it
does so once the program has ended, a limit is passed, PARENT is gone or a SIGTERM comes.

The first line of the report says which level was reached (``full``, ``partial: …``, ``none``, or
``refused: …`` if another was required, and then nothing was started); the second how it ended.
Supervisor, holder and first make themselves undumpable before the program starts, so that it cannot
write to their memory or take their descriptors.

It starts with the standard library alone, so that it costs milliseconds.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import NamedTuple, NoReturn

if __name__ == "__main__":  # skip the packages around this file: they would take half of the start
    _place = os.path.dirname(os.path.abspath(__file__))
    for _name in ("dpaudit.targets.sandbox", "dpaudit.targets", "dpaudit"):
        sys.modules[_name] = ModuleType(_name)
        sys.modules[_name].__path__ = [_place]
        _place = os.path.dirname(_place)

from dpaudit.targets.sandbox import namespaces, process_tree

_LINUX = sys.platform == "linux"
if _LINUX:
    from dpaudit.targets.sandbox import confinement

_LOOK_EVERY = 0.05  # seconds between checks of the parent and the process tree
_LOOK_SHARE = 50  # a check that took long is followed by a pause this many times longer,
_LONGEST_PAUSE = 1.0  # but not longer than this
_AGAIN = 0.01  # seconds until counters that could not be read are tried again
_PATIENCE = 3.0  # seconds to end a process tree without namespaces
_START = 20.0  # seconds for the namespaces to be set up
_MOST_FILES = 10_000  # in a scratch on disk; more cannot be counted twenty times a second
_KEPT = {
    "reserved": "RLIMIT_DATA",
    "file_size": "RLIMIT_FSIZE",
    "open_files": "RLIMIT_NOFILE",
    "cpu": "RLIMIT_CPU",
}
_WATCHED = {signal.SIGCHLD, signal.SIGTERM}


class _Refused(Exception):
    """No namespaces here; the text says why."""


class _Configuration(NamedTuple):
    """What :mod:`.process` passes; without namespaces a folder is made in ``scratch``."""

    parent: int
    report: int
    limits: Mapping[str, int]
    level: str  # full, require, network, none
    apart: bool  # whether to try namespaces
    hidden: Sequence[str]
    kept: Sequence[str]
    home: str
    cwd: str
    shared: str | None  # a folder that may be written
    scratch: str  # a folder on disk

    @property
    def network(self) -> bool:
        return self.level in {"network", "none"} or bool(self.limits["network"])


def _lower(name: str, value: int) -> None:
    kind = getattr(resource, name)
    hard = resource.getrlimit(kind)[1]
    most = value + (name == "RLIMIT_CPU")  # one second between SIGXCPU and SIGKILL
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(kind, (min(value, most), most))


def _offer_to_the_oom_killer() -> None:
    with (
        contextlib.suppress(OSError),
        open("/proc/self/oom_score_adj", "w", encoding="ascii") as file,
    ):
        file.write("1000")  # not Linux, or forbidden: the kernel chooses another order


def _program(
    argv: list[str], limits: Mapping[str, int], mask: set[int], parent: int, *, go: int, apart: bool
) -> NoReturn:
    try:
        # wait until the parent is undumpable; this process is not, so that its counters can be read
        os.read(go, 1)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        namespaces.die_with_parent(signal.SIGKILL)
        for name, kind in _KEPT.items():
            if name in limits:
                _lower(kind, limits[name])
        if apart:  # otherwise it would count everything that the user runs
            _lower("RLIMIT_NPROC", limits["tasks"])
        if os.getppid() == parent:
            os.execvp(argv[0], argv)  # noqa: S606 deliberately no shell
    except OSError as error:
        os.write(2, f"cannot start {argv[0]}: {error.strerror}\n".encode(errors="backslashreplace"))
    finally:
        os._exit(126)


def _silent() -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    for fd in range(3):
        os.dup2(nothing, fd)


def _confine(config: _Configuration, *, apart: bool) -> list[str]:
    """Give up what the program has no use for; returns what could not be given up, in words."""
    lacking = []
    try:
        confinement.drop_privileges()
        if not apart:
            try:
                lacking += confinement.keep_files(
                    hidden=config.hidden,
                    kept=config.kept,
                    written=[p for p in (config.scratch, config.shared) if p],
                )
            except OSError:
                lacking.append("files of the same user can be read and written (no Landlock)")
    except OSError as error:
        lacking.append(f"capabilities were kept ({error.strerror})")
    try:
        confinement.filter_system_calls(network=config.network or apart)
    except OSError as error:
        lacking.append(f"no system call is filtered ({error.strerror})")
        if not apart and not config.network:
            lacking.append("the network can be reached")
    return lacking


class _Pipes(NamedTuple):
    """The ends that the holder and ``first`` have: of talks with the supervisor, of the fate."""

    replies: int
    commands: int
    status: int


def _first(
    config: _Configuration, argv: list[str], mask: set[int], pipes: _Pipes, *, apart: bool
) -> NoReturn:
    lacking = []
    _offer_to_the_oom_killer()
    if apart:
        if not config.network:
            namespaces.loopback()
        with contextlib.suppress(OSError):  # then the program has the number 2
            namespaces.number_from(int.from_bytes(os.urandom(4), "little"))
        most = config.limits["written"]
        lacking += namespaces.set_up(
            hidden=config.hidden,
            kept=config.kept,
            home=config.home,
            cwd=config.cwd,
            shared=config.shared,
            size=most + most // 16 + (1 << 20),  # above the limit, so that exceeding it shows
        )
    if _LINUX and config.level != "none":
        lacking += _confine(config, apart=apart)
    os.write(pipes.replies, json.dumps(lacking).encode() + b"\n")
    if os.read(pipes.commands, 1) != b"!":
        os._exit(1)
    os.close(pipes.replies)
    os.close(pipes.commands)
    namespaces.die_with_parent(signal.SIGKILL)
    me = os.getpid()
    go, start = os.pipe()
    program = os.fork()
    if program == 0:
        os.close(start)
        _program(argv, config.limits, mask, me, go=go, apart=apart)
    os.close(go)
    if _LINUX:
        confinement.undumpable()
    os.close(start)
    _silent()
    while True:
        ended, how = os.waitpid(-1, 0)
        if ended == program:
            used = resource.getrusage(resource.RUSAGE_CHILDREN)
            code, cpu = os.waitstatus_to_exitcode(how), used.ru_utime + used.ru_stime
            os.write(pipes.status, f"{code} {used.ru_maxrss} {cpu} {used.ru_oublock}".encode())
            os._exit(0)


def _holder(
    config: _Configuration, argv: list[str], mask: set[int], pipes: _Pipes, *, apart: bool
) -> NoReturn:
    """Write ``.`` when it has left, read ``.`` when its users are mapped; then ``first`` talks."""
    try:
        os.close(config.report)
        os.setsid()
        namespaces.die_with_parent(signal.SIGKILL)
        if apart:
            namespaces.leave(network=config.network)
            os.write(pipes.replies, b".")
            if os.read(pipes.commands, 1) != b".":
                os._exit(1)
        first = os.fork()
        if first == 0:
            namespaces.die_with_parent(signal.SIGKILL)
            _first(config, argv, mask, pipes, apart=apart)
        for fd in pipes:
            os.close(fd)
        # with namespaces no process inside sees it, and the supervisor must read through it
        if _LINUX and not apart:
            confinement.undumpable()
        _silent()
        os.waitpid(first, 0)
        os._exit(0)
    except Exception as error:  # noqa: BLE001 the supervisor does without namespaces and says why
        reason = error.strerror if isinstance(error, OSError) else None
        with contextlib.suppress(OSError):
            os.write(
                pipes.replies,
                (reason or f"{type(error).__name__}: {error}").encode(errors="replace"),
            )
    finally:
        os._exit(1)


class _Tree(NamedTuple):
    """A process tree that is set up and waits to start: write ``!`` to ``commands``."""

    holder: int
    fate: int
    commands: int
    lacking: list[str]


def _read_reply(fd: int) -> bytes:
    """What the other side writes next.

    Raises:
        _Refused: nothing in time.
    """
    ready, _, _ = select.select([fd], [], [], _START)
    if not ready:
        raise _Refused("namespaces took too long")
    return os.read(fd, 1 << 12)


def _start(config: _Configuration, argv: list[str], mask: set[int], *, apart: bool) -> _Tree:
    """Start all but the program itself.

    Raises:
        _Refused: no namespaces, though ``apart`` asked for them; nothing is left of the attempt.
    """
    replies, replies_end = os.pipe()
    commands, commands_end = os.pipe()
    fate, status = os.pipe()
    pipes = _Pipes(replies_end, commands, status)
    holder = os.fork()
    if holder == 0:
        os.close(commands_end)
        _holder(config, argv, mask, pipes, apart=apart)
    for fd in pipes:
        os.close(fd)
    try:
        if apart:
            message = _read_reply(replies)
            if message != b".":
                raise _Refused(message.decode(errors="replace") or "they ended")
            namespaces.map_users(holder)
            os.write(commands_end, b".")
        message = b""
        while not message.endswith(b"\n"):
            more = _read_reply(replies)
            if not more:
                raise _Refused(message.decode(errors="replace") or "mounts are forbidden")
            message += more
        return _Tree(holder, fate, commands_end, json.loads(message))
    except (_Refused, OSError, ValueError) as error:
        os.close(fate)
        os.close(commands_end)
        os.kill(holder, signal.SIGKILL)
        os.waitpid(holder, 0)
        raise _Refused(str(error)) from None
    finally:
        os.close(replies)


class _Counters:
    """The resources that the process tree uses, compared with the limits."""

    def __init__(self, config: _Configuration, tree: _Tree, *, apart: bool) -> None:
        self._limits = config.limits
        self._root = None if apart else os.getpid()
        self._ours = {tree.holder, *(_below(tree.holder) if _LINUX else ())}
        self._proc = self._scratch_fd = -1
        self._scratch = "" if apart or config.level == "none" else config.scratch
        if _LINUX:
            top = f"/proc/{tree.holder}/root" if apart else ""
            self._proc = os.open(f"{top}/proc", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            if apart:
                self._scratch_fd = os.open(
                    f"{top}{namespaces.SCRATCH}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
                )

    def passed(self) -> tuple[str, int] | None:
        """The first limit that is passed, and what is used; None if there is none."""
        over = self._over()
        if over is not None and over[0] == "unreadable":  # it may just be starting or ending
            time.sleep(_AGAIN)
            over = self._over()
        return over or self.written()

    def _over(self) -> tuple[str, int] | None:
        pids = process_tree.members(self._proc, self._root)
        if self._root is not None:
            pids = [pid for pid in pids if pid not in self._ours]
        return process_tree.over_limit(self._proc, pids, self._limits, disk=self._root is not None)

    def written(self, blocks: int = 0) -> tuple[str, int] | None:
        """As :meth:`passed`, for the scratch, or for ``blocks`` of 512 bytes that went to disk."""
        if self._scratch_fd >= 0:
            room = os.fstatvfs(self._scratch_fd)
            used = (room.f_blocks - room.f_bfree) * room.f_frsize
        elif self._scratch:
            entries, used = _size(self._scratch)
            if entries > _MOST_FILES:
                return "files", entries
            used = max(used, 512 * blocks)
        else:
            used = 512 * blocks
        return ("written", used) if used > self._limits["written"] else None


def _size(folder: str) -> tuple[int, int]:
    """Entries and bytes on disk below a folder; it stops counting at the limit of entries."""
    entries = used = 0
    todo = [folder]
    while todo and entries <= _MOST_FILES:
        with contextlib.suppress(OSError), os.scandir(todo.pop()) as folder_entries:
            for entry in folder_entries:
                entries += 1
                with contextlib.suppress(OSError):
                    used += 512 * entry.stat(follow_symlinks=False).st_blocks
                if entry.is_dir(follow_symlinks=False):
                    todo.append(entry.path)
                if entries > _MOST_FILES:
                    break
    return entries, used


def _watch(
    parent: int, holder: int, counters: _Counters, group: process_tree.Group | None
) -> tuple[str, int] | None:
    """Wait for the end of the program or parent, a SIGTERM, or a limit: the one that is passed."""
    due = time.monotonic() + _LOOK_EVERY
    while os.getppid() == parent:
        while True:
            try:
                ended, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return None
            if ended == holder:
                return ("memory", 0) if group is not None and group.over_memory() else None
            if ended == 0:
                break
        if not _LINUX:  # no sigtimedwait: the signal is blocked and waits to be seen
            if signal.SIGTERM in signal.sigpending():
                return None
            time.sleep(0.01)
            continue
        woken = signal.sigtimedwait(_WATCHED, max(0.0, due - time.monotonic()))
        if woken is not None and woken.si_signo == signal.SIGTERM:
            return None
        now = time.monotonic()
        if now >= due:
            passed = counters.passed()
            if passed is not None:
                return passed
            due = time.monotonic() + _pause(time.monotonic() - now)
    return None


def _pause(took: float) -> float:
    """Seconds until the next check: more after a slow one, up to a bound, however slow it was."""
    return min(max(_LOOK_EVERY, _LOOK_SHARE * took), _LONGEST_PAUSE)


def _end(holder: int, group: process_tree.Group | None, *, apart: bool) -> None:
    # gone; macOS says so with PermissionError
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(holder, signal.SIGKILL)
    if group is not None:
        group.end()
    if _LINUX and not apart:
        process_tree.end_below(os.getpid(), patience=_PATIENCE)
    with contextlib.suppress(ChildProcessError):
        while True:  # the first process of a namespace ends only after all others in it
            os.waitpid(-1, 0)


def _remove(folder: str) -> None:
    """Remove a folder, however deep: what lies below its folders is first moved up to it.

    Raises:
        OSError: something there may not be moved, or is still being written.
    """
    while names := os.listdir(folder):
        for name in names:
            path = f"{folder}/{name}"
            if not _is_folder(path):
                os.unlink(path)
                continue
            os.chmod(path, 0o700)
            for below in os.listdir(path):
                if _is_folder(f"{path}/{below}"):
                    os.chmod(f"{path}/{below}", 0o700)
                os.rename(f"{path}/{below}", f"{folder}/{os.urandom(8).hex()}")
            os.rmdir(path)
    os.rmdir(folder)


def _is_folder(path: str) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)


def _level(config: _Configuration, lacking: Sequence[str], *, apart: bool, refusal: str) -> str:
    if config.level == "none" or not _LINUX:
        return "none"
    if not apart:
        lacking = [f"no namespaces ({refusal}), other processes can be seen", *lacking]
    if config.network:
        lacking = ["the network can be reached", *lacking]
    return f"partial: {'; '.join(lacking)}" if lacking else "full"


def _main(config: _Configuration, argv: list[str]) -> NoReturn:
    os.set_inheritable(config.report, False)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    mask = {int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)}
    namespaces.die_with_parent(signal.SIGTERM)
    namespaces.become_subreaper()
    apart, refusal = config.apart and config.level != "none", "not tried"
    if apart:
        try:
            tree = _start(config, argv, mask, apart=True)
        except _Refused as error:
            apart, refusal = False, str(error)
    if not apart:
        if config.level != "none":
            config = _with_scratch(config)
        tree = _start(config, argv, mask, apart=False)
    level = _level(config, tree.lacking, apart=apart, refusal=refusal)
    if config.level == "require" and level != "full":
        _write_line(config, f"refused: {level}")
        passed, group = None, None
    else:
        _write_line(config, level)
        group = _grouped(config, tree, apart=apart) if _LINUX and config.level != "none" else None
        counters = _Counters(config, tree, apart=apart)
        if _LINUX:
            confinement.undumpable()
        os.write(tree.commands, b"!")
        os.close(tree.commands)
        _silent()
        passed = _watch(config.parent, tree.holder, counters, group)
    _end(tree.holder, group, apart=apart)
    used = os.read(tree.fate, 100).decode() or "- 0 0 0"
    if passed is None and level[:7] != "refused":
        passed = _last_look(counters, used)
    if config.scratch and not apart and config.level != "none":
        with contextlib.suppress(OSError):
            _remove(config.scratch)
    limit, amount = passed or ("-", 0)
    _write_line(config, f"{used} {limit} {amount}")
    os._exit(0)


def _write_line(config: _Configuration, line: str) -> None:
    with contextlib.suppress(BrokenPipeError):  # the auditor is gone; go on and end the processes
        os.write(config.report, f"{line}\n".encode())


def _last_look(counters: _Counters, used: str) -> tuple[str, int] | None:
    with contextlib.suppress(OSError):
        return counters.written(int(used.split()[3]))
    return None


def _grouped(config: _Configuration, tree: _Tree, *, apart: bool) -> process_tree.Group | None:
    # the end of a namespace needs none
    group = process_tree.Group.below_ours(config.limits, to_limit=apart)
    if group is not None:
        try:
            for pid in (*_below(tree.holder), tree.holder):
                group.add(pid)
        except OSError:
            group.end()
            return None
    return group


def _below(holder: int) -> list[int]:
    """The holder's children, as this process counts."""
    with open(f"/proc/{holder}/task/{holder}/children", encoding="ascii") as file:
        return [int(word) for word in file.read().split()]


def _with_scratch(config: _Configuration) -> _Configuration:
    """Make a folder on disk for what the program writes, and name it in TMPDIR."""
    scratch = f"{config.scratch}/dpaudit-{os.urandom(8).hex()}"
    os.mkdir(scratch, 0o700)
    os.environ["TMPDIR"] = scratch
    return config._replace(scratch=scratch)


if __name__ == "__main__":
    _main(_Configuration(**json.loads(sys.argv[1])), sys.argv[2:])
