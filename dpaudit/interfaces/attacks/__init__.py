"""Attacks: ``dpaudit.attacks``. One game per file, with its Protocol and what is seen and said."""

from __future__ import annotations

from dpaudit.interfaces.attacks.batch import BATCH, BatchAttack
from dpaudit.interfaces.attacks.census import CENSUS, CensusAttack
from dpaudit.interfaces.attacks.game import Game
from dpaudit.interfaces.attacks.identification import IDENTIFICATION, IdentificationAttack
from dpaudit.interfaces.attacks.learning import LEARNING, LearningAttack
from dpaudit.interfaces.attacks.membership import MEMBERSHIP, MembershipAttack
from dpaudit.interfaces.attacks.population import POPULATION, GameAttack
from dpaudit.interfaces.attacks.probing import PROBING, ProbingAttack
from dpaudit.interfaces.attacks.reconstruction import RECONSTRUCTION, ReconstructionAttack
from dpaudit.interfaces.attacks.scoring import SCORING, Attack
from dpaudit.interfaces.attacks.support import SUPPORT, SupportAttack

__all__ = [
    "GAMES",
    "Attack",
    "BatchAttack",
    "CensusAttack",
    "Game",
    "GameAttack",
    "IdentificationAttack",
    "LearningAttack",
    "MembershipAttack",
    "ProbingAttack",
    "ReconstructionAttack",
    "SupportAttack",
]

GAMES = {
    game.name: game
    for game in (
        SUPPORT,
        LEARNING,
        PROBING,
        SCORING,
        IDENTIFICATION,
        RECONSTRUCTION,
        MEMBERSHIP,
        POPULATION,
        BATCH,
        CENSUS,
    )
}
"""All games by name."""
