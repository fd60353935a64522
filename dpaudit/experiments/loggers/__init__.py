"""Run logs for other tools: plug-ins of the group ``dpaudit.loggers``, and the relay that keeps them out of the run's way."""

from dpaudit.experiments.loggers.relay import Relay, open_loggers, run_start

__all__ = ["Relay", "open_loggers", "run_start"]
