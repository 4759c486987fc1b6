"""Several replicas show one Task: what the one has shown, another that knows less never takes back.

The replicas are keepers in this process, so that who knows what, and who looks when, is the test's choice; the API server and Postgres are
real. A replica hears of a Task by `heed`, as from its watch, and of a row by `moved`, as from its mirror.
"""

import asyncio
import json
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubernetes.aio import client, config

from suture.engine import Database, Engine, Execution, Run, Runner, Workflows, workflow
from suture.errors import PermanentError
from suture.operator.keeper import Keeper
from suture.operator.objects import Objects
from suture.operator.resource import FINALIZER, Task
from suture.remediation.incident import APPROVAL
from tests.cluster.apiserver import ApiServer, eventually
from tests.cluster.echoing import Words
from tests.cluster.operating import Field, end, field, names
from tests.node.programs import BIN

WITHIN = 90.0  # seconds for a runner to bring an execution where a test wants it


@workflow("greet")
async def greet(_: Run, words: Words) -> str:
    return words.text


@workflow("break")
async def break_(_: Run, words: Words) -> str:
    raise PermanentError(words.text)


@workflow("propose")
async def propose(run: Run, _: Words) -> None:
    await run.step("proposal", make_proposal)
    await run.wait(APPROVAL, dict)
    await run.wait("merge", dict)


async def make_proposal() -> dict[str, str]:
    return {"digest": "ab12", "diff": "-a\n+b", "base": "c0ffee"}


