"""Linear recurrences behind the noise: congruential generators, and sums at a distance."""
