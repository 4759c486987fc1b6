"""Every command that looks at the engine or steers it works with the database's address alone, and says the same through the gateway."""

import asyncio
import getpass
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from uuid import UUID

import pytest

from suture.engine import NEVER, Database, Engine, Run, workflow
from suture.errors import PermanentError
from tests.postgres.api.gateway import Gateway
from tests.postgres.api.gateway import running as gateway_running
from tests.postgres.command import COMMAND, environment, suture
from tests.postgres.engine.stage import ended, running
from tests.postgres.terminal import Terminal

NOBODY = UUID("01930000-0000-7000-8000-000000000000")


@pytest.fixture
async def gateway(database_url: str) -> AsyncIterator[Gateway]:
    async with gateway_running(database_url) as found:
        yield found


@pytest.fixture
def token(tmp_path: Path) -> Callable[[str], str]:
    def write(name: str) -> str:
        (file := tmp_path / name).write_text(f"token-of-{name}-0123456789")
        return str(file)

    return write


@workflow("greet")
async def greet(run: Run, name: str) -> str:
    return await run.step("compose", compose, name)


async def compose(name: str) -> str:
    return f"hello {name}"


@workflow("refuse", retry=NEVER)
async def refuse(run: Run, _: None) -> None:
    await run.step("look", look)
    await run.step("object", reject)


async def look() -> int:
    return 42


async def reject() -> None:
    raise PermanentError("the tenant is closed")


@pytest.fixture
async def story(database_url: str) -> tuple[str, str, str]:
    """The ids of a task that is completed, of a dead letter, and of one that is due in an hour."""
    async with Database.connect(database_url) as database:
        engine = Engine(database)
        done = (await engine.enqueue("greet", "Ada", actor="test")).execution.id
        dead = (await engine.enqueue("refuse", None, actor="test")).execution.id
        async with running(database, greet, refuse):
            await ended(engine, done)
            await ended(engine, dead)
        late = (await engine.enqueue("greet", "Grace", actor="test", queue="night")).execution.id
    return str(done), str(dead), str(late)


QUESTIONS = ("tasks", "tasks list --status error", "tasks list --queue night", "dead-letters", "workers", "schedules")
ABOUT_ONE = ("tasks get {0}", "steps {0}", "timeline {1}", "tasks steps {1}", "tasks timeline {0}")


async def test_both_doors_give_the_same_answers(
    story: tuple[str, str, str], database_url: str, gateway: Gateway, token: Callable[[str], str]
) -> None:
    through_the_gateway = {"SUTURE_CLIENT_URL": gateway.url, "SUTURE_CLIENT_TOKEN_FILE": token("vera")}
    for question in (*QUESTIONS, *(line.format(*story) for line in ABOUT_ONE)):
        asked = *question.split(), "--json"
        direct, through = await asyncio.gather(suture(*asked, SUTURE_DATABASE_URL=database_url), suture(*asked, **through_the_gateway))
        assert direct.json == through.json, question
        assert direct.json or question in {"workers", "schedules"}, f"{question} shows something"


async def test_a_table_names_what_the_rows_hold(story: tuple[str, str, str], database_url: str) -> None:
    done, dead, late = story
    tasks = (await suture("tasks", SUTURE_DATABASE_URL=database_url)).out.splitlines()
    assert tasks[0].split() == ["id", "type", "status", "step", "queue", "created"]
    assert [line.split()[:3] for line in tasks[1:]] == [
        [late, "greet", "enqueued"], [dead, "refuse", "error"], [done, "greet", "completed"]
    ]  # fmt: skip

    letters = (await suture("dead-letters", SUTURE_DATABASE_URL=database_url)).out
    assert [dead, "refuse", "default", "object", "PermanentError"] == letters.splitlines()[1].split()[:5]

    steps = (await suture("steps", done, SUTURE_DATABASE_URL=database_url)).out
    assert '"hello Ada"' in steps
    assert (await suture("steps", late, SUTURE_DATABASE_URL=database_url)).out == "none\n"


async def test_whoever_steers_stands_in_the_timeline(
    story: tuple[str, str, str], database_url: str, gateway: Gateway, token: Callable[[str], str]
) -> None:
    _, dead, late = story
    cancelled = await suture("tasks", "cancel", late, "--reason", "not tonight", "--json", SUTURE_DATABASE_URL=database_url)
    assert cancelled.json["status"] == "cancelled"
    moves = (await suture("timeline", late, "--json", SUTURE_DATABASE_URL=database_url)).json
    assert (moves[-1]["actor"], moves[-1]["reason"]) == (getpass.getuser(), "not tonight")

    by_otto = {"SUTURE_CLIENT_URL": gateway.url, "SUTURE_CLIENT_TOKEN_FILE": token("otto")}
    heir = (await suture("dead-letters", "requeue", dead, "--json", **by_otto)).json
    moves = (await suture("timeline", heir["id"], "--json", SUTURE_DATABASE_URL=database_url)).json
    assert moves[0]["actor"] == "otto"
    steps = (await suture("steps", heir["id"], "--json", SUTURE_DATABASE_URL=database_url)).json
    assert [step["name"] for step in steps] == ["look"], "the finished step came along"
    assert (await suture("dead-letters", **by_otto)).out == "none\n", "it is open no more"
    assert heir["id"] in (await suture("dead-letters", "--state", "requeued", **by_otto)).out


