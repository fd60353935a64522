"""The figures of a report, one a file: each returns a ``Picture``, or None where the results hold nothing to show."""
