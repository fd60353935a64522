"""Noise sources, one family per file; the flawed and backdoored ones are named lab specimens."""