@pytest.mark.parametrize("through", ["database", "gateway"])
async def test_a_dead_letter_is_let_be_by_somebody_for_a_reason(
    story: tuple[str, str, str], database_url: str, gateway: Gateway, token: Callable[[str], str], through: str
) -> None:
    by_otto = {"SUTURE_CLIENT_URL": gateway.url, "SUTURE_CLIENT_TOKEN_FILE": token("otto")}
    here, me = ({"SUTURE_DATABASE_URL": database_url}, getpass.getuser()) if through == "database" else (by_otto, "otto")
    told = await suture("dead-letters", "discard", story[1], "--reason", "the tenant is gone", **here)
    assert told.out == f"{story[1]} is discarded\n"
    (letter,) = (await suture("dead-letters", "--state", "all", "--json", **here)).json
    assert (letter["discardedBy"], letter["discardReason"]) == (me, "the tenant is gone")
    again = await suture("dead-letters", "requeue", story[1], **here)
    assert again.code == 1
    assert again.err.startswith("IllegalTransition: ")


async def test_a_viewer_may_look_and_not_steer(story: tuple[str, str, str], gateway: Gateway, token: Callable[[str], str]) -> None:
    by_vera = {"SUTURE_CLIENT_URL": gateway.url, "SUTURE_CLIENT_TOKEN_FILE": token("vera")}
    refused = await suture("tasks", "cancel", story[2], **by_vera)
    assert refused.code == 1
    assert refused.err.startswith("AccessDenied: ")


async def test_each_failure_is_one_sentence_and_an_exit_code(database_url: str, story: tuple[str, str, str]) -> None:
    missing = await suture("steps", str(NOBODY), SUTURE_DATABASE_URL=database_url)
    assert (missing.code, missing.err) == (1, f"NotFound: There is no task {NOBODY}.\n")
    ended_ = await suture("tasks", "cancel", story[0], SUTURE_DATABASE_URL=database_url)
    assert ended_.code == 1
    assert ended_.err.startswith(f"IllegalTransition: Task {story[0]} is completed")

    away = await suture("workers", SUTURE_DATABASE_URL="postgresql://127.0.0.1:1/nowhere")
    assert away.code == 3
    assert away.err.startswith("DatabaseUnavailable: ")
    silent = await suture("workers", SUTURE_CLIENT_URL="http://127.0.0.1:1")
    assert silent.code == 3
    assert "SUTURE_CLIENT_URL" in silent.err
    assert (await suture("steps", "not-an-id", SUTURE_DATABASE_URL=database_url)).code == 2
    assert (await suture("workers", SUTURE_DATABASE_URL="mysql://db")).code == 2


async def test_a_terminal_gets_colours_and_a_pipe_gets_none(story: tuple[str, str, str], database_url: str) -> None:
    piped = await suture("tasks", SUTURE_DATABASE_URL=database_url)
    assert "\x1b" not in piped.out

    def in_a_terminal() -> str:
        with Terminal([*COMMAND, "tasks"], environ=environment(SUTURE_DATABASE_URL=database_url), size=(24, 150)) as terminal:
            assert terminal.ended() == 0
            return terminal.shown

    assert "\x1b[31merror" in await asyncio.to_thread(in_a_terminal)


async def test_the_runtime_extra_is_enough(story: tuple[str, str, str], database_url: str, tmp_path: Path) -> None:
    """What `pip install 'suture[runtime]'` does not bring is not there."""
    foreign = ("kopf", "kubernetes", "fastapi", "uvicorn", "ruamel", "githubkit", "aiohttp", "yaml", "prometheus_client", "hishel")
    (tmp_path / "sitecustomize.py").write_text(
        f"""
import sys
class Gone:
    def find_spec(self, name, path=None, target=None):
        if name.split('.')[0] in {foreign!r}:
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Gone())
"""
    )
    here = {"SUTURE_DATABASE_URL": database_url, "PYTHONPATH": str(tmp_path)}
    assert len((await suture("tasks", "--json", **here)).json) == 3
    missing = await suture("diagnose", "x.json", **here)
    assert (missing.code, missing.err) == (1, "ToolMissing: This command needs yaml, which is not installed: pip install 'suture[all]'\n")
