"""Verdicts from exact laws: distances to claims, privacy, the coins behind each value."""
