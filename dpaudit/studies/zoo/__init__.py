"""The zoo: samplers with known flaws for the audit to find, honest ones for it to leave alone, and others' tests.

LAB SPECIMENS throughout; nothing here is ever a default. One family of flaws a file.
"""

from __future__ import annotations

from dpaudit.studies.zoo.flawed import SPECIMENS, specimen
from dpaudit.studies.zoo.honest import HONEST, honest
from dpaudit.studies.zoo.inprocess import InProcessSampler, specimen_sampler
from dpaudit.studies.zoo.specimen import Specimen

__all__ = ["HONEST", "SPECIMENS", "InProcessSampler", "Specimen", "honest", "specimen", "specimen_sampler"]
