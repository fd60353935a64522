"""Local differential privacy: what devices do to an object, and what a server estimates from it.

One mechanism per file. Objects are whole numbers from 0; a ``LocalMechanism``
(``dpaudit.protocols``) makes one report of each, ``reports`` holds their shapes, and the server's
side is next to the client's:

- ``randomized_response``: ``RandomizedResponse``, ``RandomizedResponseServer``
- ``one_bit_histogram``: ``OneBitHistogram``, ``OneBitServer``
- ``count_mean_sketch``: ``CountMeanSketch``; ``count_mean_server``: ``CountMeanServer``
- ``hadamard_sketch``: ``HadamardSketch``; ``hadamard_server``: ``HadamardServer``
- ``count_median_sketch``: ``CountMedianSketch``, which a ``CountMeanServer`` takes in
- ``rappor``: ``Rappor``; ``rappor_server``: ``RapporServer``, for ``rappor_decoding``
- ``identity``: ``Identity``, the baseline without privacy

All servers take reports by ``add`` and other servers by ``merge``; those of counts answer
``estimate``:

>>> from dpaudit_local.count_mean_server import CountMeanServer
>>> from dpaudit_local.count_mean_sketch import CountMeanSketch
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
