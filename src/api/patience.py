"""Patience: how long a door waits for Postgres. What is not there in time is cancelled behind the caller's back, which may take a while."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

from suture.errors import DatabaseUnavailable

log = logging.getLogger(__name__)

T = TypeVar("T")

_leaving: set["asyncio.Task[Any]"] = set()
"""What was given up and still cleans up; the event loop alone would not keep it alive."""


async def within(limit: float, work: Coroutine[Any, Any, T]) -> T:
    """What `work` gives within `limit` seconds.

    Not `asyncio.timeout`: that waits for the end of what it cancels, and a connection that hangs in COMMIT takes seconds to be given up.
    Raises: DatabaseUnavailable when the time is over; then `work` may still have been committed.
    """
    task = asyncio.create_task(work)
    try:
        done, _ = await asyncio.wait({task}, timeout=limit)
    except asyncio.CancelledError:
        _leave(task)
        raise
    if done:
        return task.result()
    _leave(task)
    raise DatabaseUnavailable(f"Postgres did not answer within {limit:g} seconds.")


def _leave(task: "asyncio.Task[Any]") -> None:
    _leaving.add(task)
    task.add_done_callback(_forget)
    task.cancel()


def _forget(task: "asyncio.Task[Any]") -> None:
    _leaving.discard(task)
    if not task.cancelled() and (error := task.exception()):
        log.info("what was given up ended with %s", type(error).__name__)
