"""A TCP proxy that can be cut, and that can swallow: open connections then carry nothing, as behind a load balancer that forgot them."""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from tests.cluster.apiserver import free_ports


class Wire:
    """Forwards a port of loopback to the server at `url`."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._target = (parts.hostname or "127.0.0.1", parts.port or 443)
        self._door = socket.create_server(("127.0.0.1", free_ports(1)[0]))
        self._open: list[socket.socket] = []
        self._silenced: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._port = self._door.getsockname()[1]
        self.url = f"{parts.scheme}://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        self._begin(self._accept)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._close()

    def _close(self) -> None:
        for one in (self._door, *self._open):  # a shutdown wakes the thread that waits on it, a close alone does not
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for thread in list(self._threads):
            thread.join(timeout=10)
        for one in (self._door, *self._open):
            one.close()

    def cut(self) -> None:
        """End all connections and refuse new ones."""
        self._close()

    def mend(self) -> None:
        """Let connections through again, at the same port."""
        self._door, self._open, self._threads = socket.create_server(("127.0.0.1", self._port)), [], []
        self._begin(self._accept)

    def silence(self) -> None:
        """From now on, what comes on the connections that are open is dropped."""
        self._silenced.update(self._open)

    def _begin(self, work: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._door.accept()
                self._open.append(near)
                far = socket.create_connection(self._target)
                self._open.append(far)
                self._begin(self._carry, near, far)
                self._begin(self._carry, far, near)

    def _carry(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                if source not in self._silenced:
                    sink.sendall(data)
        if source not in self._silenced:
            with suppress(OSError):
                sink.shutdown(socket.SHUT_WR)
