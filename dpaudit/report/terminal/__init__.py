"""The sentences and tables of a report for a terminal."""
