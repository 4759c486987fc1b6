"""A server that greets as Postgres does and then refuses every login, with the error that it is given."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

_SSL_REQUEST = 80877103


@asynccontextmanager
async def refusing(sqlstate: str, message: str) -> AsyncIterator[str]:
    """Its host and port."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            length = int.from_bytes(await reader.readexactly(4))
            body = await reader.readexactly(length - 4)
            if int.from_bytes(body[:4]) != _SSL_REQUEST:
                break
            writer.write(b"N")
        fields = b"".join(kind + text.encode() + b"\0" for kind, text in ((b"S", "FATAL"), (b"C", sqlstate), (b"M", message))) + b"\0"
        writer.write(b"E" + (len(fields) + 4).to_bytes(4) + fields)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
