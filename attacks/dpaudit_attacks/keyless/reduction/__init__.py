"""Lattice reduction behind one interface: ``fpylll`` and, where it is installed, BLASter."""
