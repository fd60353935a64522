"""Whether a compiled sampler's output is a function of coins that an auditor chooses."""
