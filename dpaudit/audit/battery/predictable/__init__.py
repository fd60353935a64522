"""Noise that can be predicted: whoever sees some of it, or guesses a seed, computes the rest.

From a common generator and seed (``predictable``), or by a linear recurrence over GF(2)
(``linear_complexity``).
"""
