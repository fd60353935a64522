"""The keyless search: a Gaussian pancake found in its noise alone, without the key.

``candidates`` finds wide peaks (small γ) and few dimensions with numpy, ``lattice`` the rest by
lattice reduction (``fpylll``); ``candidates`` also confirms what is proposed on rows that it never
saw, and estimates β, γ and w; ``plan`` says which cells are tried in which order, ``search`` keeps
the rows and runs child processes (``worker``), ``keyless_search`` is the plug-in of the battery,
and ``proof`` reads releases with what was recovered. Nothing here imports ``fpylll`` but
``lattice``, when it reduces.
"""
