"""Probes, numbers and gauges come from the rows, whoever asks; while Postgres is away they say so."""

import asyncio
import time
from datetime import UTC, datetime, timedelta

from prometheus_client.parser import text_string_to_metric_families

from suture.engine import Limits, Rate
from tests.postgres.api.gateway import Gateway, eventually, is_problem, post, triggered

WORKLOAD = {"workload": {"kind": "Deployment", "namespace": "shop", "name": "web"}}


async def metrics(gateway: Gateway) -> dict[tuple[str, ...], float]:
    text = (await gateway.by("vera").get("/metrics")).text
    return {
        (sample.name, *(f"{name}={value}" for name, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_the_numbers_count_what_there_is(gateway):
    for queue in ("default", "default", "slow"):
        await gateway.engine.enqueue("order", {"number": 1}, actor="test", queue=queue)
    await gateway.engine.enqueue("break", {"number": 1}, actor="test", queue="bad")
    async with gateway.worker("bad"):
        [task] = await gateway.engine.page(queue="bad")
        await gateway.until(task.id, "error")
        found = (await gateway.by("vera").get("/health")).json()
        seen = await metrics(gateway)

    assert [(row["queue"], row["status"], row["count"]) for row in found["depth"]] == [("default", "enqueued", 2), ("slow", "enqueued", 1)]
    assert (found["deadLetters"], [worker["name"] for worker in found["workers"]]) == (1, ["w1"])
    assert found["endings"] == [{"workflow": "break", "attempt": 1, "ended": 1, "failed": 1}]
    assert set(found["latencySeconds"]) == {"p50", "p95", "p99"}
    assert seen["suture_executions", "queue=default", "status=enqueued"] == 2
    assert seen["suture_oldest_seconds", "queue=slow", "status=enqueued"] >= 0
    assert (seen["suture_workers",], seen["suture_dead_letters",], seen["suture_database_up",]) == (1, 1, 1)
    assert seen["suture_failed_last_hour", "attempt=1", "workflow=break"] == 1
    assert seen["suture_start_latency_seconds", "quantile=p95"] >= 0


async def test_what_holds_work_up_is_told(gateway):
    """Paused queues and steps, limits, executions behind their key: whoever is called at night sees why work stands still."""
    engine = gateway.engine
    for key in ("a", "a", "b", None):
        await engine.enqueue("order", {"number": 1}, actor="test", queue="mail", concurrency_key=key)
    await engine.enqueue("order", {"number": 1}, actor="test", queue="mail", run_at=datetime.now(UTC) + timedelta(hours=1))
    await engine.queues.limit("mail", Limits(concurrency=7, per_key=1, rate=Rate(30, timedelta(minutes=1))), actor="anna")
    await engine.queues.pause("night", actor="anna", reason="the printer is on fire")
    await engine.steps.pause("ask", actor="anna", reason="too late at night")
    held = await engine.enqueue("remediate", WORKLOAD, actor="test")
    async with gateway.worker("default"):
        await gateway.until(held.execution.id, "waiting")
    found = (await gateway.by("vera").get("/health")).json()
    seen = await metrics(gateway)

    assert {name: seen[f"suture_queue_{name}", "queue=mail"] for name in ("due", "delayed", "parked", "paused")} == {
        "due": 3,
        "delayed": 1,
        "parked": 1,
        "paused": 0,
    }
    assert 0 <= seen["suture_queue_oldest_due_seconds", "queue=mail"] < 600
    assert seen["suture_queue_concurrency_limit", "queue=mail"] == 7
    assert seen["suture_queue_key_limit", "queue=mail"] == 1
    assert seen["suture_queue_starts_per_second_limit", "queue=mail"] == 0.5
    assert seen["suture_queue_paused", "queue=night"] == 1
    assert ("suture_queue_concurrency_limit", "queue=night") not in seen
    assert seen["suture_step_held", "step=ask", "workflow=*"] == 1
    assert abs(seen["suture_step_paused_timestamp_seconds", "step=ask", "workflow=*"] - time.time()) < 600
    assert [(queue["name"], queue["paused"], queue["reason"]) for queue in found["queues"]] == [
        ("night", True, "the printer is on fire"),
        ("mail", False, ""),
    ]
    assert [(pause["step"], pause["held"], pause["paused_by"]) for pause in found["pausedSteps"]] == [("ask", 1, "anna")]


async def test_schedules_tell_when_they_fire_and_what_they_missed(gateway):
    schedules = gateway.engine.schedules
    await schedules.put("hourly", "order", {"number": 1}, actor="test", every=timedelta(hours=1), missed="skip")
    await schedules.put("odd", "order", {"number": 1}, actor="test", every=timedelta(hours=1))
    await gateway.database.maybe("pause_schedule", "odd", "test", "its row cannot be read")
    async with gateway.database.session() as session:  # nobody has looked for half a day
        await session.connection.execute("update suture.schedules set next_at = now() - interval '12 h 30 min' where name = 'hourly'")
    async with gateway.worker("nothing"):
        await eventually(lambda: schedules.get("hourly"), lambda one: one.missed_count > 0)
    found = (await gateway.by("vera").get("/health")).json()
    seen = await metrics(gateway)

    assert 0 < seen["suture_schedule_next_run_timestamp_seconds", "schedule=hourly"] - time.time() < 3700
    assert seen["suture_schedule_missed_total", "schedule=hourly"] == 13
    assert seen["suture_schedule_fired_total", "schedule=hourly"] == 0
    assert ("suture_schedule_last_run_timestamp_seconds", "schedule=hourly") not in seen
    assert [seen[f"suture_schedule_{what}", f"schedule={name}"] for name in ("hourly", "odd") for what in ("paused", "broken")] == [
        0,
        0,
        1,
        1,
    ]
    assert [(one["name"], one["problem"]) for one in found["schedules"]] == [("odd", "its row cannot be read"), ("hourly", None)]


async def test_there_are_only_so_many_names_however_many_queues_and_keys_there_are(gateway):
    async with gateway.database.session() as session:
        await session.connection.execute(
            """insert into suture.workflow_executions (id, workflow, queue, input, run_at, concurrency_key, changed_by)
               select gen_random_uuid(), 'order', 'tenant-' || n, '{}', now(), 'secret-key-' || n, 'test' from generate_series(1, 900) n"""
        )
        await session.connection.execute(
            """insert into suture.schedules (name, workflow, input, every, next_at, changed_by)
               select 'at-' || n, 'order', '{}', '1 h', now() + interval '1 h', 'test' from generate_series(1, 900) n"""
        )
    await gateway.engine.queues.pause("tenant-900", actor="test")
    text = (await gateway.by("vera").get("/metrics")).text
    seen = await metrics(gateway)

    assert "secret-key" not in text
    for name, label in (("suture_queue_due", "queue"), ("suture_executions", "queue"), ("suture_schedule_paused", "schedule")):
        assert len([key for key in seen if key[0] == name and key[1].startswith(label)]) in (500, 501)
    assert seen["suture_queue_due", "queue=other"] == 400
    assert seen["suture_queue_paused", "queue=tenant-900"] == 1


async def test_a_queue_asks_for_no_workers_that_its_pause_or_limit_would_leave_idle(gateway):
    for _ in range(3):
        await gateway.engine.enqueue("order", {"number": 1}, actor="test", queue="mail")
    await gateway.engine.enqueue("order", {"number": 1}, actor="test", queue="mail", run_at=datetime.now(UTC) + timedelta(hours=1))

    async def value() -> int:
        return int((await gateway.by("vera").get("/scale/mail")).json()["value"])

    assert await value() == 3
    await gateway.engine.queues.limit("mail", Limits(concurrency=2), actor="test")
    assert await value() == 2
    await gateway.engine.queues.pause("mail", actor="test")
    assert await value() == 0


async def test_requests_are_counted_by_their_route_not_their_path(gateway):
    for n in range(5):
        await gateway.by("vera").get(f"/tasks/01930000-0000-7000-8000-00000000000{n}")
        await gateway.by(None).get(f"/nothing/{n}")
    await gateway.by(None).request("BREW", "/tasks")
    await post(gateway.by(None), triggered("Deployment/shop/web"))

    seen = await metrics(gateway)

    routes = {label for key in seen for label in key if label.startswith("route=")}
    assert seen["suture_http_requests_total", "method=GET", "route=/tasks/{id}", "status=404"] == 5
    assert seen["suture_http_requests_total", "method=GET", "route=unmatched", "status=404"] == 5
    assert seen["suture_webhooks_total", "provider=pagerduty", "state=accepted"] == 1
    assert seen["suture_http_request_seconds_count", "method=GET", "route=/tasks/{id}"] == 5
    assert "method=other" in {label for key in seen for label in key}
    assert not [route for route in routes if "nothing" in route or "0193" in route]


async def test_a_queue_tells_its_work_as_one_number(gateway):
    for queue in ("default", "default", "slow"):
        await gateway.engine.enqueue("order", {"number": 1}, actor="test", queue=queue)
    vera = gateway.by("vera")

    assert (await vera.get("/scale/default")).json() == {"queue": "default", "value": 2}
    assert (await vera.get("/scale/unknown")).json() == {"queue": "unknown", "value": 0}
    is_problem(await vera.get("/scale/%00"), 422, "InvalidRequest")


async def test_answers_carry_headers_that_keep_browsers_strict(gateway):
    for path in ("/healthz", "/tasks", "/nothing"):
        headers = (await gateway.by("vera").get(path)).headers
        assert (headers["x-content-type-options"], headers["x-frame-options"], headers["cache-control"]) == ("nosniff", "DENY", "no-store")


async def test_what_nobody_foresaw_is_masked_and_logged(gateway, caplog):
    async with gateway.database.session() as session:  # a row that no version of ours wrote
        await session.connection.execute(
            "insert into suture.approvals (task_id, digest, proposal, expires_at) values (gen_random_uuid(), 'x', '{}', now())"
        )

    answer = await gateway.by("vera").get("/approvals")

    is_problem(answer, 500, "Internal")
    assert "Proposal" not in answer.text
    assert "validation errors for Proposal" in caplog.text
    assert (await gateway.by("vera").get("/tasks")).status_code == 200


async def test_a_look_that_takes_too_long_is_given_up(gateway):
    """Somebody holds a lock on what the numbers are made of; the monitor must not queue up behind it."""
    async with gateway.engine.transaction() as session:
        await session.connection.execute("lock table suture.workers in access exclusive mode")

        begin = asyncio.get_running_loop().time()
        answer = await gateway.by("vera").get("/health")

        is_problem(answer, 503, "DatabaseUnavailable")
        assert asyncio.get_running_loop().time() - begin < 15
        assert (await gateway.by(None).get("/readyz")).status_code == 200
    assert (await gateway.by("vera").get("/health")).status_code == 200
