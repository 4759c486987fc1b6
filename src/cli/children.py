"""Child processes of `suture dev` and `suture demo`: the same commands that a cluster runs, each a real process that never outlives us."""

import asyncio
import contextlib
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from suture.cli import leash
from suture.errors import SutureError

_PATIENCE = 8.0  # seconds for a clean stop; then it is killed


@asynccontextmanager
async def child(command: str, *, environ: Mapping[str, str], log: Path) -> AsyncIterator[Process]:
    """`suture COMMAND` as a process of its own, for the time of the block; what it says goes to `log`."""
    process = await start(command, environ=environ, log=log)
    try:
        yield process
    finally:
        await stop(process)


async def start(command: str, *, environ: Mapping[str, str], log: Path) -> Process:
    """Start `suture COMMAND`, tied to this process: the kernel kills it when we die, whatever we die of.

    In a session of its own: Ctrl-C reaches us alone, and we end the children in their order.
    """
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("SUTURE_")}
    tied = (sys.executable, "-I", "-S", leash.__file__, str(os.getpid()), str(int(signal.SIGKILL)), str(os.geteuid()), str(os.getegid()))
    with log.open("ab") as out:
        return await asyncio.create_subprocess_exec(
            *(*tied, sys.executable, "-m", "suture", command),
            stdin=DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
            env={**inherited, "PYTHONSAFEPATH": "1", **environ},
        )


async def stop(process: Process) -> None:
    """SIGTERM, and SIGKILL for what does not listen; a process that a person stopped with SIGSTOP is woken first."""
    for number, patience in ((signal.SIGTERM, _PATIENCE), (signal.SIGKILL, 5.0)):
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(number)
            process.send_signal(signal.SIGCONT)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), patience)
            return


def alive(process: Process, *, what: str, log: Path) -> None:
    """Raises: SutureError with the last lines of its log, when the process has ended."""
    if process.returncode is not None:
        last = " / ".join(log.read_text(errors="replace").strip().splitlines()[-3:])
        raise SutureError(f"{what} ended with code {process.returncode}: {last or 'it said nothing'}")
