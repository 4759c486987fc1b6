"""A fleet of worker processes: started, signalled, ended by their process ids. See `worker` for what they do."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.proof.worker import Orders

ROOT = Path(__file__).resolve().parents[2]
FAKETIME = tuple(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))


@dataclass(eq=False)
class Worker:
    """One process life."""

    name: str
    pid: int
    clock: Path
    frozen: bool = False

    @property
    def alive(self) -> bool:
        return Path(f"/proc/{self.pid}").exists()

    def signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def set_clock(self, seconds: int) -> None:
        """Make the worker's clock wrong by so much, from now on."""
        new = self.clock.with_suffix(".new")
        new.write_text(f"{seconds:+d}s\n")
        new.rename(self.clock)


class Fleet:
    def __init__(self, nursery: "subprocess.Popen[str]", world: Path) -> None:
        self._nursery, self.world = nursery, world
        self.started: list[Worker] = []

    def start(self, *, url: str, name: str, **options: Any) -> Worker:
        clock = self.world / f"clock-{name}"
        clock.write_text("+0s\n")
        orders = Orders(**({"url": url, "world": str(self.world), "name": name, "clock": str(clock)} | options))
        assert self._nursery.stdin
        assert self._nursery.stdout
        self._nursery.stdin.write(json.dumps(asdict(orders)) + "\n")
        self._nursery.stdin.flush()
        worker = Worker(name, int(self._nursery.stdout.readline()), clock)
        self.started.append(worker)
        return worker

    def log(self, worker: Worker) -> str:
        return (self.world / f"log-{worker.name}").read_text()


@contextmanager
def fleet(world: Path) -> Iterator[Fleet]:
    """Every worker that was started has ended when the block has."""
    world.mkdir(exist_ok=True)
    (world / "acts").mkdir(exist_ok=True)
    nursery = subprocess.Popen(
        [sys.executable, "-m", "tests.proof.worker"],
        cwd=ROOT, env=os.environ | _wrong_clocks(world), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    made = Fleet(nursery, world)
    try:
        yield made
    finally:
        for worker in made.started:
            worker.signal(signal.SIGKILL)
        assert nursery.stdin
        assert nursery.stdout
        nursery.stdin.close()
        nursery.wait(20)
        nursery.stdout.close()


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
