"""Pipelines that know of the auditor: see EXPECTED in hostile_pipelines."""

import sys

import numpy as np


def behaves_if_watched(data):
    frame = sys._getframe()
    while frame is not None:
        if "dpaudit_replay" in frame.f_globals.get("__name__", ""):
            return np.random.laplace()
        frame = frame.f_back
    return len(data)


def moves_folders(data):
    from dpaudit_replay import tape

    tape.FOLDERS.clear()
    return [np.random.laplace() for _ in data]


def edits_the_tape(data):
    from dpaudit_replay import tape

    one = tape.running()
    one.differ = lambda *a, **k: None
    return len(data)


def ends_the_tape(data):
    from dpaudit_replay import tape

    tape.end()
    return len(data) + np.random.laplace()
