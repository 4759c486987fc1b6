"""A bad network: a TCP proxy on loopback in a process of its own, one port a worker, each of which can be cut and black-holed.

`python -m tests.proof.proxy SOCKET COUNT` prints its ports and obeys lines of its standard input: `cut N` ends all connections of port N;
`hole N` lets nothing pass any more, neither way, while connections stay open and new ones are taken; `heal N` delivers what was held back;
`reset N` ends what was in the hole instead. Ends with its input.
"""

import asyncio
import contextlib
import sys
from dataclasses import dataclass, field

_CHUNK = 1 << 16


@dataclass(eq=False)
class Port:
    """One worker's way to Postgres."""

    socket: str
    open: asyncio.Event = field(default_factory=asyncio.Event)
    writers: set[asyncio.StreamWriter] = field(default_factory=set)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.add(writer)
        ends = [writer]
        try:
            await self.open.wait()
            there, back = await asyncio.open_unix_connection(self.socket)
            self.writers.add(back)
            ends.append(back)
            ways = [asyncio.create_task(self._pass(reader, back)), asyncio.create_task(self._pass(there, writer))]
            _, left = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for way in left:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
        except OSError:
            pass  # Postgres is away, and the worker is told so by the end of its connection
        finally:
            for end in ends:
                self.writers.discard(end)
                end.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(_CHUNK):
                await self.open.wait()
                writer.write(data)
                await writer.drain()

    def cut(self) -> None:
        for writer in list(self.writers):
            writer.transport.abort()


async def main(socket: str, count: int) -> None:
    ports = [Port(socket) for _ in range(count)]
    servers = []
    for port in ports:
        port.open.set()
        servers.append(await asyncio.start_server(port.serve, "127.0.0.1", 0))
    print(*(server.sockets[0].getsockname()[1] for server in servers), flush=True)
    orders = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    while line := await orders.readline():
        verb, number = line.decode().split()
        _obey(ports[int(number)], verb)


def _obey(port: Port, verb: str) -> None:
    if verb in {"cut", "reset"}:
        port.cut()
    if verb == "hole":
        port.open.clear()
    if verb in {"heal", "reset"}:
        port.open.set()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
