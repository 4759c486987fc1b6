"""A nursery: a process that forks workers on demand, so that each is a real process, which can be killed and stopped, and costs 20 ms.

Orders go in as lines of JSON, process ids come back. A worker writes what it says to `log-PID` in its world, and ends with its nursery.
What workers do is their module's affair: it calls `tend` when it is run, and may add orders of its own. Whoever wants workers uses
`nursery`.
"""

import asyncio
import ctypes
import json
import logging
import os
import random
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from suture.engine import Database, Lease, Runner, Workflows

ROOT = Path(__file__).resolve().parents[1]
PR_SET_PDEATHSIG = 1  # linux/prctl.h
HEARD = "told to stop"
"""What a worker writes when it has heard of its end."""
NOWHERE = "postgresql:///none?host=/nonexistent"


@dataclass(frozen=True, kw_only=True)
class Orders:
    """What every worker is told."""

    url: str
    world: str
    name: str
    queue: str = "default"
    lease: float = 30.0
    heartbeat: float = 10.0
    grace: float = 0.5
    restart: float = 5.0
    blocked: float = 300.0
    crash_limit: int = 5
    drain: float = 20.0
    poll: float = 1.0
    concurrency: int = 16
    presence: bool = True


Told = TypeVar("Told", bound=Orders)


class Nursery:
    """A running one, as seen from outside."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def fork(self, orders: Orders) -> int:
        """The process id of a worker with these orders."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(asdict(orders)) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())


@contextmanager
def nursery(module: str, *, under: Sequence[str] = (), env: Mapping[str, str] | None = None) -> Iterator[Nursery]:
    """Workers of `module`, begun by the command `under` where there is one. Every worker that is left dies when the block ends."""
    process = subprocess.Popen(
        [*under, sys.executable, "-m", module],
        cwd=ROOT, env=os.environ | (env or {}), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        yield Nursery(process)
    finally:
        assert process.stdin
        assert process.stdout
        process.stdin.close()
        process.wait(20)
        process.stdout.close()


# In its process --------------------------------------------------------------------------------------------------------------


def tend(orders: type[Told], work: Callable[[Told], Coroutine[Any, Any, None]]) -> None:
    """Fork a worker, which does `work`, for each line of `orders`, until there are no more."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel buries the children
    for line in sys.stdin:
        given = orders(**json.loads(line))
        pid = os.fork()
        if pid == 0:
            _live(Path(given.world), work(given))
        print(pid, flush=True)


def _live(world: Path, work: Coroutine[Any, Any, None]) -> None:
    """The rest of a forked child's life; it never returns into the nursery."""
    code = 1
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        os.close(0)
        random.seed()
        log = os.open(world / f"log-{os.getpid()}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s")
        asyncio.run(work)
        code = 0
    except BaseException:  # noqa: BLE001 (the border of a process)
        traceback.print_exc()
    finally:
        os._exit(code)


def runner_for(orders: Orders, database: Database, known: Workflows, *, suspect: int, resources: Any) -> Runner:
    """A runner as the orders say, which SIGTERM stops."""
    durations = (timedelta(seconds=s) for s in (orders.lease, orders.heartbeat, orders.grace))
    restart, blocked = timedelta(seconds=orders.restart), timedelta(seconds=orders.blocked)
    runner = Runner(
        database,
        known,
        name=orders.name,
        queues=(orders.queue,),
        concurrency=orders.concurrency,
        lease=Lease(*durations, crash_limit=orders.crash_limit, suspect=suspect, restart=restart, blocked=blocked),
        poll=timedelta(seconds=orders.poll),
        drain=timedelta(seconds=orders.drain),
        resources=resources,
    )

    def stop() -> None:
        runner.stop()
        print(HEARD, flush=True)

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop)
    return runner
