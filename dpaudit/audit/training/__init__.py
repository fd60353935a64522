"""Audits of a user's own training function and data loader."""

from dpaudit.audit.training.loader import LoaderResult, audit_loader
from dpaudit.audit.training.run import audit_training

__all__ = ["LoaderResult", "audit_loader", "audit_training"]
