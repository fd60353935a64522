"""MPyC's Shamir sharing, imported without what its package does on import.

``import mpyc`` reads ``sys.argv`` as its own command line and sets up the root logger; both are ours.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

from dpaudit.errors import MissingExtraError

__all__ = ["finfields", "thresha"]


def _load() -> tuple[Any, Any]:
    arguments, root = sys.argv, logging.getLogger()
    silence = logging.NullHandler()
    sys.argv = [*arguments[:1], "--no-log"]
    root.addHandler(silence)  # a root with a handler is left as it is
    try:
        import mpyc.finfields as fields
        import mpyc.thresha as sharing
    except ModuleNotFoundError as e:
        raise MissingExtraError("secure aggregation: needs mpyc; pip install 'dpaudit[protocols]'") from e
    finally:
        sys.argv = arguments
        root.removeHandler(silence)
    return fields, sharing


finfields, thresha = _load()
