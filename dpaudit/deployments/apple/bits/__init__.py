"""What the bits of reports show of ε, whatever is claimed.

``estimates`` groups the records of an audit; ``sketches`` and ``signs`` estimate the coin of one
group, ``sketch_checks`` tests whether its bits are independent coins, ``shown`` judges the claim;
``tails`` are the exact laws behind all of them.
"""
