"""The Protocols of plug-ins, one theme per file: nothing to inherit, nothing to register.

A *noise source* makes noise, a *host* turns data into neighbouring query results, a *mitigation*
stands between a source and a release, an *attack* plays one of ten games against releases
(``dpaudit.protocols.attacks``), a *target* is third-party noise or a third-party mechanism, a
*test* maps blocks of noise to evidence. ``dpaudit.testing`` has a conformance check for most.
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
    LocalMechanism,
    Party,
    SubmissionPolicy,
)
from dpaudit.protocols.targets import (
    Dataset,
    Facts,
    Kind,
    Preparing,
    Repeatable,
    Reply,
    Request,
    Session,
    Target,
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
    "DType",
    "Dataset",
    "Facts",
    "Game",
    "GameAttack",
    "Host",
    "IdentificationAttack",
    "Kind",
    "LearningAttack",
    "LocalMechanism",
    "MembershipAttack",
    "Mitigation",
    "NoiseSource",
    "Party",
    "Preparing",
    "ProbingAttack",
    "ProtocolMitigation",
    "ReconstructionAttack",
    "ReleasingSource",
    "Repeatable",
    "Reply",
    "Request",
    "SearchingTest",
    "Session",
    "Stream",
    "SubmissionPolicy",
    "SupportAttack",
    "Target",
    "Test",
]
