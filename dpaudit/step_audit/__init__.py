"""A real training step of any private loop, on one process or many, against its claims."""
