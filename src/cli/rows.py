"""The rows behind the commands: each asks the engine with the database's address alone. Answers in the gateway's shapes, see `door`."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Literal, cast
from uuid import UUID

from pydantic_core import to_jsonable_python

from suture.api.machinery import GlanceShape, Limitation, PauseShape, Pausing, QueueShape, Released, ScheduleShape, WorkerShape
from suture.api.shapes import Letter, Line, Step, Task
from suture.engine import Database, Engine
from suture.engine.glance import glance
from suture.remediation.records import Records

PACKAGES = ("suture.engine", "suture.remediation", "suture.cli")


class Rows:
    def __init__(self, url: str, *, actor: str) -> None:
        self._url, self._actor = url, actor

    def tasks(self, *, status: str, type: str, queue: str, workload: str, limit: int) -> Any:  # noqa: A002
        async def look(engine: Engine) -> list[Task]:
            found = await engine.page(
                statuses=[status] if status else None,
                workflow=type or None,
                queue=queue or None,
                labels={"workload": workload} if workload else None,
                limit=limit,
            )
            return [Task.of(execution) for execution in found]

        return self._ask(look)

    def task(self, task: UUID) -> Any:
        async def look(engine: Engine) -> Task:
            return Task.of(await engine.get(task))

        return self._ask(look)

    def timeline(self, task: UUID) -> Any:
        async def look(engine: Engine) -> list[Line]:
            await engine.get(task)
            return [Line.of(move) for move in await engine.timeline(task)]

        return self._ask(look)

    def steps(self, task: UUID) -> Any:
        async def look(engine: Engine) -> list[Step]:
            await engine.get(task)
            return [Step.of(checkpoint) for checkpoint in await engine.checkpoints(task)]

        return self._ask(look)

    def cancel(self, task: UUID, *, reason: str) -> Any:
        async def steer(engine: Engine) -> Task:
            async with engine.transaction() as session:
                cancelled = await engine.cancel(task, actor=self._actor, reason=reason or "cancelled", session=session)
                # And the question that it put to people, as the gateway does, where there are such questions.
                if cancelled.status == "cancelled" and (await session.one("remediates"))["here"]:
                    await Records(engine.database).close_question(task, state="void", session=session)
            return Task.of(cancelled)

        return self._ask(steer)

    def requeue(self, task: UUID, *, from_step: str) -> Any:
        async def steer(engine: Engine) -> Task:
            return Task.of(await engine.requeue(task, actor=self._actor, from_step=cast(Literal["failed", "start"], from_step)))

        return self._ask(steer)

    def fork(self, task: UUID, *, from_step: str) -> Any:
        async def steer(engine: Engine) -> Task:
            return Task.of(await engine.fork(task, from_step=from_step, actor=self._actor))

        return self._ask(steer)

    def dead_letters(self, *, state: str, type: str, queue: str, limit: int) -> Any:  # noqa: A002
        async def look(engine: Engine) -> list[Letter]:
            chosen = cast(Literal["open", "requeued", "discarded"], state) if state else None
            found = await engine.letters.page(state=chosen, workflow=type or None, queue=queue or None, limit=limit)
            return [Letter.of(letter) for letter in found]

        return self._ask(look)

    def discard(self, task: UUID, *, reason: str) -> Any:
        async def steer(engine: Engine) -> Letter:
            return Letter.of(await engine.letters.discard(task, actor=self._actor, reason=reason))

        return self._ask(steer)

    def workers(self) -> Any:
        async def look(engine: Engine) -> list[WorkerShape]:
            return [WorkerShape(**row) for row in await engine.database.many("living_workers")]

        return self._ask(look)

    def queues(self) -> Any:
        async def look(engine: Engine) -> list[QueueShape]:
            return [QueueShape.of(queue) for queue in await engine.queues.list()]

        return self._ask(look)

    def pause_queue(self, name: str, *, reason: str) -> Any:
        async def steer(engine: Engine) -> QueueShape:
            await engine.queues.pause(name, actor=self._actor, reason=reason)
            return QueueShape.of(await engine.queues.get(name))

        return self._ask(steer)

    def resume_queue(self, name: str, *, reason: str) -> Any:
        async def steer(engine: Engine) -> QueueShape:
            await engine.queues.resume(name, actor=self._actor, reason=reason)
            return QueueShape.of(await engine.queues.get(name))

        return self._ask(steer)

    def limit_queue(self, name: str, changes: Mapping[str, Any], *, reason: str) -> Any:
        async def steer(engine: Engine) -> QueueShape:
            limits = Limitation.model_validate(changes).changed((await engine.queues.get(name)).limits)
            await engine.queues.limit(name, limits, actor=self._actor, reason=reason)
            return QueueShape.of(await engine.queues.get(name))

        return self._ask(steer)

    def pauses(self) -> Any:
        async def look(engine: Engine) -> list[PauseShape]:
            return [PauseShape.of(pause) for pause in await engine.steps.list()]

        return self._ask(look)

    def pause_steps(self, step: str, *, workflow: str, reason: str) -> Any:
        async def steer(engine: Engine) -> Pausing:
            await engine.steps.pause(step, workflow=workflow, actor=self._actor, reason=reason)
            return Pausing(step=step, workflow=workflow, reason=reason)

        return self._ask(steer)

    def resume_steps(self, step: str, *, workflow: str) -> Any:
        async def steer(engine: Engine) -> Released:
            return Released(released=await engine.steps.resume(step, workflow=workflow, actor=self._actor))

        return self._ask(steer)

    def schedules(self) -> Any:
        async def look(engine: Engine) -> list[ScheduleShape]:
            return [ScheduleShape.of(schedule) for schedule in await engine.schedules.all()]

        return self._ask(look)

    def pause_schedule(self, name: str) -> Any:
        async def steer(engine: Engine) -> ScheduleShape:
            await engine.schedules.pause(name, actor=self._actor)
            return ScheduleShape.of(await engine.schedules.get(name))

        return self._ask(steer)

    def resume_schedule(self, name: str) -> Any:
        async def steer(engine: Engine) -> ScheduleShape:
            return ScheduleShape.of(await engine.schedules.resume(name, actor=self._actor))

        return self._ask(steer)

    def run_schedule(self, name: str) -> Any:
        async def steer(engine: Engine) -> Task:
            return Task.of(await engine.get(await engine.schedules.run_now(name, actor=self._actor)))

        return self._ask(steer)

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[Callable[[], Awaitable[Any]]]:
        async with Database.connect(self._url, size=1, packages=PACKAGES) as database:

            async def look() -> Any:
                return to_jsonable_python(GlanceShape.of(await glance(database)), by_alias=True)

            yield look

    def _ask(self, what: Callable[[Engine], Awaitable[Any]]) -> Any:
        return asyncio.run(self._reach(what))

    async def _reach(self, what: Callable[[Engine], Awaitable[Any]]) -> Any:
        async with Database.connect(self._url, size=2, packages=PACKAGES) as database:
            return to_jsonable_python(await what(Engine(database)), by_alias=True)
