"""Kinds of targets: Python, shared library, program, HTTP, recorded file, registered source.

A transport is one file, and one class answers what it can be asked: noise, releases of a query
result, releases of a data set. ``command`` runs a program for each question, ``http`` asks a
server, ``file`` reads recordings (``whitened`` makes recorded steps independent first).
``channel`` is a worker process and its channel, ``worker`` what is asked through it: Python
functions, C functions, registered sources, and library adapters. ``worker_main`` is that process,
``callees`` is what it calls, and ``symbols`` calls C.
"""
