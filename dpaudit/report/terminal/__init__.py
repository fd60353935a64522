"""The same sentences and tables for a terminal."""
