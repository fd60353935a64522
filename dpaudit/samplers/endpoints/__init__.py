"""Kinds of closed samplers and mechanisms: Python, shared library, program, HTTP, recorded file.

``worker`` (samplers) and ``releases`` (mechanisms) are the auditor's side of a worker process,
``worker_main`` is that process, ``targets`` and ``mechanism_targets`` are what it calls.
``symbols`` calls C. ``command`` and ``command_mechanism`` run a program for each call; ``http`` and
``http_mechanism`` ask a server through ``exchange``; ``file`` and ``recorded_mechanism`` read
``recordings``. ``dataset_function``, ``dataset_command`` and ``dataset_http`` are mechanisms that
take a data set and may release anything.
"""
