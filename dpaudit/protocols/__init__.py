"""The Protocols of plug-ins, one theme per file: nothing to inherit, nothing to register.

A *noise source* makes noise, a *host* turns data into neighbouring query results, a *mitigation*
stands between a source and a release, an *attack* scores hypotheses about a release
(``dpaudit.protocols.attacks``), a *target* is third-party noise or a third-party mechanism, a
*test* maps blocks of noise to evidence. ``dpaudit.testing`` has a conformance check for most.
"""

from __future__ import annotations

from dpaudit.protocols.attacks import (
    GAMES,
    Attack,
    Canaries,
    CountShifts,
    Game,
    GameAttack,
    InBatch,
    KnownBatch,
    LearningAttack,
    MissingRecord,
    ProbingAttack,
    ReconstructionAttack,
    UnitSupport,
    plays,
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
    "BatchCoins",
    "BatchDraw",
    "Block",
    "Canaries",
    "CountShifts",
    "DType",
    "Dataset",
    "Facts",
    "Game",
    "GameAttack",
    "Host",
    "Hub",
    "InBatch",
    "Kind",
    "KnownBatch",
    "LearningAttack",
    "LocalMechanism",
    "Message",
    "MissingRecord",
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
    "Target",
    "Test",
    "UnitSupport",
    "plays",
]
