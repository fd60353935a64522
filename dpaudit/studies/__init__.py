"""What is studied: the measures, one a file, the experiments that ship with dpaudit, and the values that papers printed.

``specs/`` holds the experiments (``dpaudit list experiments``), ``published/`` the papers' values.
Each measure ends in a ``MEASURE``, registered as ``dpaudit.measures`` like anyone's; the engine
(:mod:`dpaudit.experiments`) knows none of them.
"""
