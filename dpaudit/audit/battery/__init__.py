"""The black-box tests, one family a file.

Each takes the claim and a stream, sees blocks of values mapped to independent N(0, 1) under the claim, and ends with one
p-value that is valid for everything the family tried. α is split over the families by the runner, once.
"""
