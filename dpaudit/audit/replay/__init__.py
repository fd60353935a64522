"""Replays: a pipeline on neighbouring data sets with its noise frozen."""

from dpaudit.audit.replay.request import Divergence, ReplayOptions, ReplayResult
from dpaudit.audit.replay.run import replay, replay_pipeline

__all__ = ["Divergence", "ReplayOptions", "ReplayResult", "replay", "replay_pipeline"]
