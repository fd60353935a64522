"""A secret rotation between a noise source and a release, one way to turn a file."""
