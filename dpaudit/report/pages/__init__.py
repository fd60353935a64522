"""The template variables of each kind of page: words, tables and figures."""

from __future__ import annotations

from dpaudit.report.pages.audits import audit_page, mechanism_page
from dpaudit.report.pages.deployments import attribution_page, census_page, deployment_page
from dpaudit.report.pages.experiments import experiment_page, measurements_page
from dpaudit.report.pages.proofs import determinism_page, proof_page

__all__ = [
    "attribution_page",
    "audit_page",
    "census_page",
    "deployment_page",
    "determinism_page",
    "experiment_page",
    "measurements_page",
    "mechanism_page",
    "proof_page",
]
