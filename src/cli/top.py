"""`suture top`: the engine at work, live, on the whole screen. Looks every second; an outage is said and outlived. See `top_view`."""

import asyncio
import json
import os
import signal
import sys
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich.live import Live

from suture.cli.door import Look, open_door
from suture.cli.listing import AsJson, console
from suture.cli.top_view import view
from suture.errors import TemporaryError

commands = typer.Typer()

EVERY = 1.0  # second between two looks
PATIENCE = 5.0  # seconds for an answer; then it is said that there is none

Once = Annotated[bool, typer.Option("--once", help="Print one look and end, as without a terminal.")]


@commands.command(rich_help_panel="Engine")
def top(once: Once = False, as_json: AsJson = False) -> None:
    """Watch queues, workers and the longest running tasks, live. `q` or Ctrl-C quits.

    Three cheap statements a second, whatever the backlog. --json prints one look.

    Examples:
    suture top
    suture top --once
    suture top --json | jq '.queues[] | {name, due, oldestSeconds}'

    """
    if once or as_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        _print(asyncio.run(_look_once()), as_json)
    else:
        asyncio.run(_watch())


def _print(glance: Any, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(glance, indent=2))
    else:
        console(narrow=True).print(view(glance, height=1000, watched=False))


async def _look_once() -> Any:
    async with open_door().watching() as look:
        return await look()


async def _watch() -> None:
    stop = asyncio.Event()
    async with open_door().watching() as look:
        with _keys(stop), Live(console=console(), screen=True, auto_refresh=False) as live:
            await _refresh(look, live, stop)


async def _refresh(look: Look, live: Live, stop: asyncio.Event) -> None:
    glance, trouble, since = None, "", 0.0
    while not stop.is_set():
        begun = time.monotonic()
        try:
            glance = await _unless(stop, look)
            trouble = ""
        except (TemporaryError, TimeoutError) as error:
            since = since if trouble else begun
            trouble = f"away for {time.monotonic() - since:.0f} s: {error or 'no answer in time'}"
        if stop.is_set():
            return
        live.update(view(glance, height=live.console.size.height, trouble=trouble), refresh=True)
        await _nap(stop, EVERY - (time.monotonic() - begun))


async def _unless(stop: asyncio.Event, look: Look) -> Any:
    """The answer; a person who quits does not wait for it. Raises: TimeoutError."""
    asked, stopped = asyncio.ensure_future(look()), asyncio.ensure_future(stop.wait())
    try:
        done, _ = await asyncio.wait({asked, stopped}, timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopped.cancel()
        if not asked.done():
            asked.cancel()
    if asked in done:
        return asked.result()
    if stopped in done:
        return None
    raise TimeoutError


async def _nap(stop: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(max(seconds, 0.05)):
            await stop.wait()
    except TimeoutError:
        pass


@contextmanager
def _keys(stop: asyncio.Event) -> Iterator[None]:
    """Set `stop` at `q`, Ctrl-C or SIGTERM; the terminal is left as it was found, whatever happens."""
    loop, keyboard = asyncio.get_running_loop(), sys.stdin.fileno()
    before = termios.tcgetattr(keyboard)

    def typed() -> None:
        try:
            found = os.read(keyboard, 64)
        except OSError:  # the terminal is gone
            found = b""
        if b"q" in found.lower() or not found:
            stop.set()

    try:
        tty.setcbreak(keyboard)
        loop.add_reader(keyboard, typed)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, stop.set)
        yield
    finally:
        loop.remove_reader(keyboard)
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)
