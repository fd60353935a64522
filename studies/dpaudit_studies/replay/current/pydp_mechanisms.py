"""PyDP (python-dp) 1.1.5: noise and a choice of cities by hand; (2, 1e-5)-DP, one more or less."""

from collections import Counter

from pydp.algorithms.numerical_mechanisms import LaplaceMechanism
from pydp.algorithms.partition_selection import create_truncated_geometric_partition_strategy


def run(data):
    """Cities with enough people, and a noisy count of each."""
    keep = create_truncated_geometric_partition_strategy(1.0, 1e-5, 1)
    noise = LaplaceMechanism(epsilon=1.0, sensitivity=1.0)
    counts = Counter(str(person["city"]) for person in data)
    kept = [city for city, n in sorted(counts.items()) if keep.should_keep(n)]
    return {city: noise.add_noise(float(counts[city])) for city in kept}
