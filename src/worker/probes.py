"""The kubelet's questions: /healthz while the process works, /readyz while it also takes work. A few lines of HTTP, no framework."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from suture.errors import ConfigError

_LINE_LIMIT = 2048  # bytes of a request line; a probe sends about thirty


@asynccontextmanager
async def probes(address: str, *, ready: Callable[[], bool]) -> AsyncIterator[None]:
    """Serve the probes at `address` (host:port; empty: not at all) for the time of the block.

    Raises: ConfigError when the address is not to be had.
    """
    if not address:
        yield
        return
    host, _, port = address.rpartition(":")

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(5):
                line = await reader.readline()
                writer.write(_response(line, ready()))
                await writer.drain()
        except (OSError, TimeoutError, ValueError):
            pass  # whoever asks badly, or goes before the answer, gets none
        finally:
            writer.close()

    try:
        server = await asyncio.start_server(answer, host or None, int(port), limit=_LINE_LIMIT)
    except (OSError, ValueError, OverflowError) as error:
        raise ConfigError(f"The probes cannot listen on {address!r} ({error}): set SUTURE_WORKER_HEALTH_ADDRESS to HOST:PORT.") from None
    async with server:
        yield


def _response(line: bytes, ready: bool) -> bytes:  # noqa: FBT001 (the answer itself)
    path = [*line.split(), b"", b""][1]
    status = {b"/healthz": "200 OK", b"/readyz": "200 OK" if ready else "503 Service Unavailable"}.get(path, "404 Not Found")
    body = f"{status[4:]}\n"
    return (f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}").encode()
