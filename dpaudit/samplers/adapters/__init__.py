"""Adapters to the noise of libraries, one short file a library: ``LIB:MECH[:option=value,…]``.

Each is a closed sampler of the noise and a whole mechanism; a table in its file says which ones it
has. The library is imported in the worker only, and used as it ships: nothing here seeds it or
draws for it. ``base`` is what adapters have in common, ``environment`` runs libraries that need a
Python of their own, by the programs in ``environments/``.
"""
