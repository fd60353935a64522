"""Noise that can be predicted: whoever sees some of it, or guesses a seed, computes the rest."""
