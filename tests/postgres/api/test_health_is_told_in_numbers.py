"""Probes, numbers and gauges come from the rows, whoever asks; while Postgres is away they say so."""

import asyncio

from prometheus_client.parser import text_string_to_metric_families

from tests.postgres.api.gateway import Gateway, is_problem, post, triggered


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
        assert asyncio.get_running_loop().time() - begin < 7
        assert (await gateway.by(None).get("/readyz")).status_code == 200
    assert (await gateway.by("vera").get("/health")).status_code == 200
