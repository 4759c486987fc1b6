"""POST /tasks: validated by the workflow's own model, stored exactly, and the same request twice is one task."""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from tests.postgres.api.gateway import is_problem

WORKLOAD = {"kind": "Deployment", "namespace": "shop", "name": "web"}


async def test_a_task_is_created_and_can_be_looked_at(gateway):
    otto = gateway.by("otto")
    body = {
        "type": "order",
        "input": {"number": 7, "note": "żółć ✓"},
        "queue": "slow",
        "priority": 3,
        "deadline": "PT1H",
        "maxAttempts": 4,
        "labels": {"team": "shop"},
        "runAt": "2030-01-01T00:00:00Z",
        "operationKey": "order-7",
    }

    answer = await otto.post("/tasks", json=body)

    found = answer.json()
    assert (answer.status_code, answer.headers["location"]) == (201, f"/tasks/{found['id']}")
    assert {name: found[name] for name in ("type", "input", "queue", "priority", "maxAttempts", "labels", "operationKey", "status")} == {
        **{name: body[name] for name in ("type", "input", "queue", "priority", "maxAttempts", "labels", "operationKey")},
        "status": "enqueued",
    }
    assert datetime.fromisoformat(found["deadline"]) - datetime.fromisoformat(found["createdAt"]) == timedelta(hours=1)
    assert (await otto.get(answer.headers["location"])).json() == found
    assert [(move["actor"], move["toStatus"]) for move in (await otto.get(f"/tasks/{found['id']}/timeline")).json()] == [
        ("otto", "enqueued")
    ]


async def test_a_task_runs_and_shows_its_result_and_steps(gateway):
    otto = gateway.by("otto")
    task = (await otto.post("/tasks", json={"type": "order", "input": {"number": 7}})).json()["id"]

    async with gateway.worker():
        await gateway.until(task, "completed")

    assert (await otto.get(f"/tasks/{task}")).json()["output"] == f"{task}: 7"
    assert (await otto.get(f"/tasks/{task}/steps")).json() == []


async def test_the_same_key_and_body_give_the_same_answer(gateway):
    otto, headers = gateway.by("otto"), {"Idempotency-Key": "k1"}
    body = {"type": "order", "input": {"number": 1}}

    answers = [await otto.post("/tasks", json=body, headers=headers) for _ in range(3)]

    assert [answer.status_code for answer in answers] == [201, 200, 200]
    assert len({answer.text for answer in answers}) == 1


@pytest.mark.parametrize("other", [{"input": {"number": 2}}, {"priority": 1}, {"operationKey": "mine"}, {"labels": {"a": "b"}}])
async def test_the_same_key_with_another_body_is_409(gateway, other):
    otto, headers = gateway.by("otto"), {"Idempotency-Key": "k1"}
    body = {"type": "order", "input": {"number": 1}}
    first = (await otto.post("/tasks", json=body, headers=headers)).json()

    found = is_problem(await otto.post("/tasks", json=body | other, headers=headers), 409, "Conflict")

    assert first["id"] in found["detail"]
    assert len(await gateway.engine.page()) == 1


async def test_two_callers_may_use_the_same_key(gateway):
    body, headers = {"type": "order", "input": {"number": 1}}, {"Idempotency-Key": "k1"}

    answers = [await gateway.by(name).post("/tasks", json=body, headers=headers) for name in ("otto", "anna")]

    assert [answer.status_code for answer in answers] == [201, 201]


async def test_a_key_still_stands_when_its_task_has_ended(gateway):
    otto, headers, body = gateway.by("otto"), {"Idempotency-Key": "k1"}, {"type": "order", "input": {"number": 1}}
    first = (await otto.post("/tasks", json=body, headers=headers)).json()
    async with gateway.worker():
        await gateway.until(first["id"], "completed")

    again = await otto.post("/tasks", json=body, headers=headers)

    assert (again.status_code, again.json()["id"], again.json()["status"]) == (200, first["id"], "completed")


async def test_the_same_request_many_times_at_once_is_one_task(gateway):
    otto, headers, body = gateway.by("otto"), {"Idempotency-Key": "k1"}, {"type": "order", "input": {"number": 1}}

    answers = await asyncio.gather(*(otto.post("/tasks", json=body, headers=headers) for _ in range(20)))

    assert sorted(answer.status_code for answer in answers) == [200] * 19 + [201]
    assert len({answer.json()["id"] for answer in answers}) == 1


async def test_an_operation_key_names_one_task_and_conflicts_with_another_input(gateway):
    otto = gateway.by("otto")
    one = {"type": "order", "operationKey": "o-1", "input": {"number": 1}}

    first, again = [await otto.post("/tasks", json=one) for _ in range(2)]
    other = await otto.post("/tasks", json=one | {"input": {"number": 2}})

    assert (first.status_code, again.status_code, again.json()["id"]) == (201, 200, first.json()["id"])
    assert first.json()["id"] in is_problem(other, 409, "Conflict")["detail"]


