# diffprivlib 0.6.6. The sum of a cluster is noised for a sensitivity of upper - lower, but one
# record more moves it by up to its largest absolute value: 10 for bounds (5, 10), not 5.
# Source: arXiv 2602.17454; IBM/differential-privacy-library issue 104 (3).
# At fault: diffprivlib/models/k_means.py:254, ``sensitivity=self.bounds[1][i] - self.bounds[0][i]``.
import numpy as np
from diffprivlib.models import KMeans


def run(heights: np.ndarray):
    model = KMeans(n_clusters=2, epsilon=1.0, bounds=(5, 10))
    model.fit(heights)
    return model.cluster_centers_
