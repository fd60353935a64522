"""Counts with binomial noise and a proof of how it was made: commitments over ristretto255."""
