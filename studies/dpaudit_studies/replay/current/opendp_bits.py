"""OpenDP 0.14.2, issue 2708 (fixed in 0.15.0): bits that are randomised, each person by itself.

The last bit is released as it is; (1.1, 0)-DP is claimed of a person's city. The fault is inside
the measurement, which a replay takes at its word; releases show it. Of OpenDP's other issues, 2837
needs 2^31 records, and 2805, 2820, 2825 and 2638 are about accuracy and accounting.
"""

import opendp.prelude as dp

dp.enable_features("contrib")
CITIES = ["Bonn", "Graz", "Wien"]


def run(data):
    """One person's city as the last three of eight bits."""
    city = str(data[0]["city"]) if data else ""
    bits = [city == name for name in CITIES]
    space = dp.bitvector_domain(max_weight=1), dp.discrete_distance()
    measurement = dp.m.make_randomized_response_bitvec(*space, f=0.75)
    packed = bytes([sum(bit << i for i, bit in enumerate(bits, start=5))])
    return list(measurement(packed))
