"""LAB SPECIMENS for attacks to find: one floating-point flaw per file. Never a default."""
