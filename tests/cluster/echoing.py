"""Small workflows, offered through the entry point as a team's image would offer its own, and a worker that runs them.

`main` serves SUTURE_DATABASE_URL until SIGTERM.
"""

import asyncio
import os
import signal
from datetime import timedelta
from typing import Any

from pydantic import BaseModel

from suture.engine import Database, Lease, Run, Runner, Workflows, workflow
from suture.errors import PermanentError
from suture.remediation.incident import APPROVAL


class Words(BaseModel):
    text: str


@workflow("echo")
async def echo(run: Run, words: Words) -> str:
    return await run.step("say", say, words.text)


async def say(text: str) -> str:
    return text


@workflow("hold")
async def hold(run: Run, words: Words) -> str:
    """Waits as a row for the event `release`."""
    await run.step("say", say, words.text)
    await run.wait("hold", dict, event="release")
    return words.text


@workflow("spin")
async def spin(run: Run, _: Words) -> None:
    """Runs in a worker until it is cancelled."""
    await run.step("spin", asyncio.Event().wait)


@workflow("stubborn")
async def stubborn(run: Run, _: Words) -> None:
    """Is not cancelled by asking."""
    await run.step("spin", refuse_to_end)


async def refuse_to_end() -> None:
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            continue


@workflow("fail")
async def fail(run: Run, words: Words) -> None:
    await run.step("break", raise_it, words.text)


async def raise_it(text: str) -> None:
    raise PermanentError(text)


@workflow("ask")
async def ask(run: Run, words: Words) -> str:
    """Waits for a person, as a remediation does."""
    decision = await run.wait(APPROVAL, dict)
    return f"{words.text}: {decision}"


async def serve(url: str) -> None:
    known = Workflows()
    for function in (echo, hold, spin, fail, ask, stubborn):
        known.add(function)
    async with Database.connect(url) as database:
        brisk: dict[str, Any] = {"poll": timedelta(milliseconds=200), "drain": timedelta(seconds=1)}
        runner = Runner(database, known, name="test", lease=Lease(timedelta(seconds=6), timedelta(seconds=1)), **brisk)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, runner.stop)
        await runner.run()


def main() -> None:
    asyncio.run(serve(os.environ["SUTURE_DATABASE_URL"]))
