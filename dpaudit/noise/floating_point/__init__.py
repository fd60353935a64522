"""LAB SPECIMENS: samplers and mechanisms with floating-point flaws, one flaw a file, for attacks to find. Never a default."""
