"""Coins of a device that carry their own seed in what it reports, and who reads them.

``specimen`` makes such reports of any mechanism (``bits``: what all reports have in common, and the
defence of a device's owner), ``reader`` reads them with the key, ``measure`` says how often.
"""
