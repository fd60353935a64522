"""Noise from several servers, summed under masks: no one sees a sum without the honest noise in it.

The round: ``plan`` (what is agreed beforehand, values as ring elements), ``client`` and ``server``
(state machines, bytes in and bytes out), ``noise`` (each server's share), ``mitigation`` (the
plug-in, and a whole round in one process); ``keys`` and ``wire`` are what these are made of.

Processes: ``terms`` (who takes part, proved by certificates), ``network`` (stages and deadlines).
"""
