"""Counts with binomial noise whose making can be checked: commitments and proofs over ristretto255."""
