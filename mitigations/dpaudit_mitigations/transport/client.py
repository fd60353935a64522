"""Calls another party's server: mutual TLS 1.3, the server's name checked first, waits bounded."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator
from typing import Any

from dpaudit.errors import MessageError, PeerError, ProtocolError, UsageError
from dpaudit_mitigations.transport import wire
from dpaudit_mitigations.transport.certificates import Identity, dns_name
from dpaudit_mitigations.transport.wire import TICK, Pump, Silence, clean, grpc

__all__ = ["ask", "call"]


def call(
    address: str,
    method: str,
    messages: Iterable[bytes],
    *,
    identity: Identity,
    peer: str,
    timeout: float,
    idle: float = 10.0,
    message_limit: int = 4 << 20,
) -> Iterator[bytes]:
    """Send ``messages`` to ``method`` of ``peer`` at ``address``; yield its answers as they arrive.

    The call starts at the first ``next``. ``messages`` (none of them empty) is iterated in another
    thread, and may itself wait for answers; what it raises is raised here. ``timeout`` bounds the
    whole call in seconds; ``idle`` the time in which no message is sent and no answer arrives (the
    time that ``messages`` takes to make its next one does not count).

    Raises:
        PeerError: nobody there, not ``peer``, refuses our certificate, dead, timed out, too busy.
        ProtocolError: what the server raised, in its class (``MessageError``, ``CheatingError``,
            …).
        UsageError: an argument is not valid.
    """
    wire.check_address(address)
    if not method.isidentifier():
        raise UsageError(f"method={clean(method)}: must be an identifier")
    if not (idle > 0 and 0 < timeout < 1e6):
        raise UsageError(
            f"timeout={timeout:g}, idle={idle:g}: must be positive seconds, timeout < 1e6"
        )
    options = [
        *wire.options(message_limit),
        ("grpc.ssl_target_name_override", dns_name(peer)),
    ]

    def answers() -> Iterator[bytes]:
        who = f"{peer} at {clean(address, 100)}"
        credentials = grpc.ssl_channel_credentials(
            identity.authority, identity.key, identity.certificate
        )
        sending = _Sending(messages)
        with grpc.secure_channel(address, credentials, options=options) as channel:
            rpc = channel.stream_stream(f"/{wire.SERVICE}/{method}")(sending, timeout=timeout)
            sending.runs(rpc)
            pump = Pump(
                rpc, too_long=lambda waited: sending.still() >= idle <= waited, tick=min(TICK, idle)
            )
            try:
                yield from pump
            except Silence:
                raise PeerError(f"{who}: silent for {idle:g} s") from None
            except grpc.RpcError as error:
                if sending.error is not None:
                    raise sending.error from None
                raise _refusal(error, who, timeout) from None
            finally:
                rpc.cancel()
                pump.close()
            if sending.error is not None:
                raise sending.error

    return answers()


def ask(address: str, method: str, messages: Iterable[bytes], **options: Any) -> bytes:
    """:func:`call` for exactly one answer.

    Raises:
        MessageError: no answer, or more than one.
        ProtocolError: as for :func:`call`.
    """
    answers = list(itertools.islice(call(address, method, messages, **options), 2))
    if len(answers) != 1:
        raise MessageError(f"{method}: {'more than one' if answers else 'no'} answer, not one")
    return answers[0]


class _Sending:
    """Our outgoing messages: holds the error in making them, and since when none was sent."""

    def __init__(self, messages: Iterable[bytes]) -> None:
        self._source = iter(messages)
        self._since: float | None = time.monotonic()  # None while the next message is being made
        self._ended = False
        self.error: Exception | None = None
        self._rpc: Any = None

    def runs(self, rpc: Any) -> None:
        """Attach the call that these messages are for; it may have taken some already."""
        self._rpc = rpc
        if self.error is not None:
            rpc.cancel()

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        if self._ended:
            raise StopIteration
        self._since = None
        try:
            message = next(self._source, None)
            if message is None:
                self._ended = True
                return wire.END
            if not message:
                raise UsageError("message of 0 bytes: it would mean the end of the stream")
            return message
        except Exception as error:  # noqa: BLE001  raised again where the answers are read
            self.error = error
            if self._rpc is not None:
                self._rpc.cancel()
            raise StopIteration from None
        finally:
            self._since = time.monotonic()

    def still(self) -> float:
        """Seconds in which the other side could have received a message from us and did not."""
        since = self._since
        return 0.0 if since is None else time.monotonic() - since


def _refusal(error: Any, who: str, timeout: float) -> ProtocolError:
    code, details = error.code(), clean(error.details() or "")
    named = dict(error.trailing_metadata() or ()).get(wire.ERROR_KEY)
    if isinstance(named, str) and named in wire.ERRORS:
        return wire.ERRORS[named](f"{who} says: {details}")
    if code is grpc.StatusCode.UNAVAILABLE:
        return PeerError(f"{who}: {_why_unavailable(details)}")
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return PeerError(f"{who}: not done within {timeout:g} s")
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED and "larger than max" in details:
        return MessageError(f"{who}: a message larger than the limit")
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        return PeerError(f"{who}: too many calls at a time; try again later")
    return PeerError(f"{who}: disconnected ({code.name.lower()})")


def _why_unavailable(details: str) -> str:
    low = details.lower()
    if "hostname verification" in low or "peer name" in low:
        return "its certificate is not that party's"
    if "handshake" in low or "certificate" in low or "ssl" in low:
        return (
            "no TLS handshake: a certificate of another authority, expired or missing, or no "
            "TLS 1.3 there"
        )
    if "refused" in low:
        return "nobody listens there"
    if "failed to connect" in low and "socket closed" in low:
        return "closed the connection at once: it refuses our certificate, or has no TLS"
    return f"cannot be reached, or died ({details})"
