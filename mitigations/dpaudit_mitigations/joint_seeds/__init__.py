"""Noise as a function of two committed seeds, so that nobody chose it; shown by cut-and-choose."""
