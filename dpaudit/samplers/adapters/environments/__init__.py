"""Programs for libraries that live in another Python, and the versions to install there.

Each gets one line of JSON on its command line (mechanism, options, value, n, timed) and writes rows
of float64. It ends with status 3 if the library cannot be imported, and with 4 if it refuses the
options.
"""
