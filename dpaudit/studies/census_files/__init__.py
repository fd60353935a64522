"""Audits of noisy measurement files with known noise: type-I rate, and power on planted flaws."""
