"""Homes that are folders of the system are not hidden: programs run on what is there."""

from __future__ import annotations

import os

import pytest

from dpaudit.samplers import open_sampler
from dpaudit.samplers.sandbox.view import plan


@pytest.mark.parametrize("home", ["/", "/usr", "/usr/games", "/proc"])
def test_a_home_of_the_system_stays(home, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", home)
    assert not {home, "/usr", "/proc", "/"} & set(plan([]).hidden)


def test_a_service_keeps_its_home_to_itself(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/var/lib")
    assert "/var/lib" in plan([]).hidden


def test_a_home_that_is_not_there_is_not_made(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", "/usr/dpaudit-no-home")
    with open_sampler("python:numpy.random:standard_normal", seed="1") as sampler:
        assert sampler.draw(2, 1, timeout=60).shape == (2, 1)
    assert not os.path.exists("/usr/dpaudit-no-home")
