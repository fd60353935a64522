"""The four configuration files: read, and every key followed to its algorithm, ε and budget."""

from __future__ import annotations

from dpaudit.deployments.apple.configuration.reading import FILES, read_configuration

__all__ = ["FILES", "read_configuration"]
