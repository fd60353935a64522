"""Writes certificates of proofs, and checks them without the prover."""
