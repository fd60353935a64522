"""The ε that the bits of reports show, whatever is claimed.

``estimates`` groups the records of an audit and judges the claims; ``sketches`` and ``signs``
estimate the flip probability of one group, and whether its bits are independent.
"""
