"""The Protocols of plug-ins, one role per file: nothing to inherit, nothing to register.

A *noise source* makes noise, a *host* turns data into neighbouring query results, a *mitigation*
stands between a source and a release, an *attack* plays one of nine games against releases
(``dpaudit.interfaces.attacks``), a *closed sampler* is third-party noise, a *test* maps its blocks
to evidence, a *run logger* reports a run to another tool. ``dpaudit.testing`` has a conformance
check for most.
"""

from __future__ import annotations

from dpaudit.interfaces.arrays import Array, DType
from dpaudit.interfaces.attacks import (
    GAMES,
    Attack,
    BatchAttack,
    CensusAttack,
    Game,
    GameAttack,
    IdentificationAttack,
    LearningAttack,
    MembershipAttack,
    ProbingAttack,
    ReconstructionAttack,
    SupportAttack,
)
from dpaudit.interfaces.batches import BatchCoins, BatchDraw
from dpaudit.interfaces.hosts import Host
from dpaudit.interfaces.local import LocalMechanism, SubmissionPolicy
from dpaudit.interfaces.mechanisms import (
    DatasetMechanism,
    Mechanism,
    OpenMechanism,
    RecordedMechanism,
    TimedMechanism,
)
from dpaudit.interfaces.mitigations import Mitigation, ProtocolMitigation
from dpaudit.interfaces.samplers import (
    ClosedSampler,
    PreparingSampler,
    RepeatableSampler,
    StartedSampler,
    ValueSampler,
)
from dpaudit.interfaces.sources import NoiseSource, ReleasingSource
from dpaudit.interfaces.streams import Stream
from dpaudit.interfaces.tests import Block, SearchingTest, Test

__all__ = [
    "GAMES",
    "Array",
    "Attack",
    "BatchAttack",
    "BatchCoins",
    "BatchDraw",
    "Block",
    "CensusAttack",
    "ClosedSampler",
    "DType",
    "DatasetMechanism",
    "Game",
    "GameAttack",
    "Host",
    "IdentificationAttack",
    "LearningAttack",
    "LocalMechanism",
    "Mechanism",
    "MembershipAttack",
    "Mitigation",
    "NoiseSource",
    "OpenMechanism",
    "PreparingSampler",
    "ProbingAttack",
    "ProtocolMitigation",
    "ReconstructionAttack",
    "RecordedMechanism",
    "ReleasingSource",
    "RepeatableSampler",
    "SearchingTest",
    "StartedSampler",
    "Stream",
    "SubmissionPolicy",
    "SupportAttack",
    "Test",
    "TimedMechanism",
    "ValueSampler",
]
