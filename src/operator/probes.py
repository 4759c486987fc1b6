"""The kubelet's questions: /healthz while the looks at the rows go on, /readyz while they are answered. Beside them /metrics."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from suture.errors import ConfigError
from suture.operator.signs import MEDIA_TYPE


@asynccontextmanager
async def probes(
    address: str, *, healthy: Callable[[], bool], ready: Callable[[], bool], metrics: Callable[[], str]
) -> AsyncIterator[None]:
    """Serve the probes and the metrics at `address` (host:port; empty: not at all) for the time of the block.

    Raises: ConfigError when the address is not to be had.
    """
    if not address:
        yield
        return
    app = web.Application()
    app.add_routes([web.get("/healthz", _answer(healthy)), web.get("/readyz", _answer(ready)), web.get("/metrics", _tell(metrics))])
    runner = web.AppRunner(app, handle_signals=False, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await _listen(runner, address)
        yield
    finally:
        await runner.cleanup()


async def _listen(runner: web.AppRunner, address: str) -> None:
    host, _, port = address.rpartition(":")
    try:
        await web.TCPSite(runner, host.strip("[]") or None, int(port)).start()
    except (OSError, ValueError, OverflowError) as error:
        raise ConfigError(f"The probes cannot listen on {address!r} ({error}): set SUTURE_OPERATOR_HEALTH_ADDRESS to HOST:PORT.") from None


def _answer(holds: Callable[[], bool]) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(text="OK\n") if holds() else web.Response(status=503, text="Service Unavailable\n")

    return answer


def _tell(page: Callable[[], str]) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(text=page(), headers={"Content-Type": f"{MEDIA_TYPE}; charset=utf-8"})

    return answer
