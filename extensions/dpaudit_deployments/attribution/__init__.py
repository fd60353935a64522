"""Ad measurement: the two mechanisms of the Attribution Reporting API, from recorded reports.

Source: Attribution Reporting, WICG draft community group report (``index.bs``), its explainers
``EVENT.md``, ``AGGREGATE.md``, ``AGGREGATION_SERVICE_TEE.md`` and ``flexible_event_config.md``, and
``params/chromium-params.md``, all in github.com/WICG/attribution-reporting-api as of 2025-08-28.

================  ==================================================================================
``registration``  the specification's constants; what a source registers, its output states, laws
``records``       recorded files: event-level reports, summary reports, aggregatable reports
``evidence``      tests of recorded reports against randomised response and discrete Laplace noise
``ledger``        the ε and the contribution budget that were spent, and the limits
``result``        the result of an audit, and its report
``run``           the audit of files
================  ==================================================================================

The audited files are only read.
"""
