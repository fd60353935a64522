"""Interprets a Python function's instructions, with coins that are decided as late as possible."""
