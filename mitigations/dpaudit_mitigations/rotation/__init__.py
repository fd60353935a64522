"""A secret rotation between a noise source and a release, one kind per file.

``fresh``: a separate Haar rotation of every vector. ``shared``: one for all vectors of a call.
``dense``: either by a whole matrix, the oracle. ``structured``: signs and fast transforms, which is
not Haar. All release on a lattice.
"""
