"""What every result needs: text from outside made safe for any output, files that are whole or absent, and locks.

Standard library only, so that a sampler's own process can import it.
"""
