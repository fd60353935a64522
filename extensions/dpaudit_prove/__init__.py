"""Proofs about the program of a sampler: its exact law, from its source, without sampling."""
