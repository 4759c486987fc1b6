"""I10: dead letters are listed by what went wrong, run again in bulk or discarded with a reason; each is dealt with once."""

import asyncio

import pytest

from suture.engine import NEVER, Run, workflow
from suture.errors import IllegalTransition, InvalidRequest, NotFound, PermanentError, TemporaryError
from tests.postgres.engine.stage import ended, running

BROKEN = {"now": True}


def failing(name, error):
    @workflow(name, retry=NEVER)
    async def fails(run: Run, _: None) -> str:
        async def act() -> str:
            if BROKEN["now"]:
                raise error
            return "done"

        return await run.step("act", act)

    return fails


class NoStock(PermanentError):
    """There is none."""


WORKFLOWS = failing("order", NoStock()), failing("mail", TemporaryError("away")), failing("pay", NoStock("none"))


@pytest.fixture
async def letters(engine, database):
    """Three orders, two mails, one payment, in this order; the ids by workflow."""
    BROKEN["now"] = True
    ids = {"order": [], "mail": [], "pay": []}
    async with running(database, *WORKFLOWS):
        for name in ("order", "order", "order", "mail", "mail", "pay"):
            task = (await engine.enqueue(name, None, actor="test", operation_key=f"{name}-{len(ids[name])}")).execution
            ids[name].append((await ended(engine, task.id)).id)
    BROKEN["now"] = False
    return ids


async def found(engine, **filters):
    return [letter.execution_id for letter in await engine.letters.page(**filters)]


async def test_they_are_found_by_what_went_wrong_page_by_page(engine, letters):
    everything = [id_ for ids in letters.values() for id_ in ids][::-1]
    assert await found(engine) == everything
    assert await found(engine, workflow="mail") == letters["mail"][::-1]
    assert await found(engine, reason="NoStock") == [*letters["pay"], *letters["order"][::-1]]
    assert await found(engine, reason="NoStock", workflow="pay") == letters["pay"]
    assert await found(engine, queue="other") == []

    pages, before = [], None
    while page := await found(engine, before=before, limit=2):
        pages.append(page)
        before = page[-1]
    assert pages == [everything[:2], everything[2:4], everything[4:]]


async def test_many_are_run_again_at_once_and_those_whose_key_is_taken_stay_open(engine, database, letters):
    taken = (await engine.enqueue("order", None, actor="test", operation_key="order-1", reuse="new")).execution
    made = await engine.letters.requeue_many(actor="bob", reason="NoStock", workflow="order")

    assert {one.forked_from for one in made} == {letters["order"][0], letters["order"][2]}
    assert await found(engine, state="open", workflow="order") == [letters["order"][1]]
    assert await found(engine, state="requeued") == [letters["order"][2], letters["order"][0]]
    assert {letter.requeued_as for letter in await engine.letters.page(state="requeued")} == {one.id for one in made}
    async with running(database, *WORKFLOWS):
        for one in [*made, taken]:
            assert (await ended(engine, one.id)).output == "done"
    assert len(await engine.letters.requeue_many(actor="bob")) == 4
    assert await found(engine, state="open") == []


async def test_several_that_requeue_all_at_once_make_one_successor_each(engine, letters, psql):
    made = await asyncio.gather(*(engine.letters.requeue_many(actor=f"person {n}") for n in range(4)))
    assert sorted(one.forked_from for some in made for one in some) == sorted(id_ for ids in letters.values() for id_ in ids)


async def test_one_that_is_discarded_says_who_and_why_and_is_not_counted(engine, letters):
    assert (await engine.health()).dead_letters == 6
    letter = await engine.letters.discard(letters["pay"][0], actor="otto", reason="paid by hand")
    assert (letter.discarded_by, letter.discard_reason, letter.discarded_at is not None) == ("otto", "paid by hand", True)
    assert (await engine.health()).dead_letters == 5
    assert await found(engine, state="discarded") == letters["pay"]

    with pytest.raises(IllegalTransition, match="discarded by otto"):
        await engine.letters.discard(letters["pay"][0], actor="bob", reason="again")
    with pytest.raises(IllegalTransition, match="no dead letter that waits"):
        await engine.requeue(letters["pay"][0], actor="bob")
    again = await engine.requeue(letters["mail"][0], actor="bob")
    with pytest.raises(IllegalTransition, match=f"requeued as {again.id}"):
        await engine.letters.discard(letters["mail"][0], actor="bob", reason="too late")
    with pytest.raises(NotFound):
        await engine.letters.discard(again.id, actor="bob", reason="lives")
    with pytest.raises(InvalidRequest, match="reason"):
        await engine.letters.discard(letters["mail"][1], actor="bob", reason="")


async def test_many_are_discarded_at_once(engine, letters):
    assert await engine.letters.discard_many(actor="otto", reason="season is over", failed_for="NoStock") == 4
    assert await found(engine, state="open") == letters["mail"][::-1]
    assert await engine.letters.requeue_many(actor="bob", reason="NoStock") == []
