"""Attacks on last bits: which values cannot have led to a release (Mironov 2012)."""
