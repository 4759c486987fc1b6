"""`suture top` shows the engine at work in any terminal, outlives an outage, costs three bounded statements, and leaves no trace."""

import asyncio
import doctest
import io
import os
import re
import signal
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from rich.console import Console

from suture.cli import listing, top_view
from suture.cli.top_view import view
from suture.engine import Database, Engine, Limits, Run, workflow
from suture.engine.database import Session
from suture.engine.glance import MOST, glance
from tests.postgres.api.gateway import running as gateway_running
from tests.postgres.command import COMMAND, environment, suture
from tests.postgres.engine.stage import PACKAGES, eventually, reached, running
from tests.postgres.terminal import Terminal, bare


@workflow("endless")
async def endless(run: Run, _: None) -> None:
    await run.step("turn", asyncio.sleep, 3600)


@workflow("sleepy")
async def sleepy(run: Run, _: None) -> None:
    await run.sleep("nap", timedelta(hours=1))


@pytest.fixture
async def engine(database_url: str) -> AsyncIterator[Engine]:
    async with Database.connect(database_url, packages=PACKAGES) as database:
        yield Engine(database)


@pytest.fixture
def database(engine: Engine) -> Database:
    return engine.database


@asynccontextmanager
async def at_work(engine: Engine) -> AsyncIterator[None]:
    """Something runs, something is paused, something is limited."""
    running_one = (await engine.enqueue("endless", None, actor="test")).execution.id
    for _ in range(3):
        await engine.enqueue("unknown", None, actor="test", queue="mail")
    await engine.queues.pause("mail", actor="test")
    await engine.queues.limit("night", Limits(concurrency=2), actor="test")
    async with running(engine.database, endless, name="worker-one"):
        await reached(engine, running_one, "running")
        await eventually(lambda: present(engine), what="the worker's presence")
        yield


async def present(engine: Engine) -> bool:
    return any(worker["presence"] for worker in (await engine.health()).workers)


@contextmanager
def top(url: str, *, size: tuple[int, int] = (24, 80)) -> Iterator[Terminal]:
    with Terminal([*COMMAND, "top"], environ=environment(SUTURE_DATABASE_URL=url), size=size) as terminal:
        yield terminal


def frame(terminal: Terminal) -> list[str]:
    """The lines of the last picture."""
    pictures = [picture for picture in terminal.shown.split("\x1b[H") if "QUEUE" in picture]
    return [line.rstrip() for line in bare(pictures[-1]).splitlines()]


@pytest.mark.parametrize("size", [(24, 80), (15, 60), (50, 200)])
async def test_it_shows_queues_workers_and_what_runs(engine: Engine, database_url: str, size: tuple[int, int]) -> None:
    def watch() -> tuple[list[str], int]:
        with top(database_url, size=size) as terminal:
            terminal.until(lambda text: text.count("q quits") >= 2)  # it has looked again by itself
            terminal.type("q")
            return frame(terminal), terminal.ended()

    async with at_work(engine):
        lines, code = await asyncio.to_thread(watch)

    assert code == 0
    assert len(lines) <= size[0]
    assert max(map(len, lines)) <= size[1]
    assert re.match(r"suture +\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", lines[0])
    text = "\n".join(lines)
    assert re.search(r"^mail +3 .*paused$", text, re.MULTILINE)
    assert re.search(r"^night +0 .*2 at o", text, re.MULTILINE)
    assert re.search(r"^worker-one +1 .*(present|prese…)", text, re.MULTILINE)
    assert re.search(r"^endless +\d+(\.\d)?s", text, re.MULTILINE)


@pytest.mark.parametrize("leave", ["q", "\x03", signal.SIGTERM])
async def test_it_leaves_the_terminal_as_it_was(engine: Engine, database_url: str, leave: str | signal.Signals) -> None:
    def watch() -> None:
        with top(database_url) as terminal:
            before = terminal.modes_now()
            terminal.until(lambda text: "q quits" in text)
            assert terminal.modes_now() != before, "keys are read one by one"
            terminal.type(leave) if isinstance(leave, str) else os.kill(terminal.process.pid, leave)
            assert terminal.ended() == 0
            assert terminal.modes_now() == before
            assert terminal.shown.endswith("\x1b[?1049l\x1b[?25h") or terminal.shown.endswith("\x1b[?25h\x1b[?1049l")

    await asyncio.to_thread(watch)


