"""Mitigations between a noise source and a release. See ``mitigations/README.md``."""
