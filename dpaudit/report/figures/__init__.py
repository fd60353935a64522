"""The figures of a report, one per file; each returns a ``Picture``, or None without data."""
