"""Processes for the tests to kill: a server, a client, or a writer of a journal."""

from __future__ import annotations

import sys
import time
from pathlib import Path


def server(folder: str) -> None:
    """Answers the first message with another and then keeps quiet; prints its address."""
    from dpaudit_mitigations.transport.certificates import load_identity
    from dpaudit_mitigations.transport.server import serve

    def half(peer, request):
        yield next(request)
        time.sleep(60)

    with serve({"half": half}, identity=load_identity(Path(folder)), peers=["answer"]) as running:
        print(running.address, flush=True)
        time.sleep(60)


def client(folder: str, address: str) -> None:
    """Sends messages for ever; prints a line for each answer."""
    from dpaudit_mitigations.transport.certificates import load_identity
    from dpaudit_mitigations.transport.connection import call

    def endless():
        while True:
            yield b"x" * 100_000
            time.sleep(0.01)

    identity = load_identity(Path(folder))
    for _ in call(address, "echo", endless(), identity=identity, peer="noise", timeout=60):
        print("answer", flush=True)


def journal(path: str) -> None:
    """Move every release on from its state, one by one, with a file written before ``stored``."""
    from dpaudit_mitigations.transport.journal import Journal, durable_write

    states = [None, "offered", "stored", "published"]
    with Journal(Path(path), kind="test") as book:
        print("open", flush=True)
        for number in range(1_000_000):
            release = f"r{number}"
            while (state := book.state(release)) != "published":
                new = states[states.index(state) + 1]
                if new == "stored":
                    durable_write(Path(path).with_name(release), release.encode() * 50)
                book.advance(release, state, new, **{f"when_{new}": number})
                print(release, new, flush=True)


def tls12(address: str, cert: str, key: str, authority: str) -> None:
    """A TLS 1.2 handshake as another program would try it; prints what became of it."""
    import socket
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(authority)
    context.load_cert_chain(cert, key)
    context.set_alpn_protocols(["h2"])
    host, port = address.split(":")
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        context.minimum_version = context.maximum_version = version
        with socket.create_connection((host, int(port)), timeout=10) as plain:
            try:
                with context.wrap_socket(plain, server_hostname="noise.dpaudit.internal") as secure:
                    print(secure.version())
            except OSError:
                print("refused")


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
