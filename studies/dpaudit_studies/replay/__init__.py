"""Replays measured: published violations, on the releases that have them."""
