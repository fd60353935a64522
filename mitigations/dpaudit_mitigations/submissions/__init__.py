"""What a device submits about its owner under local differential privacy: one policy per file.

``every``: a fresh report of every object (what Apple's devices do, up to their budget). ``capped``:
no more than a limit. ``memoised``: the same report for the same object again. ``shuffled``: through
a shuffler that cuts the link to the device. A smaller ε is no policy: it is the mechanism's own.
Only ``every`` is a default anywhere.
"""
