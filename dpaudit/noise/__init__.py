"""Noise sources, one family a file. The flawed and the backdoored ones are lab specimens and say so in their names."""
