"""Studies: the measures, the experiments that ship with dpaudit, and the values of papers.

``specs/`` holds the experiments (``dpaudit list experiments``), ``published/`` the papers' values.
Each measure is one file that ends in a ``MEASURE``, registered in ``dpaudit.measures`` like any
third-party one; the engine (:mod:`dpaudit.experiments`) knows none of them.
"""
