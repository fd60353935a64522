"""The whole state of a generator, recovered from noise: what follows is computed and compared."""
