"""No privacy: the report is the object, and only the object explains it."""

import math

import numpy as np
import pytest

from dpaudit.errors import UsageError
from dpaudit.interfaces import LocalMechanism
from dpaudit.local.identity import Identity


def test_the_report_is_the_object_and_a_copy(stream):
    objects = np.array([4, 0, 4])
    reports = Identity().privatize(objects, stream=stream)
    objects[0] = 9
    assert reports.category.tolist() == [4, 0, 4]
    assert isinstance(Identity(), LocalMechanism)
    assert Identity().epsilon == math.inf
    logs = Identity().log_likelihood(reports, np.array([0, 4]))
    assert logs.tolist() == [[-math.inf, 0.0], [0.0, -math.inf], [-math.inf, 0.0]]
    with pytest.raises(UsageError):
        Identity().privatize(np.array([-1]), stream=stream)
