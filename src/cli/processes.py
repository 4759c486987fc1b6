"""The long-running processes as commands: each reads the settings, sets up the log, and hands over to its `main`.

Every `main` is imported when it is chosen, so that a worker never loads kopf and a migration loads neither.
"""

import asyncio
import gc
import os
import signal
from collections.abc import Coroutine
from pathlib import Path
from typing import Annotated

import typer

from suture import telemetry
from suture.settings import Settings

commands = typer.Typer()

PROCESSES = "Processes"


def read_settings() -> Settings:
    """The settings of this process, with its log configured by them."""
    settings = Settings.read(os.environ)
    telemetry.configure(level=settings.log.level, format=settings.log.format)
    return settings


@commands.command(rich_help_panel=PROCESSES)
def worker() -> None:
    """Claim executions and run them, until SIGTERM."""
    from suture.worker.main import serve  # noqa: PLC0415

    _run(serve(read_settings()))


@commands.command(rich_help_panel=PROCESSES)
def api() -> None:
    """Serve tasks, webhooks, approvals, the console, health and metrics."""
    from suture.api.main import serve  # noqa: PLC0415

    _run(serve(read_settings()))


@commands.command(rich_help_panel=PROCESSES)
def operator() -> None:
    """Turn Task resources into rows and rows into status."""
    from suture.operator.main import serve  # noqa: PLC0415

    _run(serve(read_settings()))


@commands.command(rich_help_panel=PROCESSES)
def migrate(
    wait: Annotated[float, typer.Option(help="Seconds to wait for Postgres to answer.", metavar="SECONDS", min=0)] = 0,
) -> None:
    """Bring the database up to this version. Safe to run twice, and at the same time.

    Example: SUTURE_DATABASE_URL=postgresql://suture@db/suture suture migrate --wait 60
    """
    from suture.cli.migration import bring_up  # noqa: PLC0415

    for name in asyncio.run(bring_up(read_settings().database.url.get_secret_value(), wait=wait)):
        typer.echo(f"applied {name}")
    typer.echo("The database is current.")


@commands.command(rich_help_panel=PROCESSES)
def postgres(
    data: Annotated[Path, typer.Option(help="Folder that keeps the database.", metavar="FOLDER")],
    listen: Annotated[str, typer.Option(help="Where to listen for TCP; a password is then needed.", metavar="HOST:PORT")] = "",
    password_file: Annotated[Path | None, typer.Option(help="File with the password of the role `suture`.", metavar="FILE")] = None,
) -> None:
    """Run the embedded Postgres alone, for a trial: one server, no replica, no backup.

    Example: suture postgres --data /var/lib/suture --listen 127.0.0.1:5432 --password-file /run/secrets/password
    """
    from suture.cli.trial import serve  # noqa: PLC0415

    asyncio.run(serve(data, listen=listen, password_file=password_file))


def _run(serving: Coroutine[None, None, None]) -> None:
    # What was imported stays for good, and executions and requests are short: the default looks for cycles after every 700 new objects,
    # which is a tenth of a busy worker's time, and looks through all of them now and then, for 10 to 20 ms in which nothing else happens.
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    asyncio.run(serving)


def stop_signal() -> asyncio.Event:
    """An event that SIGTERM and SIGINT set."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop
