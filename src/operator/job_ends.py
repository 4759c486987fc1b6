"""The ends of Jobs: an execution that waits for its Job is woken as soon as the Job has ended. Only a hint: it looks by itself, later.

Whether and how the Job has ended, the execution sees for itself; nothing is decided here.
"""

import logging
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from suture.clients.jobs import EXECUTION, ending
from suture.engine import Engine
from suture.errands.requests import ended_event
from suture.errors import DatabaseUnavailable, IllegalTransition, NotFound
from suture.operator.keeper import ACTOR
from suture.operator.objects import Objects
from suture.operator.signs import Sign
from suture.operator.watching import Listed, follow

log = logging.getLogger(__name__)

RECENT: Final = timedelta(minutes=15)
"""An older end has been seen by the execution itself: it looks every ten minutes at the latest."""


class JobEnds:
    """Of the Jobs in `namespace`."""

    def __init__(self, engine: Engine, objects: Objects, *, namespace: str, sign: Sign) -> None:
        self._engine, self._objects, self._namespace, self._sign = engine, objects, namespace, sign
        self._told: dict[str, datetime] = {}
        """When, by the uid of the Job."""

    async def run(self) -> None:
        """Watch for ever."""
        path = f"/apis/batch/v1/namespaces/{self._namespace}/jobs"
        async for seen in follow(self._objects, path, selector=EXECUTION, sign=self._sign):
            if isinstance(seen, Listed):
                for job in seen.objects:
                    await self._heed(job)
            else:
                await self._heed(seen.object, gone=seen.gone)

    async def _heed(self, job: Mapping[str, Any], *, gone: bool = False) -> None:
        now, uid = datetime.now(UTC), job["metadata"]["uid"]
        if uid in self._told or not (gone or _ended_lately(job, now)):
            return
        self._told = {uid: at for uid, at in self._told.items() if now - at < RECENT} | {uid: now}
        try:
            execution = UUID(job["metadata"]["labels"][EXECUTION])
            await self._engine.emit(execution, ended_event(job["metadata"]["name"]), {}, actor=ACTOR)
        except (ValueError, NotFound, IllegalTransition):
            return  # another's, or it has ended
        except DatabaseUnavailable as error:
            log.debug("an end is not told: %s", error)  # the execution looks by itself


def _ended_lately(job: Mapping[str, Any], now: datetime) -> bool:
    end = ending(dict(job))
    return end is not None and now - datetime.fromisoformat(end["lastTransitionTime"]) < RECENT