def test_a_task_that_is_ready_stays_ready(apiserver: ApiServer, tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        first, second = await scene.two_replicas("greet")
        done = await scene.run_until(lambda row: row.status == "completed")

        await learn(first, done)
        shown = await scene.task()
        await second.heed(shown)  # by the watch, before its mirror has looked

        assert (shown.status["state"], FINALIZER in shown.meta.finalizers) == ("completed", False)
        assert (await scene.task()).status == shown.status
        assert (await scene.task()).meta.finalizers == shown.meta.finalizers

    play(story, apiserver, tmp_path)


def test_an_execution_that_was_requeued_is_not_hidden_by_the_dead_one(apiserver: ApiServer, tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        first, second = await scene.two_replicas("break")
        dead = await scene.run_until(lambda row: row.status == "error")
        await learn(first, dead)
        await learn(second, dead)

        successor = await scene.engine.requeue(dead.id, actor="test")
        await learn(first, successor)
        shown = await scene.task()
        await second.heed(shown)

        assert (shown.status["executionId"], FINALIZER in shown.meta.finalizers) == (str(successor.id), True)
        assert (await scene.task()).status == shown.status
        assert (await scene.task()).meta.finalizers == shown.meta.finalizers

    play(story, apiserver, tmp_path)


def test_replicas_of_which_one_saw_the_question_agree_on_what_was_asked(apiserver: ApiServer, tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        first, second = await scene.two_replicas("propose")
        await learn(first, await scene.run_until(lambda row: row.step == APPROVAL and row.status == "waiting"))
        await scene.engine.emit((await scene.row()).id, APPROVAL, {}, actor="test")
        later = await scene.run_until(lambda row: row.step == "merge" and row.status == "waiting")

        await learn(first, later)
        shown = await scene.task()
        await learn(second, later)
        await second.heed(shown)

        assert shown.status["approval"] == {"digest": "ab12"}
        assert (await scene.task()).status == shown.status

    play(story, apiserver, tmp_path)


def test_a_replica_that_is_cut_off_from_postgres_hides_no_execution(apiserver: ApiServer, tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        await scene.apply("greet")
        printed = await scene.task()
        await scene.replica().heed(printed)
        shown = await scene.task()

        async with Database.connect("postgresql:///suture?host=/nowhere") as nowhere:
            await scene.replica(Engine(nowhere)).heed(printed)

        assert shown.status["state"] == "enqueued"
        assert (await scene.task()).status == shown.status

    play(story, apiserver, tmp_path)


def test_no_watcher_sees_a_finished_task_set_back(apiserver: ApiServer, tmp_path: Path) -> None:
    with field(apiserver, tmp_path) as made:
        made.operator(), made.operator()
        made.worker()
        with watched(made, tmp_path / "seen") as seen:
            made.apply(*[made.task(name) for name in names("task", 30)])
            made.kubectl("wait", "--for=condition=Ready", "task", "--all", "--timeout=90s")
            made.passes(2)
            eventually("the watcher has seen the ends", lambda: (tmp_path / "seen").read_text().count('"state": "completed"') >= 30)

        shown: dict[str, list[str]] = {}
        for task in seen():
            shown.setdefault(task["metadata"]["name"], []).append(task.get("status", {}).get("state", ""))
        assert len(shown) == 30
        after_the_end = {name: states[states.index("completed") :] for name, states in shown.items()}
        assert {name: states for name, states in after_the_end.items() if set(states) != {"completed"}} == {}


@dataclass(frozen=True)
class Scene:
    """One Task, its execution, and those who look at them."""

    made: Field
    engine: Engine
    objects: Objects
    workflows: Workflows

    async def apply(self, workflow: str) -> None:
        await asyncio.to_thread(self.made.apply, self.made.task("web", workflow))

    async def task(self) -> Task:
        """As it is printed now."""
        return await self.objects.get(self.made.namespace, "web")

    async def row(self) -> Execution:
        return (await self.engine.page(labels={"namespace": self.made.namespace}, limit=1))[0]

    def replica(self, engine: Engine | None = None) -> Keeper:
        return Keeper(engine or self.engine, self.objects, self.workflows)

    async def two_replicas(self, workflow: str) -> tuple[Keeper, Keeper]:
        """Two that know of the Task and that its execution is enqueued."""
        await self.apply(workflow)
        first, second = self.replica(), self.replica()
        await first.heed(await self.task())
        await second.heed(await self.task())
        return first, second

    async def run_until(self, reached: Callable[[Execution], bool]) -> Execution:
        """The row, once a runner has brought it there; no runner is left."""
        runner = Runner(self.engine.database, self.workflows, name="test")
        running = asyncio.create_task(runner.run())
        try:
            async with asyncio.timeout(WITHIN):
                while not reached(row := await self.row()):
                    await asyncio.sleep(0.05)
            return row
        finally:
            runner.stop()
            await running


async def learn(replica: Keeper, row: Execution) -> None:
    """As the mirror does with a row that moved."""
    for known in replica.moved(row):
        await replica.settle(known)


def play(story: Callable[[Scene], Awaitable[None]], apiserver: ApiServer, tmp_path: Path) -> None:
    """The story on a field of its own, as the operator's account."""
    with field(apiserver, tmp_path) as made:

        async def told(engine: Engine) -> None:
            access = client.Configuration()
            await config.load_kube_config(str(made.kubeconfig()), client_configuration=access, persist_config=False)  # type: ignore[no-untyped-call]
            async with client.ApiClient(configuration=access) as api:
                await story(Scene(made, engine, Objects(api, namespaces=(made.namespace,)), offered()))

        made.ask(told)


def offered() -> Workflows:
    workflows = Workflows()
    for function in (greet, break_, propose):
        workflows.add(function)
    return workflows


@contextmanager
def watched(made: Field, file: Path) -> Iterator[Callable[[], list[dict[str, Any]]]]:
    """Every version of every Task that is printed during the block, in order; to be asked for after it."""
    command = [BIN / "kubectl", "--kubeconfig", made.apiserver.kubeconfig, "-n", made.namespace, "get", "tasks", "--watch", "-o", "json"]
    with file.open("wb") as output:
        watch = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *map(str, command)], stdout=output)

    def seen() -> list[dict[str, Any]]:
        text, found = file.read_text(), list[dict[str, Any]]()
        while text.strip():
            task, length = json.JSONDecoder().raw_decode(text := text.lstrip())
            found, text = [*found, task], text[length:]
        return found

    try:
        yield seen
    finally:
        end(watch)
