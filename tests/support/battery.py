"""What one black-box test says of blocks of values, for tests only."""

from __future__ import annotations

import numpy as np

from dpaudit.audit.block import SampleBlock
from dpaudit.claims import Claim
from dpaudit.randomness import KeyedStream


def evidence_of(make, blocks, claim="gaussian:sigma=1", *, seed=11, alpha=0.001, **more):
    """Evidence of ``make(law, stream)`` after ``blocks``; ``more`` goes to each of them."""
    law = Claim.parse(claim) if isinstance(claim, str) else claim
    stream = KeyedStream.from_seed(seed)
    test = make(law, stream)
    for i, values in enumerate(blocks):
        values = np.ascontiguousarray(values, dtype=np.float64)
        number = i * more.get("calls", 1)
        test.update(SampleBlock(number, values, **{"claim": law, "spread": stream.numpy(), **more}))
    return test.evidence(alpha=alpha)
