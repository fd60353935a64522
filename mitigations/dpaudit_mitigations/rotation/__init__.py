"""A secret rotation between a noise source and a release, one way to turn a file.

``fresh``: every vector its own Haar rotation. ``shared``: one for all vectors of a call. ``dense``:
either by a whole matrix, the oracle. ``structured``: signs and fast transforms, which is not Haar.
All release on a lattice.
"""
