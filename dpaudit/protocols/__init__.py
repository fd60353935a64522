"""The Protocols of plug-ins, one theme per file: nothing to inherit, nothing to register.

A *noise source* makes noise, a *host* turns data into neighbouring query results, a *mitigation*
stands between a source and a release, an *attack* plays one of ten games against releases
(``dpaudit.protocols.attacks``), a *closed sampler* is third-party noise, a *test* maps its blocks
to evidence. ``dpaudit.testing`` has a conformance
check for most.
"""

from __future__ import annotations

from dpaudit.protocols.attacks import (
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
from dpaudit.protocols.noise import (
    Array,
    DType,
    Host,
    Mitigation,
    NoiseSource,
    ProtocolMitigation,
    ReleasingSource,
    Stream,
)
from dpaudit.protocols.parties import (
    BatchCoins,
    BatchDraw,
    Hub,
    LocalMechanism,
    Message,
    Party,
    SubmissionPolicy,
)
from dpaudit.protocols.targets import (
    ClosedSampler,
    DatasetMechanism,
    Mechanism,
    OpenMechanism,
    PreparingSampler,
    RecordedMechanism,
    RepeatableSampler,
    StartedSampler,
    TimedMechanism,
    ValueSampler,
)
from dpaudit.protocols.tests import Block, SearchingTest, Test

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
    "Hub",
    "IdentificationAttack",
    "LearningAttack",
    "LocalMechanism",
    "Mechanism",
    "MembershipAttack",
    "Message",
    "Mitigation",
    "NoiseSource",
    "OpenMechanism",
    "Party",
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
