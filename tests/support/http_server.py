"""An HTTP server on 127.0.0.1 that answers requests for noise as a test says."""

from __future__ import annotations

import contextlib
import json
import socketserver
import threading

import numpy as np
import pytest

from dpaudit.protocols import Request
from dpaudit.targets.endpoints.http import HttpTarget

OK = "HTTP/1.1 200 OK\r\n"
LATEST = 15.0  # seconds: an answer within a time limit comes long before, on a busy machine too


def body(n, d):
    return np.arange(n * d, dtype="<f8").tobytes()


def answer(content, head=OK):
    return f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content


class Server(socketserver.ThreadingTCPServer):
    """Calls ``behave(send, n, d, server)`` for each request; True keeps the connection."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, behave, context=None):
        self.behave, self.context = behave, context
        self.connections, self.requests = 0, []
        self.stop = threading.Event()
        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def host(self):
        return f"127.0.0.1:{self.server_address[1]}"

    def get_request(self):
        connected, address = super().get_request()
        self.connections += 1
        if self.context is not None:
            connected.settimeout(20)
            connected = self.context.wrap_socket(connected, server_side=True)
        return connected, address

    def handle_error(self, *_):
        pass


class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        with contextlib.suppress(OSError):
            while True:
                head = {}
                first = self.rfile.readline().decode().split()
                while line := self.rfile.readline().decode().strip():
                    name, _, value = line.partition(": ")
                    head[name.lower()] = value
                if not first:
                    return
                asked = json.loads(self.rfile.read(int(head["content-length"])))
                self.server.requests.append((first[0], first[1], head, asked))
                # noise is asked for with d, releases with a value or a data set
                about = next(asked[name] for name in ("d", "value", "dataset") if name in asked)
                if not self.server.behave(self.send, asked["n"], about, self.server):
                    return

    def send(self, *parts):
        for part in parts:
            self.connection.sendall(part.encode() if isinstance(part, str) else part)


@pytest.fixture
def serve():
    """``serve(behave)`` → a server on 127.0.0.1 that answers so."""
    with contextlib.ExitStack() as stack:

        def start(behave, context=None):
            server = stack.enter_context(Server(behave, context))
            run = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
            run.start()
            stack.callback(server.shutdown)
            stack.callback(server.stop.set)
            return server

        yield start


def honest(send, n, d, _):
    send(answer(body(n, d)))
    return True


def sampler_of(server, path="/noise", **options):
    return HttpTarget(f"//{server.host}{path}", seed="1", **options)


def draw(server, n=4, d=2, timeout=20.0, **options):
    with sampler_of(server, **options).open(timeout=60) as sampler:
        return sampler.ask(Request(n, d), timeout=timeout).values
