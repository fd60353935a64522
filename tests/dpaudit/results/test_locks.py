"""Locks keep others away and harm no file, whatever lies at their name."""

import os
import socket
import threading

import pytest

from dpaudit.results.locks import HeldError, Lock, is_held


def test_one_holder_at_a_time(tmp_path):
    path = tmp_path / "lock"
    assert not is_held(path)
    with Lock(path):
        assert is_held(path)
        with pytest.raises(HeldError, match=f"^process {os.getpid()} on "):
            Lock(path)
    assert not is_held(path)
    lock = Lock(path)
    lock.close()
    lock.close()
    Lock(path).close()


def test_it_waits_as_long_as_it_is_told(tmp_path):
    for patience in (None, 60.0):
        first = Lock(tmp_path / "lock")
        threading.Timer(0.05, first.close).start()
        Lock(tmp_path / "lock", patience=patience).close()


def test_a_lock_that_nobody_refers_to_is_released(tmp_path):
    Lock(tmp_path / "lock")
    assert not is_held(tmp_path / "lock")


@pytest.mark.parametrize(
    "kind", ["link", "dangling", "hard link", "text", "long", "pipe", "socket", "folder"]
)
def test_what_is_no_lock_is_refused_and_unharmed(kind, tmp_path):
    mine, path = tmp_path / "mine", tmp_path / "lock"
    mine.write_text("precious")
    match kind:
        case "link":
            path.symlink_to(mine)
        case "dangling":
            path.symlink_to(tmp_path / "nowhere")
        case "hard link":
            mine.write_text("")
            os.link(mine, path)
        case "text":
            path.write_text("[[package]]\n")
        case "long":
            path.write_text("process 1 on a\n" + "x" * 1000)
        case "pipe":
            os.mkfifo(path)
        case "socket":
            socket.socket(socket.AF_UNIX).bind(str(path))
        case "folder":
            path.mkdir()
    before = {p.name: p.read_text() for p in (mine, path) if p.is_file()}
    with pytest.raises(OSError, match=r"."):
        Lock(path)
    assert not is_held(path)
    assert {p.name: p.read_text() for p in (mine, path) if p.is_file()} == before
    assert not (tmp_path / "nowhere").exists()


def test_who_holds_it_is_said_in_printable_words(tmp_path):
    path = tmp_path / "lock"
    with Lock(path):
        path.write_bytes(b"process 7 on \x1b[2J\xff\n")
        with pytest.raises(HeldError, match=r"^process 7 on �\[2J�$"):
            Lock(path)
