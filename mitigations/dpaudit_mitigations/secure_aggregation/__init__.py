"""Noise from several servers, summed under masks: no one sees a sum without the honest noise in it.

The round: ``plan`` (what is agreed beforehand), ``client`` and ``server`` (state machines, bytes in
and bytes out), ``ring`` (values as ring elements), ``noise`` (each server's share), ``simulation``
(a whole round in one process), ``mitigation`` (the plug-in); ``keys``, ``masking``, ``shares`` and
``wire`` are what these are made of.

Processes: ``terms`` and ``roster`` (who takes part, proved by certificates), ``gathering`` (a stage
and its deadline), ``network``, ``commands`` (``dpaudit serve aggregate``, ``contribute``).
"""
