"""Libraries whose releases are audited, and that have no adapter of their own for this Python."""
