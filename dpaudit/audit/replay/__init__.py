"""Replays: a pipeline on neighbouring data sets with its noise frozen."""
