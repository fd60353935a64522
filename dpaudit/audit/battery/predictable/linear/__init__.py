"""Bits of noise that follow a linear recurrence over GF(2)."""
