"""I4, I15: who looks at what is due tells the others, so that a fleet costs what one worker costs; and there is no leader to lose."""

import asyncio
from contextlib import AsyncExitStack
from datetime import timedelta

from suture.engine import Database, Lease
from suture.engine.watch import CHANNEL, Watch
from tests.postgres.engine.stage import eventually, running
from tests.proof.worker import one_step

POLL = timedelta(seconds=0.25)
REST = 1.0  # seconds between two looks of a fleet at rest, with this poll


async def test_a_fleet_at_rest_looks_as_often_as_one_worker_and_goes_on_without_any_of_them(database_url, direct_url, psql):
    heard = []
    await psql.add_listener(CHANNEL, lambda _c, pid, _n, told: heard.append((asyncio.get_running_loop().time(), pid, told)))
    async with AsyncExitStack() as fleet:
        for number in range(5):
            own = await fleet.enter_async_context(Database.connect(database_url, direct=direct_url, size=2))
            await fleet.enter_async_context(running(own, one_step, name=f"w{number}", poll=POLL, lease=Lease(restart=timedelta(0))))

        async def all_present() -> bool:
            return bool(heard) and heard[-1][2].split()[:2] == ["0", "5"]

        await eventually(all_present)
        begun = asyncio.get_running_loop().time()
        for _ in range(3):  # whoever looks loses its connection, and would be a leader that is lost
            already = len(heard)

            async def looked(already: int = already) -> bool:
                return len(heard) > already

            await eventually(looked)
            await psql.execute("select pg_terminate_backend($1)", heard[-1][1])
        took = asyncio.get_running_loop().time() - begun
        looks = sum(at >= begun for at, _, _ in heard)
    assert looks <= 4 * (took / REST + 1), f"{looks} looks in {took:.1f} s: each worker looks for itself"


async def test_whoever_hears_of_a_look_puts_its_own_off(database):
    watch = Watch(database, lease=Lease(), poll=timedelta(seconds=10))
    watch.hears = True
    await asyncio.wait_for(watch.turn(), 30)  # nothing is known yet: it is its turn
    watch.heard("1 4 inf")
    assert 0.1 < pause(watch) < 0.5  # something runs
    watch.heard("0 4 inf")
    assert pause(watch) > 30  # nothing does
    watch.hurry()
    assert pause(watch) < 0.5  # something was handed in
    watch.heard("0 4 3.0")
    assert 2.5 < pause(watch) < 4  # the next thing is due in three seconds
    watch.heard("what is this")
    assert pause(watch) < 4


async def test_whoever_hears_nobody_looks_by_itself(database):
    watch = Watch(database, lease=Lease(), poll=timedelta(seconds=1))
    await watch.look()
    assert 0.5 < pause(watch) < 1.5
    assert {watch.nap(worked=False) for _ in range(20)} == {1.0}


async def test_polls_are_shared_by_those_who_find_nothing(database):
    watch = Watch(database, lease=Lease(), poll=timedelta(seconds=1))
    watch.hears = True
    watch.heard("0 20 inf")
    assert watch.nap(worked=True) == 1.0
    assert [watch.nap(worked=False) for _ in range(4)] == [1.0, 2.0, 4.0, 8.0]
    assert max(watch.nap(worked=False) for _ in range(20)) == 80.0
    assert watch.nap(worked=True) == 1.0


async def test_a_connection_on_which_ones_own_looks_are_not_heard_is_known_as_dead(database):
    watch = Watch(database, lease=Lease(), poll=timedelta(seconds=1))
    watch.hears = True
    for _ in range(3):
        assert not watch.deaf
        await watch.look()
    assert watch.deaf
    watch.heard("0 1 inf")
    assert not watch.deaf


def pause(watch):
    return watch._turn - asyncio.get_running_loop().time()
