"""The keyless search: a Gaussian pancake found in its noise alone, without the key.

``easy`` finds wide peaks (small γ) and few dimensions with numpy, ``lattice`` the rest by lattice reduction (``fpylll``);
``candidates`` confirms what they propose on rows they never saw and estimates β, γ and w; ``plan`` says which cells are
tried in which order, ``search`` runs them in child processes (``worker``), ``test`` is the plug-in of the battery, and
``proof`` reads releases with what was recovered. Nothing here imports ``fpylll`` but ``lattice``, when it reduces.
"""
