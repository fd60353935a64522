"""LAB SPECIMEN: noise of any law that carries its own seed. Never a default."""
