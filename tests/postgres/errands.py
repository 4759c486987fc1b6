"""What the errands are tested with: the engine on a database of the test's own, and real worker processes."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from suture.clients.http import Outbound
from suture.clients.mounted import Mounted
from suture.clients.reach import Reach

ROOT = Path(__file__).resolve().parents[2]
LOOPBACK = ("127.0.0.0/8",)


def resources(*, allow: tuple[str, ...] = LOOPBACK, secrets: Path | None = None) -> dict[type, Any]:
    """What a worker gives to the errands."""
    return {Outbound: Outbound(Reach.read(allow), Mounted(secrets))}


@contextmanager
def worker(database_url: str, *, plugins: Path | None = None, **settings: str) -> Iterator["subprocess.Popen[bytes]"]:
    """`suture worker` as people start it, beside what is installed in `plugins`; killed at the end of the block.

    What it writes is in its `stdout`.
    """
    with tempfile.TemporaryDirectory() as folder:
        recording = Path(folder, "recording")
        recording.mkdir()
        own = {
            "PATH": os.environ["PATH"],
            "HOME": folder,
            "PYTHONPATH": os.pathsep.join(map(str, [ROOT / ".dev", *([plugins] if plugins else [])])),
            "SUTURE_DATABASE_URL": database_url,
            "SUTURE_REPOSITORY_URL": folder,
            "SUTURE_EVIDENCE_SOURCE": "recording",
            "SUTURE_EVIDENCE_RECORDING": str(recording),
            "SUTURE_WORKER_HEALTH_ADDRESS": "",
            "SUTURE_WORKER_POLL": "0.2",
        }
        bound = ["setpriv", "--pdeathsig", "KILL", sys.executable, "-m", "suture", "worker"]
        path = Path(folder, "log")
        with path.open("wb") as log, path.open("rb") as reader:
            process = subprocess.Popen(bound, env=own | settings, cwd=ROOT, stdout=log, stderr=log)
            process.stdout = reader
            try:
                yield process
            except BaseException:
                print(path.read_text())
                raise
            finally:
                process.kill()
                process.wait()
