"""Adapters to the noise of libraries, one short file per library: ``LIB:MECH[:option=value,…]``.

Each gives closed samplers of the noise and whole mechanisms; a table in its file lists them. The
library is imported in the worker only, and used as it ships: nothing here seeds it or draws for it.
``base`` is what adapters have in common.
"""
