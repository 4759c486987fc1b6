"""The gateway's process: from settings to a server on a socket, and its orderly end. The one module here that reads settings.

On SIGTERM readiness turns 503 while requests are still served; then the socket closes, what is under way ends, the pool closes.
"""

import asyncio
import logging
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

import uvicorn
from fastapi import FastAPI
from pydantic import SecretStr

from suture.api.app import create_app
from suture.api.authentication import Tokens
from suture.api.gateway import Gateway
from suture.api.signatures import read_secrets
from suture.engine import Database, Engine, Workflows
from suture.errors import ConfigError, DatabaseUnavailable
from suture.remediation.records import Records
from suture.settings import ApiSettings, Settings

log = logging.getLogger(__name__)

FAREWELL = 3.0  # seconds of readiness 503 while still serving: until every kube-proxy has heard that this pod goes
LAST_WORDS = 10  # seconds for the requests under way; then they are cut


async def serve(settings: Settings, *, started: Callable[[str], None] | None = None) -> None:
    """Serve until SIGTERM or SIGINT, or until this task is cancelled; `started` hears the address once it answers.

    Raises: ConfigError for tokens, secrets or an address that cannot be used.
    """
    packages = ("suture.engine", "suture.remediation")
    async with Database.connect(
        settings.database.url.get_secret_value(), direct=_opened(settings.database.direct), size=settings.database.pool, packages=packages
    ) as database:
        app = application(Engine(database), Records(database), Workflows.discover(settings.workflows.modules), settings=settings.api)
        with listen(settings.api.address) as listener:
            looking = asyncio.create_task(_look(app.state.gateway))
            try:
                await run(app, listener, started=started)
            finally:
                looking.cancel()


async def _look(gateway: Gateway) -> None:
    """Say in the log what is wrong with the way to Postgres, before the first request finds out."""
    try:
        await gateway.engine.ping()
    except DatabaseUnavailable as error:
        gateway.lost(error)


def application(engine: Engine, records: Records, workflows: Workflows, *, settings: ApiSettings) -> FastAPI:
    """The gateway's application, as the settings want it.

    Raises: ConfigError.
    """
    if settings.tokens is None:
        log.warning("no tokens are configured: every door but probes and signed webhooks is closed. Set SUTURE_API_TOKENS")
    return create_app(
        engine,
        records,
        workflows,
        tokens=Tokens.read(_opened(settings.tokens)),
        pagerduty_secrets=read_secrets(_opened(settings.pagerduty_secret)),
        body_limit=settings.body_limit,
    )


def listen(address: str) -> socket.socket:
    """A listening socket on `HOST:PORT`; port 0 takes a free one.

    Raises: ConfigError.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise ConfigError(f"SUTURE_API_ADDRESS is {address!r}: write HOST:PORT, such as 127.0.0.1:8080 or [::]:8080")
    bare = host.removeprefix("[").removesuffix("]")
    family = socket.AF_INET6 if ":" in bare else socket.AF_INET
    try:
        return socket.create_server((bare, int(port)), family=family, backlog=512)
    except OSError as error:
        raise ConfigError(f"SUTURE_API_ADDRESS is {address!r}, where nobody can listen: {error.strerror or error}") from None


async def run(app: FastAPI, listener: socket.socket, *, farewell: float = FAREWELL, started: Callable[[str], None] | None = None) -> None:
    """Serve `app` on a socket until a signal, or until this task is cancelled; both end in the same order."""
    gateway: Gateway = app.state.gateway
    config = uvicorn.Config(
        app, log_config=None, access_log=False, server_header=False, lifespan="off", timeout_graceful_shutdown=LAST_WORDS
    )
    server = Server(config, gateway, farewell)
    serving = asyncio.create_task(server.serve([listener]))
    try:
        await _until_started(server, serving)
        address = "http://{}:{}".format(*_named(listener))
        log.info("the gateway listens", extra={"address": address})
        if started is not None:
            started(address)
        await asyncio.shield(serving)
    finally:
        server.should_exit = gateway.draining = True
        with suppress(asyncio.CancelledError):
            await serving


class Server(uvicorn.Server):
    """Says farewell before it stops to listen. A second signal stops it at once."""

    def __init__(self, config: uvicorn.Config, gateway: Gateway, farewell: float) -> None:
        super().__init__(config)
        self._gateway, self._farewell = gateway, farewell
        self._loop = asyncio.get_running_loop()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Not the parent's: it raises the signal again at the end, and an orderly stop would look like a kill."""
        self._loop.call_soon_threadsafe(self._drain, sig)

    def _drain(self, sig: int) -> None:
        if self._gateway.draining or sig == signal.SIGINT:  # a person at a terminal waits for no kube-proxy
            self._gateway.draining = self.should_exit = True
            return
        log.info("the gateway stops", extra={"signal": signal.Signals(sig).name})
        self._gateway.draining = True
        self._loop.call_later(self._farewell, self._stop)

    def _stop(self) -> None:
        self.should_exit = True


def _opened(secret: SecretStr | None) -> str | None:
    return None if secret is None else secret.get_secret_value()


async def _until_started(server: Server, serving: "asyncio.Task[None]") -> None:
    while not server.started and not serving.done():  # noqa: ASYNC110 (uvicorn has no event for it)
        await asyncio.sleep(0.01)


def _named(listener: socket.socket) -> tuple[str, int]:
    host, port = listener.getsockname()[:2]
    return (f"[{host}]" if ":" in host else host), port
