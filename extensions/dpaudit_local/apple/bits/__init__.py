"""The ε that the bits of reports show, whatever is claimed.

``estimates`` groups the records of an audit; ``sketches`` and ``signs`` estimate the flip
probability of one group, ``sketch_checks`` tests whether its bits are independent, ``shown`` judges
the claim; ``tails`` are the exact laws behind all of them.
"""
