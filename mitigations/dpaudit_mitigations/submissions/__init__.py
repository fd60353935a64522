"""What a device submits of what its owner does, under local differential privacy: one policy a file.

``every``: a fresh report of every object (what Apple's devices do, up to their budget). ``capped``:
no more than so many. ``memoised``: the same report for the same object again. ``shuffled``: through
a shuffler that cuts the link to the device. A smaller ε is no policy: it is the mechanism's own.
None of them is a default of anything but ``every``.
"""