async def test_a_remediation_is_one_at_a_time_for_each_workload(gateway):
    otto = gateway.by("otto")
    body = {"type": "remediate", "input": {"workload": WORKLOAD, "title": "down"}}

    first = (await otto.post("/tasks", json=body)).json()
    again = await otto.post("/tasks", json=body)
    await otto.post(f"/tasks/{first['id']}/cancel")
    after = await otto.post("/tasks", json=body)

    assert first["labels"] == {"namespace": "shop", "workload": "Deployment/shop/web"}
    assert (again.status_code, again.json()["id"]) == (200, first["id"])
    assert (after.status_code, after.json()["id"] != first["id"]) == (201, True)


@pytest.mark.parametrize(
    ("body", "reason", "words"),
    [
        ({"type": "nothing"}, "UnknownWorkflow", "Known here: break, order, remediate"),
        ({"type": "order", "input": {"number": "x"}}, "InvalidRequest", "input.number"),
        ({"type": "order"}, "InvalidRequest", "input"),
        ({"type": "remediate", "input": {"workload": {"kind": "Pod"}}}, "InvalidRequest", "input.workload.namespace: Field required"),
        ({}, "InvalidRequest", "type: Field required"),
        ({"type": "order", "priority": "high"}, "InvalidRequest", "priority"),
        ({"type": "order", "pirority": 1}, "InvalidRequest", "pirority"),
        ({"type": "order", "input": {"number": 1, "note": "a\0b"}}, "PayloadUnfit", "body.input.note has a NUL character at 1"),
        ({"type": "order", "labels": {"a": "\ud800"}}, "PayloadUnfit", "body.labels.a has half of a surrogate pair"),
        ({"type": "order", "queue": "no such; queue"}, "InvalidRequest", "queue"),
        ({"type": "order", "labels": {"suture.dev/request": "x"}}, "InvalidRequest", "suture.dev/request is reserved"),
        ({"type": "order", "labels": {"uid": "a-resource-of-another"}}, "InvalidRequest", "uid is reserved"),
        ({"type": "order", "operationKey": "task:ns/name"}, "InvalidRequest", "belong to Task resources"),
        ({"type": "order", "deadline": 3600}, "InvalidRequest", "deadline"),
        ({"type": "order", "deadline": "-PT1H"}, "InvalidRequest", "deadline"),
        ({"type": "order", "deadline": "P4000Y"}, "InvalidRequest", "deadline"),
        ({"type": "order", "runAt": "2030-01-01T00:00:00"}, "InvalidRequest", "runAt"),
        ({"type": "order", "runAt": "9999-12-31T23:59:59-12:00"}, "InvalidRequest", "runAt: a duration lies between"),
        ({"type": "order", "maxAttempts": 0}, "InvalidRequest", "maxAttempts"),
        ({"type": "order", "operationKey": "x" * 513}, "InvalidRequest", "operationKey"),
        ([], "InvalidRequest", "must be a JSON object"),
    ],
)
async def test_what_does_not_fit_is_422_and_names_the_field(gateway, body, reason, words):
    answer = await gateway.by("otto").post("/tasks", content=json.dumps(body))

    assert words in is_problem(answer, 422, reason)["detail"]
    assert await gateway.engine.page() == []


@pytest.mark.parametrize("body", [b"{", b"\xff", b'{"type": "order", "input": ' + b"[" * 60_000, b"nonsense"])
async def test_what_is_no_json_is_422(gateway, body):
    is_problem(await gateway.by("otto").post("/tasks", content=body), 422, "InvalidRequest")


async def test_an_announced_body_over_the_limit_is_413_before_it_is_sent(gateway):
    host, port = gateway.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"POST /tasks HTTP/1.1\r\nHost: x\r\nContent-Length: 70000\r\n\r\n")  # and nothing of the body

    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)

    assert head.startswith(b"HTTP/1.1 413 ")
    assert b"application/problem+json" in head
    assert b"connection: close" in head.lower()
    writer.close()


async def test_a_chunked_body_is_cut_at_the_limit(gateway):
    host, port = gateway.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"POST /tasks HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
    for _ in range(20):  # 80 kB and no last chunk
        writer.write(b"1000\r\n" + b" " * 4096 + b"\r\n")

    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)

    assert head.startswith(b"HTTP/1.1 413 ")
    writer.close()


async def test_cancel_is_repeatable_and_refused_after_another_end(gateway):
    otto = gateway.by("otto")
    task = (await otto.post("/tasks", json={"type": "order", "input": {"number": 1}})).json()["id"]
    answers = [await otto.post(f"/tasks/{task}/cancel", json={"reason": "not needed"}) for _ in range(2)]
    done = (await otto.post("/tasks", json={"type": "order", "input": {"number": 2}})).json()["id"]
    async with gateway.worker():
        await gateway.until(done, "completed")

    refusal = is_problem(await otto.post(f"/tasks/{done}/cancel"), 409, "IllegalTransition")

    assert [(answer.status_code, answer.json()["status"], answer.json()["reason"]) for answer in answers] == [
        (200, "cancelled", "not needed")
    ] * 2
    assert "is completed" in refusal["detail"]
    assert "Allowed are" in refusal["detail"]


