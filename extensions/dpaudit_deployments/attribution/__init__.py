"""Ad measurement: the two mechanisms of the Attribution Reporting API, from recorded reports.

Source: Attribution Reporting, WICG draft community group report (``index.bs``), its explainers
``EVENT.md``, ``AGGREGATE.md``, ``AGGREGATION_SERVICE_TEE.md`` and ``flexible_event_config.md``, and
``params/chromium-params.md``, all in github.com/WICG/attribution-reporting-api as of 2025-08-28.

================  ==================================================================================
``parameters``    the constants of the specification and of Chromium, each with its section
``registration``  what a source registers: reports, windows, trigger data; its output states
``laws``          the exact laws: randomised response, channel capacity, Laplace, null reports
``records``       recorded files: event-level reports, summary reports, aggregatable reports
``events``        tests of recorded event-level reports against the claimed randomised response
``noise``         tests of the noise in summary reports against the claimed discrete Laplace law
``ledger``        the ε and the contribution budget that were spent, and the limits
``result``        the result of an audit
``run``           the audit of files
================  ==================================================================================

The audited files are only read.
"""
