"""Audits of a user's own training function."""

from dpaudit.audit.training_loops.run import audit_training

__all__ = ["audit_training"]