async def test_cancelling_withdraws_the_question(gateway):
    task = await gateway.asking()

    await gateway.by("otto").post(f"/tasks/{task.id}/cancel")

    assert (await gateway.records.approval(task.id)).state == "void"


async def test_a_dead_letter_is_listed_and_runs_again_once(gateway):
    otto = gateway.by("otto")
    task = (await otto.post("/tasks", json={"type": "break", "input": {"number": 1}})).json()["id"]
    async with gateway.worker():
        await gateway.until(task, "error")
    [letter] = (await otto.get("/dead-letters")).json()["items"]

    again = await otto.post(f"/tasks/{task}/retry", json={"fromStep": "start"})
    twice = await otto.post(f"/tasks/{task}/retry")

    assert (letter["taskId"], letter["type"], letter["requeuedAs"]) == (task, "break", None)
    assert (again.status_code, again.json()["forkedFrom"], again.json()["status"]) == (201, task, "enqueued")
    assert task in is_problem(twice, 409, "IllegalTransition")["detail"]


async def test_what_is_no_dead_letter_cannot_run_again(gateway):
    otto = gateway.by("otto")
    task = (await otto.post("/tasks", json={"type": "order", "input": {"number": 1}})).json()["id"]

    assert "is enqueued" in is_problem(await otto.post(f"/tasks/{task}/retry"), 409, "IllegalTransition")["detail"]


async def test_pages_follow_each_other_without_gap_or_repeat(gateway):
    otto = gateway.by("otto")
    ids = [(await otto.post("/tasks", json={"type": "order", "input": {"number": n}, "queue": "a"})).json()["id"] for n in range(7)]
    await otto.post("/tasks", json={"type": "order", "input": {"number": 9}, "queue": "b"})

    address, seen = "/tasks?queue=a&limit=3", []
    while address:
        answer = await otto.get(address)
        seen += [task["id"] for task in answer.json()["items"]]
        address = answer.json()["next"]
        assert ("link" in answer.headers) == bool(address)

    assert seen == ids[::-1]


async def test_tasks_are_filtered(gateway):
    otto = gateway.by("otto")
    await otto.post("/tasks", json={"type": "order", "input": {"number": 1}})
    wanted = (await otto.post("/tasks", json={"type": "remediate", "input": {"workload": WORKLOAD}})).json()
    soon = (datetime.now(UTC) + timedelta(hours=1)).isoformat()

    async def ids(**query):
        return [task["id"] for task in (await otto.get("/tasks", params=query)).json()["items"]]

    assert await ids(workload="Deployment/shop/web") == [wanted["id"]]
    assert await ids(type="remediate", status="enqueued") == [wanted["id"]]
    assert await ids(status=["completed", "error"]) == []
    assert (await ids(createdAfter=soon), len(await ids(createdBefore=soon))) == ([], 2)


@pytest.mark.parametrize(
    "query",
    [
        "status=nothing",
        "limit=0",
        "limit=x",
        "before=x",
        "type=%00",
        "workload=%00",
        "queue=%00",
        "createdAfter=yesterday",
        "createdBefore=9999-12-31T23:59:59-12:00",
    ],
)
async def test_a_wrong_filter_is_422(gateway, query):
    is_problem(await gateway.by("vera").get(f"/tasks?{query}"), 422, "InvalidRequest")


@pytest.mark.parametrize("path", ["", "/timeline", "/steps", "/approval"])
async def test_what_is_not_there_is_404(gateway, path):
    missing = uuid4()

    assert str(missing) in is_problem(await gateway.by("vera").get(f"/tasks/{missing}{path}"), 404, "NotFound")["detail"]
    is_problem(await gateway.by("vera").get(f"/tasks/no-uuid{path}"), 422, "InvalidRequest")


async def test_a_queue_is_paused_and_resumed(gateway):
    otto = gateway.by("otto")
    paused = await otto.post("/queues/default/pause")
    task = (await otto.post("/tasks", json={"type": "order", "input": {"number": 1}})).json()["id"]
    other = (await otto.post("/tasks", json={"type": "order", "input": {"number": 2}, "queue": "other"})).json()["id"]

    async with gateway.worker("default", "other"):
        await gateway.until(other, "completed")
        assert (await gateway.engine.get(task)).status == "enqueued"
        resumed = await otto.post("/queues/default/resume")
        await gateway.until(task, "completed")

    assert [(one.json()["name"], one.json()["paused"]) for one in (paused, resumed)] == [("default", True), ("default", False)]
