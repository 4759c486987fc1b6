"""Queues and schedules are steered from the terminal through either door, with whoever did it in the row."""

import getpass
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from suture.engine import Database, Engine, Limits, Rate, Run, workflow
from tests.postgres.api.gateway import running as gateway_running
from tests.postgres.command import suture
from tests.postgres.engine.stage import ended, reached, running


@pytest.fixture
async def engine(database_url: str) -> AsyncIterator[Engine]:
    async with Database.connect(database_url) as database:
        yield Engine(database)


@pytest.fixture(params=["the database's address", "the gateway"])
async def door(request: pytest.FixtureRequest, database_url: str, tmp_path: Path) -> AsyncIterator[tuple[dict[str, str], str]]:
    """The settings of one door, and what it calls whoever passes."""
    if request.param == "the database's address":
        yield {"SUTURE_DATABASE_URL": database_url}, getpass.getuser()
        return
    (tmp_path / "token").write_text("token-of-otto-0123456789")
    async with gateway_running(database_url) as gateway:
        yield {"SUTURE_CLIENT_URL": gateway.url, "SUTURE_CLIENT_TOKEN_FILE": str(tmp_path / "token")}, "otto"


async def test_a_queue_is_paused_limited_and_resumed(engine: Engine, door: tuple[dict[str, str], str]) -> None:
    through, me = door
    await engine.enqueue("greet", None, actor="test", queue="mail")
    assert (await suture("queues", "pause", "mail", "--reason", "provider down", **through)).out == "mail is paused\n"
    paused = await engine.queues.get("mail")
    assert (paused.paused, paused.changed_by, paused.reason) == (True, me, "provider down")

    limited = await suture("queues", "limit", "mail", "--concurrency", "8", "--rate", "100/1m", "--burst", "20", **through)
    assert limited.out == "mail is paused, limited to 8 at once, 100/m\n"
    assert (await engine.queues.get("mail")).limits == Limits(8, None, Rate(100, timedelta(minutes=1), 20))
    again = await suture("queues", "limit", "mail", "--per-key", "2", "--rate", "none", "--json", **through)
    assert (again.json["concurrency"], again.json["perKey"], again.json["rate"]) == (8, 2, None)

    assert (await suture("queues", "resume", "mail", **through)).out == "mail is open, limited to 8 at once, 2 a key\n"
    (row,) = (await suture("queues", "--json", **through)).json
    assert (row["name"], row["due"], row["paused"], row["changedBy"]) == ("mail", 1, False, me)


async def test_a_schedule_is_paused_resumed_and_run_by_hand(engine: Engine, door: tuple[dict[str, str], str]) -> None:
    through, me = door
    await engine.schedules.put("nightly", "report", None, every=timedelta(hours=1), concurrency_key="books", actor="test")
    assert (await suture("schedules", "pause", "nightly", **through)).out == "nightly is paused\n"
    assert ((await engine.schedules.get("nightly")).paused, (await engine.schedules.get("nightly")).changed_by) == (True, me)

    made = (await suture("schedules", "run", "nightly", "--json", **through)).json
    assert (made["type"], made["labels"]["schedule"]) == ("report", "nightly")
    assert (await engine.timeline(made["id"]))[0].actor == me

    assert "due next at" in (await suture("schedules", "resume", "nightly", **through)).out
    (row,) = (await suture("schedules", "--json", **through)).json
    assert (row["name"], row["everySeconds"], row["paused"], row["concurrencyKey"]) == ("nightly", 3600, False, "books")

    missing = await suture("schedules", "pause", "never", **through)
    assert missing.code == 1
    assert missing.err.startswith("NotFound: ")


async def test_no_step_of_a_kind_begins_until_its_pause_ends(engine: Engine, door: tuple[dict[str, str], str]) -> None:
    through, me = door
    task = (await engine.enqueue("deliver-it", None, actor="test")).execution.id
    assert (await suture("pauses", "begin", "deliver", "--reason", "freeze", **through)).out == "nobody begins deliver\n"
    async with running(engine.database, deliver_it):
        await reached(engine, task, "waiting")
        (pause,) = (await suture("pauses", "--json", **through)).json
        assert (pause["step"], pause["pausedBy"], pause["reason"], pause["held"]) == ("deliver", me, "freeze", 1)
        assert (await suture("pauses", "end", "deliver", **through)).out == "deliver may begin again; 1 task goes on\n"
        await ended(engine, task)
    assert (await suture("pauses", "end", "deliver", **through)).code == 1

    heir = (await suture("tasks", "fork", str(task), "--from", "deliver", "--json", **through)).json
    assert [step.step_id for step in await engine.checkpoints(heir["id"])] == ["write"]
    assert (await engine.timeline(heir["id"]))[0].actor == me


@workflow("deliver-it")
async def deliver_it(run: Run, _: None) -> None:
    await run.step("write", nothing)
    await run.step("deliver", nothing)


async def nothing() -> None:
    pass


async def test_a_limit_that_cannot_be_is_told_before_anything_is_asked() -> None:
    for arguments, said in {
        ("--concurrency", "many"): "--concurrency 'many' is no number",
        ("--rate", "fast"): "--rate 'fast' is no number and time",
        ("--burst", "3"): "--burst goes with --rate",
        (): "Nothing is to be changed",
    }.items():
        refused = await suture("queues", "limit", "mail", *arguments)
        assert refused.code == 2
        assert said in refused.err
