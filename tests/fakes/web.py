"""A small real web server on loopback that answers as it is told and remembers what it saw."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Seen:
    """One request."""

    method: str
    path: str
    headers: dict[str, str]
    """By lower-case name."""
    body: bytes


@dataclass
class Answer:
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    drip: float = 0
    """Seconds between two bytes of the body."""
    hold: threading.Event | None = None
    """The answer waits for it."""
    cut: bool = False
    """End the connection in place of an answer."""
    head_only: bool = False
    """Claim a body of `Content-Length` that never comes."""


class Web:
    """`answers` holds, by path, what is answered to the first, second … request; the last one stays."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.seen: list[Seen] = []
        self.answers: dict[str, list[Answer]] = {}
        self.sent = 0
        """Bytes of bodies that were taken from us."""
        self.over = threading.Event()

    def says(self, path: str, *answers: Answer) -> str:
        """Answer so; the address."""
        self.answers[path] = list(answers)
        return f"{self.url}{path}"

    def says_json(self, path: str, value: Any) -> str:
        return self.says(path, Answer(headers={"Content-Type": "application/json"}, body=json.dumps(value).encode()))

    def at(self, path: str) -> list[Seen]:
        return [seen for seen in self.seen if seen.path == path]

    def next(self, path: str) -> Answer:
        told = self.answers.get(path) or self.answers.get(path.partition("?")[0]) or [Answer(404, body=b"nothing is here")]
        return told.pop(0) if len(told) > 1 else told[0]


@contextmanager
def web() -> Iterator[Web]:
    """A server for the time of the block."""
    handler: Callable[..., BaseHTTPRequestHandler] = lambda *a: Handler(made, *a)  # noqa: E731
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    made = Web(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        made.over.set()
        server.shutdown()
        thread.join()
        server.server_close()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, web: Web, *arguments: Any) -> None:
        self.web = web
        super().__init__(*arguments)

    def handle_one_request(self) -> None:
        with suppress(OSError):  # whoever called may be dead
            super().handle_one_request()

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.web.seen.append(Seen(self.command, self.path, {k.lower(): v for k, v in self.headers.items()}, body))
        answer = self.web.next(self.path)
        self.close_connection = True
        if answer.hold is not None:
            while not (answer.hold.wait(0.05) or self.web.over.is_set()):
                pass
        if answer.cut:
            return
        self.send_response(answer.status)
        headers = {"Content-Length": str(len(answer.body))} | answer.headers | {"Connection": "close"}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if answer.head_only:
            self.web.over.wait(30)
            return
        self._send(answer)

    def _send(self, answer: Answer) -> None:
        for part in _parts(answer):
            self.wfile.write(part)
            self.web.sent += len(part)
            if answer.drip and self.web.over.wait(answer.drip):
                return


for _method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
    setattr(Handler, f"do_{_method}", Handler._answer)


def _parts(answer: Answer) -> Iterator[bytes]:
    size = 1 if answer.drip else 64 << 10
    return (answer.body[at : at + size] for at in range(0, len(answer.body), size))
