"""One thread for all of these: sums in torch depend on how many there are."""

from support.one_thread import one_thread

__all__ = ["one_thread"]
