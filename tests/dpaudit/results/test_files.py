"""Files are whole or as they were, whatever lies at their name."""

import errno
import os
import stat

import pytest

from dpaudit.results import files
from dpaudit.results.files import clear_leftovers, write_file


def left(folder):
    return sorted(p.name for p in folder.iterdir())


def test_text_bytes_and_what_a_function_writes(tmp_path):
    path = tmp_path / "b.txt"
    assert write_file(path, "ε \udcff") == path
    assert path.read_bytes() == "ε \\udcff".encode()
    write_file(path, b"\x00\xff")
    assert path.read_bytes() == b"\x00\xff"
    write_file(path, lambda file: (file.write(b"1"), file.write(b"2")))
    assert path.read_bytes() == b"12"
    assert left(tmp_path) == ["b.txt"]
    with pytest.raises(FileNotFoundError):
        write_file(tmp_path / "none" / "b.txt", "")


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path):
    path = write_file(tmp_path / "a", "old")

    def broken(file):
        file.write(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        write_file(path, broken)
    assert path.read_text() == "old"
    assert left(tmp_path) == ["a"]


def test_links_are_not_followed(tmp_path):
    mine = write_file(tmp_path / "mine", "precious")
    for there in ("link", "gone"):
        (tmp_path / there).symlink_to(mine if there == "link" else tmp_path / "nowhere")
        write_file(tmp_path / there, "new")
        assert not (tmp_path / there).is_symlink()
    os.link(mine, tmp_path / "hard")
    write_file(tmp_path / "hard", "new")
    assert mine.read_text() == "precious"
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("links", [True, False])
def test_what_exists_is_not_replaced_unless_asked(links, tmp_path, monkeypatch):
    def refused(*_):
        raise OSError(errno.EPERM, "Operation not permitted")

    if not links:
        monkeypatch.setattr(files.os, "link", refused)
    path = write_file(tmp_path / "key", "first", mode=0o600, replace=False)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for there in ("key", "link"):
        with pytest.raises(FileExistsError):
            write_file(tmp_path / there, "second", replace=False)
    assert path.read_text() == "first"
    assert left(tmp_path) == ["key", "link"]


def test_only_regular_files_are_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "null").symlink_to("/dev/null")
    for name in ("pipe", "folder", "null"):
        with pytest.raises(OSError, match="Not a regular file"):
            write_file(tmp_path / name, "")
    assert (tmp_path / "null").is_symlink()


def test_the_umask_decides_unless_a_mode_is_given(tmp_path):
    before = os.umask(0o027)
    try:
        modes = [
            stat.S_IMODE(write_file(tmp_path / str(mode), "", mode=mode).stat().st_mode)
            for mode in (None, 0o600, 0o644)
        ]
    finally:
        os.umask(before)
    assert modes == [0o640, 0o600, 0o644]


def test_leftovers_of_killed_writers_can_be_cleared(tmp_path):
    (tmp_path / ".dpaudit-0123.tmp").touch()
    (tmp_path / ".dpaudit-link.tmp").symlink_to(tmp_path)
    (tmp_path / "x.tmp").touch()
    assert clear_leftovers(tmp_path) == 1
    assert left(tmp_path) == [".dpaudit-link.tmp", "x.tmp"]
