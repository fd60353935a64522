"""Run with ``pytest`` in this folder: the second test fails, and says why."""

import noise


def test_honest(dpaudit):
    dpaudit.assert_no_finding(noise.honest, claim="gaussian:sigma=1")


def test_flawed(dpaudit):
    dpaudit.assert_no_finding(noise.flawed, claim="gaussian:sigma=1")


def test_the_gate_still_catches(dpaudit):
    dpaudit.assert_finding(noise.flawed, claim="gaussian:sigma=1", by="repeats")


def test_count(dpaudit):
    dpaudit.assert_private(noise.private_count, neighbours=(0, 1), epsilon=1)
