"""Migrations from the command line: waits for Postgres, where asked, and applies what is missing."""

import asyncio
import time

from suture.engine import migrate
from suture.errors import DatabaseUnavailable

PACKAGES = ("suture.engine", "suture.remediation")


async def bring_up(url: str, *, wait: float = 0) -> list[str]:
    """Names of the migrations that were applied.

    Raises: DatabaseUnavailable when Postgres does not answer for `wait` seconds. ConfigError.
    """
    end = time.monotonic() + wait
    while True:
        try:
            return await migrate(url, packages=PACKAGES)
        except DatabaseUnavailable:
            if time.monotonic() >= end:
                raise
            await asyncio.sleep(0.5)  # one try every half second: a database that starts is not helped by more
