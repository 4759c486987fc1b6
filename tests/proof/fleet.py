"""A fleet of worker processes: started, signalled, ended by their process ids. See `worker` for what they do."""

import asyncio
import os
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.nursery import Nursery, nursery
from tests.proof.worker import Orders

FAKETIME = tuple(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))


@dataclass(eq=False)
class Worker:
    """One process life."""

    name: str
    pid: int
    clock: Path
    handle: int
    """A pidfd: it names this process alone, even when its number has gone to another."""

    @property
    def alive(self) -> bool:
        return self.signal(0)

    def signal(self, number: int) -> bool:
        """Whether it was there to hear it."""
        try:
            signal.pidfd_send_signal(self.handle, number)
        except ProcessLookupError:
            return False
        return True

    async def gone(self, *, within: float = 10.0) -> bool:
        end = time.monotonic() + within
        while self.alive and time.monotonic() < end:
            await asyncio.sleep(0.02)
        return not self.alive

    def set_clock(self, seconds: int) -> None:
        """Make the worker's clock wrong by so much, from now on."""
        new = self.clock.with_suffix(".new")
        new.write_text(f"{seconds:+d}s\n")
        new.rename(self.clock)


class Fleet:
    def __init__(self, nursery: Nursery, world: Path) -> None:
        self._nursery, self.world = nursery, world
        self.started: list[Worker] = []

    def start(self, *, url: str, name: str, **options: Any) -> Worker:
        clock = self.world / f"clock-{name}"
        clock.write_text("+0s\n")
        orders = Orders(**({"url": url, "world": str(self.world), "name": name, "clock": str(clock)} | options))
        pid = self._nursery.fork(orders)
        worker = Worker(name, pid, clock, os.pidfd_open(pid))
        self.started.append(worker)
        return worker

    def log(self, worker: Worker) -> str:
        return (self.world / f"log-{worker.pid}").read_text()


@contextmanager
def fleet(world: Path) -> Iterator[Fleet]:
    """Every worker that was started has ended when the block has."""
    world.mkdir(exist_ok=True)
    (world / "acts").mkdir(exist_ok=True)
    with nursery("tests.proof.worker", env=_wrong_clocks(world)) as forks:
        made = Fleet(forks, world)
        try:
            yield made
        finally:
            for worker in made.started:
                worker.signal(signal.SIGKILL)
                os.close(worker.handle)


def _wrong_clocks(world: Path) -> dict[str, str]:
    """libfaketime, where Debian's `faketime` is installed: the wall clock of each worker is what a file says; the monotonic one is true."""
    if not FAKETIME:
        return {}
    (world / "clock").write_text("+0s\n")
    return {
        "LD_PRELOAD": str(FAKETIME[0]),
        "FAKETIME_TIMESTAMP_FILE": str(world / "clock"),
        "FAKETIME_CACHE_DURATION": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
        "FAKETIME_DISABLE_SHM": "1",
    }


def forget(world: Path) -> None:
    shutil.rmtree(world, ignore_errors=True)
