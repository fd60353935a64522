"""Attacks on releases. See ``attacks/README.md`` for the threat model and the index."""
