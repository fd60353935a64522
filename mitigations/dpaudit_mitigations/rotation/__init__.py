"""A secret rotation between a noise source and a release.

``fresh``: a separate Haar rotation of every vector. ``tensors``: one for all vectors of a call;
either by a whole matrix, the oracle; and signs and fast transforms, which is not Haar. All release
on a lattice. ``bounds``: what they leave to a key holder.
"""
