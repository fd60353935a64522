"""Local mechanisms: the device's randomisation and the server's estimate.

One mechanism per file, with its server. Objects are whole numbers from 0; a
``LocalMechanism`` (``dpaudit.protocols``) makes one report of each, ``reports`` holds their shapes:

- ``randomized_response``: ``RandomizedResponse``, ``RandomizedResponseServer``; ``Identity``, the
  baseline without privacy
- ``one_bit_histogram``: ``OneBitHistogram``
- ``count_mean_sketch``: ``CountMeanSketch``, ``CountMeanServer``, and ``CountMedianSketch``, which
  that server takes in
- ``hadamard_sketch``: ``HadamardSketch``, ``HadamardServer``
- ``rappor``: ``Rappor``, ``RapporServer``, for ``rappor_decoding``

All servers take reports by ``add``; those of counts answer ``estimate``:

>>> from dpaudit_local.mechanisms.count_mean_sketch import CountMeanServer, CountMeanSketch
>>> from dpaudit.randomness import KeyedStream
>>> people = [7] * 3000 + [2] * 1000
>>> device = CountMeanSketch(epsilon=4.0, m=256, functions=64)
>>> server = CountMeanServer(device)
>>> server.add(device.privatize(people, stream=KeyedStream.from_seed(1)))
>>> error = server.standard_error([3000, 1000, 0])
>>> bool((abs(server.estimate([7, 2, 5]) - [3000, 1000, 0]) < 4 * error).all())
True

One stream is one set of coins: give every call of ``privatize`` a ``stream.child(…)`` of its own,
or reports share them.
"""
