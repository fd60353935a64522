"""A server for a protocol's other parties: gRPC over mutual TLS 1.3, names checked, bounded."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from dpaudit.errors import UsageError
from dpaudit_mitigations.transport import wire
from dpaudit_mitigations.transport.calls import Calls, Handler, Limits
from dpaudit_mitigations.transport.certificates import Identity, check_party
from dpaudit_mitigations.transport.logs import Log, clean, logger
from dpaudit_mitigations.transport.wire import grpc

__all__ = ["Handler", "Limits", "Server", "serve"]

_SPARE = 4  # threads that refuse callers beyond the limit
_DEFAULT = Limits()


def serve(
    handlers: Mapping[str, Handler],
    *,
    identity: Identity,
    peers: Collection[str],
    address: str = "127.0.0.1:0",
    limits: Limits = _DEFAULT,
    log: Log | None = None,
) -> Server:
    """Start serving ``handlers`` (by method name) to the parties in ``peers`` only.

    Formal guarantee (under TLS 1.3, if keys stay secret): a handler runs only for a caller that
    holds the key of a certificate signed by ``identity.authority`` for one of the names in
    ``peers``.

    Every call leaves one line in ``log``. A failed handshake never becomes a call: gRPC itself
    reports it on stderr, in its own format (``Handshake failed with error …``).

    Raises:
        UsageError: the address cannot be used, or another argument is not valid.
    """
    wire.check_address(address)
    for name in handlers:
        if not name.isidentifier():
            raise UsageError(f"method={clean(name)}: must be an identifier")
    if not peers:
        raise UsageError("peers=[]: nobody could call; give a peer")
    allowed = frozenset(map(check_party, peers))
    calls = Calls(dict(handlers), allowed, limits, log or logger(identity.name))
    return Server(calls, identity, address, limits)


class Server:
    """A running server at ``address``. Use as a context manager, or call :meth:`stop`."""

    def __init__(self, calls: Calls, identity: Identity, address: str, limits: Limits) -> None:
        """Use :func:`serve`."""
        self._calls, concurrent = calls, limits.concurrent
        self._pool = ThreadPoolExecutor(concurrent + _SPARE, thread_name_prefix="dpaudit-call")
        self._server = grpc.server(
            self._pool,
            handlers=(_Methods(calls),),
            maximum_concurrent_rpcs=concurrent + _SPARE,
            options=[
                *wire.options(limits.message),
                ("grpc.max_concurrent_streams", concurrent + _SPARE),
                ("grpc.server_handshake_timeout_ms", 10_000),
                ("grpc.max_connection_idle_ms", 300_000),
            ],
        )
        credentials = grpc.ssl_server_credentials(
            [(identity.key, identity.certificate)],
            root_certificates=identity.authority,
            require_client_auth=True,
        )
        host = address.rpartition(":")[0]
        try:
            port = self._server.add_secure_port(address, credentials)
        except RuntimeError as error:
            calls.stopping.set()
            self._pool.shutdown(wait=False)
            raise UsageError(f"address={address}: cannot listen there; use port 0") from error
        self.address = f"{host}:{port}"
        self._server.start()
        versions = (
            "TLS 1.3 only"
            if wire.only_tls13
            else "TLS 1.3 or 1.2 (gRPC was imported before dpaudit)"
        )
        calls.log(
            "started",
            reason=f"listens on {self.address} for {', '.join(sorted(calls.peers))}, {versions}",
        )

    def stop(self, grace: float = 1.0) -> None:
        """Refuse new calls, give running ones ``grace`` seconds, then abort them.

        Returns when no handler runs, or ten seconds after ``grace`` if one does not stop. May be
        called repeatedly.
        """
        if self._calls.stopping.is_set():
            return
        self._calls.stopping.set()
        self._server.stop(grace).wait(grace + 5)
        closing = threading.Thread(
            target=self._pool.shutdown, kwargs={"cancel_futures": True}, daemon=True
        )
        closing.start()
        closing.join(5)
        self._calls.log("stopped")

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the server has stopped; return whether it has."""
        return not self._server.wait_for_termination(timeout)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()


class _Methods(grpc.GenericRpcHandler):  # type: ignore[misc]
    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def service(self, handler_call_details: Any) -> Any:
        method = str(handler_call_details.method).removeprefix(f"/{wire.SERVICE}/")
        return grpc.stream_stream_rpc_method_handler(
            lambda request, context: self._calls.run(method, request, context)
        )