class Wire:
    """A wire to Postgres that can be cut."""

    def __init__(self, folder: Path) -> None:
        self._target = str(next(folder.glob(".s.PGSQL.*[0-9]")))
        self._wires: set[asyncio.StreamWriter] = set()
        self.cut = False

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.cut:
            writer.close()
            return
        back, forth = await asyncio.open_unix_connection(self._target)
        self._wires |= {writer, forth}
        with suppress(OSError):
            await asyncio.gather(self._carry(reader, forth), self._carry(back, writer))
        for end in (writer, forth):
            end.close()

    async def _carry(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while part := await source.read(1 << 16):
            sink.write(part)
            await sink.drain()
        sink.close()

    def switch(self, *, cut: bool) -> None:
        self.cut = cut
        while cut and self._wires:
            self._wires.pop().transport.abort()


async def test_it_says_that_postgres_is_away_and_goes_on_when_it_is_back(engine: Engine, database_url: str) -> None:
    given = parse_qs(urlsplit(database_url).query)
    folder, user = given.get("host", [""])[0], given.get("user", ["suture"])[0]
    if not folder.startswith("/"):
        pytest.skip("the wire is tied to a socket of the embedded Postgres")
    wire = Wire(Path(folder))
    server = await asyncio.start_server(wire, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    through = re.sub(r"//([^@/]*@)?/", rf"//\g<1>127.0.0.1:{port}/", database_url.partition("?")[0]) + f"?user={user}"
    loop = asyncio.get_running_loop()

    def switch(*, cut: bool) -> None:
        done = threading.Event()
        loop.call_soon_threadsafe(lambda: (wire.switch(cut=cut), done.set()))
        done.wait(10)

    def watch() -> None:
        with top(through) as terminal:
            assert "ended/s" in terminal.until(lambda text: "ended/s" in text)
            switch(cut=True)
            shown = terminal.until(lambda text: "away for" in text)
            assert re.search(r"as of .* UTC +away for \d+ s: Postgres", shown)
            terminal.shown = ""
            switch(cut=False)
            assert "ended/s" in terminal.until(lambda text: "ended/s" in text)
            terminal.type("q")
            assert terminal.ended() == 0

    async with server:
        await asyncio.to_thread(watch)


async def test_machines_get_one_look(engine: Engine, database_url: str) -> None:
    async with at_work(engine):
        found = (await suture("top", "--json", SUTURE_DATABASE_URL=database_url)).json
        printed = await suture("top", "--once", SUTURE_DATABASE_URL=database_url)
    assert {q["name"]: (q["due"], q["paused"]) for q in found["queues"]} == {"mail": (3, True), "default": (0, False), "night": (0, False)}
    assert [w["name"] for w in found["workers"]] == ["worker-one"]
    assert [r["workflow"] for r in found["longest"]] == ["endless"]
    assert printed.code == 0
    assert "\x1b" not in printed.out
    assert max(map(len, printed.out.splitlines())) <= 80


@pytest.mark.parametrize("height", [4, 8, 15, 24, 60])
def test_a_picture_fits_and_nobody_s_text_steers_the_terminal(height: int) -> None:
    evil = "mail\x1b]0;owned\x07\n[red]"
    queue = {"name": evil, "paused": False, "concurrency": None, "perKey": None, "rateStarts": 5, "rateSeconds": 60.0, "running": 1}
    queue |= {"due": 10_000, "delayed": 0, "oldestSeconds": 90_000.0, "more": True, "parked": 9_999, "parkedMore": True}
    worker = {"name": evil, "queues": [evil], "presence": True, "absent": True, "beatSeconds": 3.0, "running": 2}
    run = {"id": "0", "workflow": evil, "step": evil, "worker": None, "seconds": 4000.0, "crashes": 2}
    found = {"at": "2030-01-01T00:00:00Z", "queues": [queue] * 30, "workers": [worker] * 30, "longest": [run] * 10}
    found |= {"endedPerSecond": 1.0, "failedPerSecond": 0.5, "deadLetters": 3}
    for trouble in ("", f"away for 3 s: {evil}"):
        console = Console(width=80, height=height, file=io.StringIO(), color_system=None)
        console.print(view(found, height=height, trouble=trouble), end="")
        lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
        assert len(lines) <= max(height, 5)  # the first line, the heads of the tables and the last one are always there
        assert max(map(len, lines)) <= 80
        assert not re.search(r"[\x00-\x08\x0b-\x1f]", "".join(lines))


def test_what_is_said_of_durations_and_shares_is_so() -> None:
    for module in (listing, top_view):
        assert doctest.testmod(module).failed == 0


async def test_the_gateway_gives_the_same_look(engine: Engine, database_url: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("token-of-vera-0123456789")
    async with at_work(engine), gateway_running(database_url) as gateway:
        through = {"SUTURE_CLIENT_URL": gateway.url, "SUTURE_CLIENT_TOKEN_FILE": str(tmp_path / "token")}
        asked, direct = await asyncio.gather(suture("top", "--json", **through), suture("top", "--json", SUTURE_DATABASE_URL=database_url))
    assert shape(asked.json) == shape(direct.json)


def shape(found: Any) -> Any:
    """The answer without numbers that grow by themselves."""
    if isinstance(found, list):
        return [shape(one) for one in found]
    moving = ("at", "seconds", "beatSeconds", "oldestSeconds")
    return {name: shape(one) for name, one in found.items() if name not in moving} if isinstance(found, dict) else found


async def test_a_look_is_three_statements_that_count_no_backlog(engine: Engine, database_url: str) -> None:
    await engine.enqueue_many("unknown", [None] * (MOST + 500), actor="test", queue="mail")
    async with Recorded.connect(database_url, packages=PACKAGES) as recorded:
        found = await glance(recorded)
    assert len(Named.asked) == 3
    (mail,) = found.queues
    assert (mail["name"], mail["due"], mail["more"]) == ("mail", MOST, True)


async def test_what_waits_for_its_key_is_shown(engine: Engine, database_url: str) -> None:
    """Ten stand behind the first, which sleeps: nothing of the queue is due, nothing runs, and it is shown all the same."""
    first, *_ = [
        (await engine.enqueue("sleepy", None, actor="test", queue="orders", concurrency_key="customer-7")).execution.id for _ in range(11)
    ]
    quiet = await suture("top", "--once", SUTURE_DATABASE_URL=database_url)
    async with running(engine.database, sleepy, name="worker-one", queues=("orders",)):
        await reached(engine, first, "waiting")
    found = (await suture("top", "--json", SUTURE_DATABASE_URL=database_url)).json
    shown = await suture("top", "--once", SUTURE_DATABASE_URL=database_url)

    assert re.search(r"^orders +1 .* 10 +0 ", quiet.out, re.MULTILINE), quiet.out
    (orders,) = found["queues"]
    assert {name: orders[name] for name in ("name", "due", "running", "parked", "parkedMore")} == {
        "name": "orders",
        "due": 0,
        "running": 0,
        "parked": 10,
        "parkedMore": False,
    }
    assert re.search(r"^QUEUE +due +oldest +delayed +parked +running ", shown.out, re.MULTILINE), shown.out
    assert re.search(r"^orders +0 .* 10 +0 ", shown.out, re.MULTILINE), shown.out


async def test_a_line_has_no_room_for_parked_where_nothing_is(engine: Engine, database_url: str) -> None:
    await engine.enqueue("endless", None, actor="test", queue="orders", concurrency_key="customer-7")
    assert "parked" not in (await suture("top", "--once", SUTURE_DATABASE_URL=database_url)).out


async def test_the_parked_are_counted_up_to_a_bound_by_their_index(engine: Engine, database: Database) -> None:
    async with database.session() as session:
        await session.connection.execute(
            f"""insert into suture.workflow_executions (id, workflow, queue, input, run_at, concurrency_key, parked, changed_by)
                select gen_random_uuid(), 'w', 'orders', 'null', now(), 'a', n > 1, 'test' from generate_series(1, {2 * MOST}) n"""
        )
        await session.connection.execute("vacuum analyze suture.workflow_executions")
        (orders,) = (await glance(database)).queues
        text = await session.connection.fetch("explain (analyze, buffers off) " + database.statements["glance_queues"].text, MOST)
    assert (orders["parked"], orders["parked_more"]) == (MOST - 1, True)
    assert "executions_of_key" in str(text)
    assert "Seq Scan on workflow_executions" not in str(text)


class Named(Session):
    asked: list[str] = []  # noqa: RUF012 (of the one test that looks)

    def _text(self, name: str, cardinality: str) -> str:
        self.asked.append(name)
        return super()._text(name, cardinality)


class Recorded(Database):
    @asynccontextmanager
    async def session(self) -> AsyncIterator[Session]:
        async with super().session() as plain:
            yield Named(plain.connection, self.statements)
