"""Attacks on the last bits of releases: which values cannot have led to them.

Mironov 2012; Jin et al. 2022.
"""
