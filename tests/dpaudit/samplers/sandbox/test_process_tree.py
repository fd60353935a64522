"""Who is looked at."""

from __future__ import annotations

import os

from dpaudit.samplers.sandbox import process_tree


def test_processes_of_others_that_are_hidden_are_nobodys(monkeypatch):
    """Where /proc is mounted with ``hidepid``, other users' processes cannot be read: they are passed over, not fatal."""
    read, proc = process_tree._read, os.open("/proc", os.O_RDONLY)

    def hidden(proc, pid, name):
        if pid == 1:
            raise PermissionError
        return read(proc, pid, name)

    monkeypatch.setattr(process_tree, "_read", hidden)
    try:
        assert os.getpid() in process_tree.members(proc, os.getppid())
        assert process_tree._stat(proc, 1) == (b"Z", 0)
    finally:
        os.close(proc)
