"""Whole systems, audited from their own configuration, databases and reports."""
