"""The whole engine tier on every server that is promised: Postgres 15, 16 and 18, and 18 behind PgBouncer in transaction mode."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.postgres.engine.test_other_servers_do_as_well import TELLING
from tests.postgres.servers import KINDS
from tests.proof.figures import Figure, Say

TIER = Path("tests/postgres/engine")


def prove(say: Say, *, seed: int, quick: bool) -> list[Figure]:
    chosen = [str(TIER / one) for one in TELLING] if quick else [str(TIER)]
    return [_prove(kind, chosen, say) for kind in KINDS]


def _prove(kind: str, chosen: list[str], say: Say) -> Figure:
    told = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *chosen],
        env=os.environ | {"SUTURE_TEST_POSTGRES": kind},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    failed = re.findall(r"^(?:FAILED|ERROR) (.*)$", told.stdout, re.MULTILINE)
    summary = told.stdout.strip().rpartition("\n")[2]
    say(f"{kind}: {summary}")
    passed = re.search(r"(\d+) passed", summary)
    detail = "; ".join(failed[:3])
    return Figure(f"engine tier on {kind}", f"{passed[1] if passed else 0} passed", "all of it", told.returncode == 0, detail)
