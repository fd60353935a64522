"""Order within the noise: periods, ranks of neighbours, relations between a few signs."""
