"""Everything dpaudit raises on purpose.

::

    DpauditError                 exit 4
    ├── UsageError               exit 2   a usage error: name=value, the rule, the fix
    │   ├── UnknownNameError              no plug-in of that name (with the nearest match)
    │   ├── DuplicatePluginError          two distributions claim one name
    │   ├── MissingExtraError             an optional dependency is not installed
    │   ├── KeyFileError                  a key file with open permissions or a broken field
    │   ├── SpecError                     an experiment specification that cannot be run
    │   └── StoreError                    a result folder that does not fit the request
    ├── RefusedProgramError      exit 3   `dpaudit prove` cannot follow the program
    ├── SamplerError             exit 3   the closed sampler failed
    │   ├── SamplerCrashError             it raised, or its process died
    │   ├── SamplerTimeoutError           it did not answer before the time limit
    │   └── SamplerOutputError            wrong shape, NaN, too little, too much
    │       └── NotNumbersError           text, None, a dict …: no numbers at all
    └── ProtocolError            exit 3   a networked mitigation refused a party or its message
        ├── PeerError                     it died, did not respond, or is not who it should be
        ├── MessageError                  malformed, misplaced, not finite or too large
        └── CheatingError        exit 1   a proof, an opening or a transcript does not hold
"""

from __future__ import annotations

__all__ = [
    "CheatingError",
    "DpauditError",
    "DuplicatePluginError",
    "KeyFileError",
    "MessageError",
    "MissingExtraError",
    "NotNumbersError",
    "PeerError",
    "ProtocolError",
    "RefusedProgramError",
    "SamplerCrashError",
    "SamplerError",
    "SamplerOutputError",
    "SamplerTimeoutError",
    "SpecError",
    "StoreError",
    "UnknownNameError",
    "UsageError",
]


class DpauditError(Exception):
    """Root of all deliberate errors; ``exit_code`` is what the command line returns."""

    exit_code = 4


class UsageError(DpauditError, ValueError):
    """Bad input: the message says ``name=value``, the rule and the fix."""

    exit_code = 2


class UnknownNameError(UsageError):
    """No plug-in, field or option of that name."""


class DuplicatePluginError(UsageError):
    """Two installed distributions register the same plug-in name."""


class MissingExtraError(UsageError):
    """A feature needs an optional dependency that is not installed."""


class KeyFileError(UsageError):
    """A key file is unreadable, has open permissions or a broken field."""


class SpecError(UsageError):
    """An experiment specification has an unknown key, a wrong type or an empty grid."""


class StoreError(UsageError):
    """A result folder is missing, belongs to another experiment or already holds a run."""


class RefusedProgramError(DpauditError):
    """A program uses what `dpaudit prove` cannot capture; the message names it."""

    exit_code = 3


class SamplerError(DpauditError):
    """The closed sampler could not be audited; the verdict is *inconclusive*."""

    exit_code = 3


class SamplerCrashError(SamplerError):
    """The sampler raised, or its process ended early."""


class SamplerTimeoutError(SamplerError):
    """The sampler did not answer before the time limit."""


class SamplerOutputError(SamplerError):
    """The sampler's answer has the wrong shape, is not finite, or is too short or too long."""


class NotNumbersError(SamplerOutputError):
    """The sampler's answer is no array of real numbers at all."""


class ProtocolError(DpauditError):
    """Another party of a protocol, or what it sent, was refused."""

    exit_code = 3


class PeerError(ProtocolError):
    """The other party died, did not respond in time, or is not who it should be."""


class MessageError(ProtocolError):
    """A message is truncated, repeated, misplaced, of another shape, not finite or too large."""


class CheatingError(ProtocolError):
    """A proof, an opening or a transcript does not hold: a party did not follow the protocol."""

    exit_code = 1
