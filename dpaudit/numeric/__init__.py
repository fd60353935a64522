"""The numeric toolkit: compiled loops, lattices, exact integers.

Noise, local mechanisms, hosts and mitigations share it. No noise source and no key lives here.
"""

__all__ = ["BLOCK"]

# coordinates that samplers draw together; a pancake's key keeps one Gram matrix for each such block
BLOCK = 1 << 14
