"""I12: children are started once, waited for without a worker, told of their parent's end, and nobody's end is missed."""

import asyncio
from datetime import timedelta

import pytest
from pydantic import BaseModel

from suture.engine import NEVER, Run, workflow
from suture.engine.children import tend
from suture.errors import ChildFailed, Conflict, PermanentError
from tests.postgres.engine.stage import QUICK, ended, eventually, reached, running


class Sum(BaseModel):
    total: int


@workflow("add")
async def add(run: Run, numbers: list[int]) -> Sum:
    return Sum(total=sum(numbers))


@workflow("refuse")
async def refuse(run: Run, why: str) -> None:
    raise PermanentError(why)


@workflow("hold")
async def hold(run: Run, _: object) -> str:
    return await run.wait("let-go", str) or "nobody came"


async def test_a_result_comes_back_in_its_type(engine, database):
    @workflow("parent")
    async def parent(run: Run, _: None) -> list[int]:
        by_function = await run.start("first", [1, 2], workflow=add)
        by_name = await run.start("add", [3, 4], returns=Sum)
        results = await run.join(by_function, by_name)
        assert all(isinstance(result, Sum) for result in results)
        return [result.total for result in results]

    task = (await engine.enqueue("parent", None, actor="test", queue="default")).execution
    async with running(database, parent, add):
        done = await ended(engine, task.id)
    assert (done.status, done.output) == ("completed", [3, 7])
    (first, second) = [c for c in await engine.page(workflow="add")]
    assert first.parent_id == second.parent_id == task.id
