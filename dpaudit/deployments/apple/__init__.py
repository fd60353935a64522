"""Apple's differential privacy as macOS and iOS ran it: configuration, daemon, database, reports (arXiv 1709.02753).

``configuration`` and ``resolving`` read what is claimed, ``ledger`` adds it up, ``differences`` compares two versions;
``database`` and ``reports`` read what a device kept and sent, ``observed`` adds that up, ``estimates`` asks the bits what
their ε is; ``daemon`` and ``scenario`` simulate a device. Everything is read, nothing is ever written beside it.
"""
