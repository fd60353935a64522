"""Third-party normal samplers, replayed bit for bit, and searched backwards from their outputs."""
