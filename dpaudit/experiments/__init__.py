"""Experiments: a grid of host × source × mitigation × attack as TOML, run cell by cell, each cell stored as it ends."""

from dpaudit.experiments.run import run_experiment
from dpaudit.experiments.spec import Cell, Spec, load_spec, spec_names
from dpaudit.experiments.store import Store
from dpaudit.experiments.table import make_document

__all__ = ["Cell", "Spec", "Store", "load_spec", "make_document", "run_experiment", "spec_names"]
