import numpy as np
import pytest
import scipy.stats
import torch

from dpaudit.errors import UsageError
from dpaudit.noise.gaussian import Gaussian
from dpaudit_mitigations.rotation.dense import DenseRotation, haar_matrix


def test_haar_matrices(stream):
    """Orthogonal; every entry's law; both determinants; and the signs that a bare QR gets wrong."""
    d = 4
    q = torch.stack([haar_matrix(d, stream=stream.child(i)) for i in range(4000)])
    assert torch.allclose(q @ q.mT, torch.eye(d, dtype=torch.float64).expand_as(q), atol=1e-12)
    for i, j in ((0, 0), (3, 3), (1, 2)):
        share = (q[:, i, j].numpy() + 1) / 2
        assert scipy.stats.kstest(share, "beta", args=((d - 1) / 2, (d - 1) / 2)).pvalue > 1e-3, (
            i,
            j,
        )
    reflections = int((torch.linalg.det(q) < 0).sum())
    assert scipy.stats.binomtest(reflections, len(q)).pvalue > 1e-3
    # mean 0, variance 1 (Diaconis and Shahshahani 1994)
    trace = torch.diagonal(q, dim1=1, dim2=2).sum(1).numpy()
    assert abs(trace.mean()) < 4 / np.sqrt(len(q))
    assert trace.var() == pytest.approx(1, abs=0.1)


def test_dimensions_and_options(stream):
    with pytest.raises(UsageError, match="d=2001"):
        DenseRotation().release(torch.zeros(1, 2001), Gaussian(), stream=stream)
    with pytest.raises(UsageError, match="shared=1"):
        DenseRotation(shared=1)
