"""What public reports tell of alerts that were told over and over, done to ours: E26."""

import asyncio
from collections import Counter
from datetime import timedelta

from suture.engine import Run, workflow
from suture.engine.lease import tidy
from tests.postgres.engine.stage import ended, eventually, reached, running

PODS, MINUTES = 30, 10
WORKLOAD = "remediate:shop/Deployment/web"


class Chat:
    """Messages by thread; the same thread is edited."""

    def __init__(self) -> None:
        self.posted: list[str] = []

    async def find(self) -> str | None:
        return self.posted[0] if self.posted else None

    async def post(self) -> str:
        self.posted.append("web/app: CrashLoopBackOff, exit code 1")
        return self.posted[-1]


@workflow("tell")
async def tell(run: Run, _: dict[str, str]) -> str:
    chat: Chat = run.resources
    await run.effect("post", key=WORKLOAD, find=chat.find, act=chat.post, returns=str)
    return str(await run.wait("resolved", str, timeout=timedelta(hours=1)))


async def test_e26_thirty_pods_that_crash_for_ten_minutes_are_one_task_and_one_message(engine, database, pass_time):
    """k8sgpt#1266, robusta#305: one message a pod, every few seconds. The fingerprint here is the workload's, not the pod's."""
    chat = Chat()
    incident = {"workload": "Deployment/web", "container": "app"}
    answers = []
    async with running(database, tell, resources=chat):
        for minute in range(MINUTES):
            at_once = (engine.enqueue("tell", incident, actor=f"pod {n}", operation_key=WORKLOAD) for n in range(PODS))
            answers += await asyncio.gather(*at_once)
            if minute == 0:
                await reached(engine, answers[0].execution.id, "waiting")
            await pass_time(60)
        (id_,) = {answer.execution.id for answer in answers}
        await engine.emit(id_, "resolved", "by itself", actor="alertmanager")
        assert (await ended(engine, id_)).output == "by itself"
        await tidy(database, keep_ended=timedelta(0), keep_workers=timedelta(days=1))
        late = await engine.enqueue("tell", incident, actor="a late pod", operation_key=WORKLOAD)
    assert (late.execution.id, late.created) == (id_, False)
    assert [answer.created for answer in answers].count(True) == 1
    assert chat.posted == ["web/app: CrashLoopBackOff, exit code 1"]


async def test_e26_a_worker_that_dies_between_the_message_and_its_checkpoint_tells_it_once(engine, workers, tmp_path):
    """The place at which others told it twice; every other place is in test_effects_happen_exactly_once."""
    world = tmp_path / "rehearsal"
    world.mkdir()
    task = (await engine.enqueue("effects", None, actor="test", queue="rehearsal")).execution
    worker = workers.start(world=str(world), queue="rehearsal")
    await ended(engine, task.id)
    worker.signal(15)
    await worker.gone()
    places = (world / "boundaries").read_text().splitlines()

    world = tmp_path / "told"
    world.mkdir()
    task = (await engine.enqueue("effects", None, actor="test", queue="told")).execution
    first = workers.start(world=str(world), queue="told", kill_at=places.index("after announce") + 1)
    await first.gone(within=60)

    async def told() -> bool:
        return bool(list(world.glob("announce.*")))

    await eventually(told)
    workers.start(world=str(world), queue="told")
    assert (await ended(engine, task.id, within=60)).status == "completed"
    assert Counter(path.name.split(".")[0] for path in world.iterdir())["announce"] == 1
