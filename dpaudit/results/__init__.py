"""What every result needs: safe text from outside, files that are whole or absent, and locks.

Standard library only, so that a sampler's own process can import it.
"""
