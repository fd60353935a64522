"""Audits of a user's own training function and data loader."""

from dpaudit.audit.training_loops.loader import LoaderResult, audit_loader
from dpaudit.audit.training_loops.run import audit_training

__all__ = ["LoaderResult", "audit_loader", "audit_training"]
