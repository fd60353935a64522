"""Where a closed sampler is: a Python function, a shared library, a program, an HTTP address, a file. One a file.

``worker`` is the auditor's side of a foreign process, ``worker_main`` the process, ``targets`` what it calls.
"""
