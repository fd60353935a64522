"""Log lines: one JSON object each, whatever is put in them."""

from __future__ import annotations

import json
import threading

from dpaudit_mitigations.transport.logs import clean, logger


def test_one_line_with_fixed_fields(capsys):
    log = logger("noise")
    log("served", peer="answer", method="offer", release="r1")
    log("refused", reason='a "quoted"\nreason\x1b[31m with σ and \u202e')
    first, second = map(json.loads, capsys.readouterr().err.splitlines())
    assert list(first) == ["time", "service", "peer", "method", "release", "outcome"]
    assert second["reason"] == 'a "quoted" reason�[31m with σ and �'
    assert first["time"].endswith("+00:00")


def test_length_is_bounded(capsys):
    logger("x" * 1000)("failed", reason="y" * 100_000)
    line = capsys.readouterr().err
    assert len(line) < 2000
    assert clean("abc", 3) == "abc"
    assert clean("abcd", 3) == "ab…"


def test_lines_of_threads_do_not_mix(capsys):
    log = logger("s")
    threads = [
        threading.Thread(target=lambda n=n: [log("served", release=f"{n}-{i}") for i in range(50)])
        for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = {json.loads(line)["release"] for line in capsys.readouterr().err.splitlines()}
    assert len(found) == 400
