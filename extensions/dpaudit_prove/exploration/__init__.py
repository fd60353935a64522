"""Explores all states of a program and computes the exact law of its output."""
