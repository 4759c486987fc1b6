"""The wire between a gateway and Postgres, with a hand on it: a COMMIT can be held back on its way there, or its answer on the way back.

Real bytes between two real programs; a proxy is the only place from which "between COMMIT and answer" can be seen.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Literal
from urllib.parse import parse_qs, urlsplit

COMMIT = b"COMMIT;"


class Wire:
    def __init__(self) -> None:
        self.server_url = ""
        self.hold: Literal["", "request", "answer"] = ""
        self.held = asyncio.Event()
        """A COMMIT has come while `hold` was set."""
        self.stack = AsyncExitStack()
        """What ends before the wire does."""
        self._release = asyncio.Event()
        self._port = 0
        self._tasks: set[asyncio.Task[None]] = set()

    @classmethod
    @asynccontextmanager
    async def to(cls, server_url: str) -> AsyncIterator["Wire"]:
        wire = cls()
        wire.server_url = server_url
        listener = await asyncio.start_server(wire._connected, "127.0.0.1", 0)
        wire._port = listener.sockets[0].getsockname()[1]
        try:
            yield wire
        finally:
            await wire.stack.aclose()
            listener.close()
            for task in wire._tasks:
                task.cancel()
            await asyncio.gather(*wire._tasks, return_exceptions=True)

    @property
    def url(self) -> str:
        """Where Postgres seems to be."""
        parts = urlsplit(self.server_url)
        return f"postgresql://suture@127.0.0.1:{self._port}{parts.path}"

    def go_on(self) -> None:
        self.hold = ""
        self._release.set()

    async def _connected(self, near: asyncio.StreamReader, near_out: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._join(near, near_out))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _join(self, near: asyncio.StreamReader, near_out: asyncio.StreamWriter) -> None:
        query = parse_qs(urlsplit(self.server_url).query)
        async with _closing(near_out):
            with suppress(OSError):  # Postgres is away
                far, far_out = await asyncio.open_unix_connection(f"{query['host'][0]}/.s.PGSQL.{query['port'][0]}")
                async with _closing(far_out):
                    await self._pump(near, near_out, far, far_out)

    async def _pump(
        self, near: asyncio.StreamReader, near_out: asyncio.StreamWriter, far: asyncio.StreamReader, far_out: asyncio.StreamWriter
    ) -> None:
        """Carry bytes both ways until one end closes."""
        open_back = asyncio.Event()
        open_back.set()
        pumps = [asyncio.create_task(self._there(near, far_out, open_back)), asyncio.create_task(self._back(far, near_out, open_back))]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    async def _there(self, near: asyncio.StreamReader, far_out: asyncio.StreamWriter, open_back: asyncio.Event) -> None:
        while data := await near.read(1 << 16):
            if self.hold and COMMIT in data:
                if self.hold == "answer":
                    open_back.clear()
                self.held.set()
                if self.hold == "request":
                    await self._release.wait()
            far_out.write(data)
            await far_out.drain()

    async def _back(self, far: asyncio.StreamReader, near_out: asyncio.StreamWriter, open_back: asyncio.Event) -> None:
        while data := await far.read(1 << 16):
            await open_back.wait()
            near_out.write(data)
            await near_out.drain()


@asynccontextmanager
async def _closing(writer: asyncio.StreamWriter) -> AsyncIterator[None]:
    try:
        yield
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
