"""PagerDuty's envelopes, over a real socket: each is stored with what it starts, once, and only then answered."""

import asyncio
import json

import pytest

from suture.engine import Execution
from suture.remediation.incident import Decision, Workload, answer_event
from tests.postgres.api.gateway import (
    ENVELOPES,
    PROPOSAL,
    Envelope,
    Gateway,
    eventually,
    is_problem,
    post,
    running,
    sealed,
    signed,
    triggered,
)

NAMES = sorted(path.stem for path in ENVELOPES.glob("pagerduty-*.json"))
HUGE = 1 << 16


async def tasks(gateway: Gateway) -> list[Execution]:
    return await gateway.engine.page()


def test_there_are_envelopes():
    assert len(NAMES) >= 13


@pytest.mark.parametrize("name", NAMES)
async def test_a_vendors_envelope_is_stored_and_accepted(gateway, name):
    envelope = Envelope.read(name)

    answer = await post(gateway.by(None), envelope)

    expected = "unmatched" if name == "pagerduty-incident-triggered" else "ignored"  # these name a service, and no workload
    [delivery] = await gateway.records.deliveries()
    assert (answer.status_code, answer.json()["state"]) == (202, expected)
    assert (delivery.delivery_id, delivery.state, delivery.size) == (envelope.headers["X-Webhook-Id"], expected, len(envelope.body))
    assert delivery.event_type == json.loads(envelope.body)["event"]["event_type"]
    assert await tasks(gateway) == []


async def test_the_vendors_own_signature_is_accepted_and_its_mismatch_refused(database_url):
    vector = json.loads((ENVELOPES / "vectors.json").read_text())["pagerduty"]
    async with running(database_url, secret=f"an-older-one,{vector['secret']}") as gateway:
        for signature in vector["mismatch"]:
            is_problem(
                await post(gateway.by(None), Envelope({"X-PagerDuty-Signature": signature}, vector["raw_body"].encode())),
                401,
                "Unauthenticated",
            )
        for signature in vector["valid"]:
            answer = await post(gateway.by(None), Envelope({"X-PagerDuty-Signature": signature}, vector["raw_body"].encode()))
            assert answer.status_code == 202


@pytest.mark.parametrize(
    "envelope",
    [
        triggered(details={"namespace": "shop", "deployment": "web", "cluster": "eu-1"}),
        triggered(details={"Kind": "deployment", "Namespace": "shop", "workload": "web", "cluster": "eu-1"}),
        triggered(details={"workload": "Deployment/shop/web", "cluster": "eu-1"}, title="Job/other/thing failed"),
        triggered(custom_details={"namespace": "shop", "deployment": "web", "cluster": "eu-1"}),
        triggered(alerts=[{"id": "A1"}, {"body": {"details": {"namespace": "shop", "deployment": "web", "cluster": "eu-1"}}}]),
    ],
    ids=["details", "kind and workload", "before the title", "custom details", "an alert's details"],
)
async def test_an_incident_becomes_the_task_of_the_workload_in_its_details(gateway, envelope):
    answer = await post(gateway.by(None), envelope)

    [task] = await tasks(gateway)
    about = Workload(kind="Deployment", namespace="shop", name="web", cluster="eu-1")
    assert (answer.status_code, answer.json()["taskId"]) == (202, str(task.id))
    assert (task.workflow, task.operation_key) == ("remediate", about.key)
    assert task.labels == {"namespace": "shop", "workload": "Deployment/shop/web", "pagerduty": "PINC777"}
    assert task.input["workload"] == about.model_dump()
    assert (task.input["signal"], task.input["reference"]) == ("pagerduty", "PINC777")
    assert [(move.actor, move.reason) for move in await gateway.engine.timeline(task.id)] == [("pagerduty", "PagerDuty incident PINC777")]


@pytest.mark.parametrize(
    ("title", "key", "expected"),
    [
        ("CronJob/batch/nightly.v2 failed", None, "CronJob/batch/nightly.v2"),
        ("[FIRING] statefulset/db/pg is down", None, "StatefulSet/db/pg"),
        ("Deployment/a/b", "DaemonSet/kube-system/agent", "DaemonSet/kube-system/agent"),
        ("Deployment/Shop/web", None, None),
        ("see https://x.example/Deployment/shop/web", None, None),
        ("Deployment/shop", None, None),
    ],
)
async def test_without_details_the_key_and_then_the_title_name_the_workload(gateway, title, key, expected):
    answer = await post(gateway.by(None), triggered(title, incident_key=key))

    assert answer.json()["state"] == ("accepted" if expected else "unmatched")
    assert [task.labels["workload"] for task in await tasks(gateway)] == ([expected] if expected else [])


async def test_a_second_incident_of_a_living_workload_joins_its_task(gateway):
    first = await post(gateway.by(None), triggered("Deployment/shop/web down", incident="P1"))
    second = await post(gateway.by(None), triggered("Deployment/shop/web still down", incident="P2"))

    [task] = await tasks(gateway)
    assert second.status_code == 202
    assert first.json()["taskId"] == second.json()["taskId"] == str(task.id)
    assert (await gateway.records.deliveries())[0].note == f"joined task {task.id}"


async def test_an_incident_after_the_end_of_the_last_one_opens_a_new_task(gateway):
    await post(gateway.by(None), triggered("Deployment/shop/web", incident="P1"))
    [first] = await tasks(gateway)
    await gateway.engine.cancel(first.id, actor="test")

    await post(gateway.by(None), triggered("Deployment/shop/web", incident="P1"))

    assert len(await tasks(gateway)) == 2


async def test_forty_incidents_of_one_workload_at_once_are_one_task(gateway):
    client = gateway.by(None)

    answers = await asyncio.gather(*(post(client, triggered(f"Deployment/shop/web {n}", incident=f"P{n}")) for n in range(40)))

    assert {answer.status_code for answer in answers} == {202}
    assert len(await tasks(gateway)) == 1
    assert len({answer.json()["taskId"] for answer in answers}) == 1


async def test_a_delivery_that_comes_again_changes_nothing(gateway):
    envelope = triggered("Deployment/shop/web")

    answers = [await post(gateway.by(None), envelope) for _ in range(3)]

    assert [answer.status_code for answer in answers] == [202, 200, 200]
    assert (len(await gateway.records.deliveries()), len(await tasks(gateway))) == (1, 1)


async def test_an_event_that_comes_again_under_another_delivery_id_changes_nothing(gateway):
    """The header is not signed: whoever recorded a body can send it with any id."""
    envelope = triggered("Deployment/shop/web")
    await post(gateway.by(None), envelope)
    [task] = await tasks(gateway)
    await gateway.engine.cancel(task.id, actor="test")

    answer = await post(gateway.by(None), envelope, **{"X-Webhook-Id": "another"})

    assert answer.json()["state"] == "duplicate"
    assert (len(await gateway.records.deliveries()), len(await tasks(gateway))) == (1, 1)


async def test_without_a_delivery_id_the_body_is_the_key(gateway):
    envelope = sealed(b"not json at all")
    headers = {name: value for name, value in envelope.headers.items() if name != "X-Webhook-Id"}

    answers = [await post(gateway.by(None), Envelope(headers, envelope.body)) for _ in range(2)]

    assert [answer.status_code for answer in answers] == [202, 200]


async def test_two_identical_deliveries_at_once_are_one(gateway):
    envelope = triggered("Deployment/shop/web")

    answers = await asyncio.gather(*(post(gateway.by(None), envelope) for _ in range(8)))

    assert sorted(answer.status_code for answer in answers) == [200] * 7 + [202]
    assert (len(await gateway.records.deliveries()), len(await tasks(gateway))) == (1, 1)


@pytest.mark.parametrize(
    "body",
    [
        b"not json",
        b"[]",
        b"{}",
        b'{"event": null}',
        b'{"event": {"event_type": 7, "data": {}}}',
        b'{"messages": []}',
        b"\xff\xfe",
        b"[" * 60_000,
        b"",
    ],
    ids=["text", "list", "object", "null", "number", "v1", "no utf-8", "deep", "empty"],
)
async def test_a_malformed_body_with_a_good_signature_is_kept_and_accepted(gateway, body):
    answer = await post(gateway.by(None), sealed(body))

    [delivery] = await gateway.records.deliveries()
    assert (answer.status_code, answer.json()["state"], delivery.state, delivery.size) == (202, "malformed", "malformed", len(body))


async def test_text_that_postgres_cannot_keep_does_not_refuse_an_incident(gateway):
    """A validation error of ours, answered with 4xx three times, would switch the subscription off."""
    answer = await post(gateway.by(None), triggered("Deployment/shop/web \0 \ud800 down", incident="P\0", html_url="\0" * 5000))

    [task] = await tasks(gateway)
    assert answer.status_code == 202
    assert task.input["title"] == "Deployment/shop/web \ufffd \ufffd down"
    assert len(task.input["url"]) == 2048


@pytest.mark.parametrize("event", ["pagey.ping", "incident.something_new", "service.deleted"])
async def test_an_unknown_event_is_accepted_and_starts_nothing(gateway, event):
    answer = await post(gateway.by(None), signed({"event_type": event, "data": {}}))

    assert (answer.status_code, answer.json()["state"]) == (202, "ignored")


async def test_resolved_withdraws_the_question_of_the_task_that_the_incident_opened(gateway):
    task = await gateway.asking(pagerduty="PINC001")
    other = await gateway.asking(pagerduty="PINC002")

    answer = await post(gateway.by(None), Envelope.read("pagerduty-incident-resolved"))

    cancelled = await gateway.engine.get(task.id)
    assert answer.json() == {"state": "accepted", "note": f"cancelled task {task.id}", "taskId": str(task.id)}
    assert (cancelled.status, cancelled.reason) == ("cancelled", "resolved in PagerDuty")
    assert (await gateway.records.approval(task.id)).state == "void"
    assert (await gateway.engine.get(other.id)).status == "waiting"


async def test_resolved_without_an_id_closes_nothing(gateway):
    task = await gateway.asking(pagerduty="")

    answer = await post(gateway.by(None), signed({"event_type": "incident.resolved", "data": {"type": "incident"}}))

    assert (answer.status_code, answer.json()["state"]) == (202, "ignored")
    assert (await gateway.engine.get(task.id)).status == "waiting"


async def test_resolved_after_the_approval_leaves_the_change_on_its_way(gateway):
    task = await gateway.asking(pagerduty="PINC001")
    await gateway.by("anna").post(f"/tasks/{task.id}/approve", json={"digest": PROPOSAL.digest})

    answer = await post(gateway.by(None), Envelope.read("pagerduty-incident-resolved"))

    assert answer.json()["state"] == "ignored"
    assert (await gateway.engine.get(task.id)).status == "enqueued"
    assert (await gateway.records.approval(task.id)).state == "approved"


async def test_resolved_at_the_moment_of_the_approval_waits_for_it_and_then_leaves_the_change(gateway):
    task = await gateway.asking(pagerduty="PINC001")
    decision = Decision(verdict="approved", by="anna", digest=PROPOSAL.digest)
    async with gateway.engine.transaction() as session:
        await gateway.engine.emit(task.id, answer_event(decision.digest), decision.model_dump(mode="json"), actor="anna", session=session)
        await gateway.records.decide(session, task.id, decision)
        resolving = asyncio.create_task(post(gateway.by(None), Envelope.read("pagerduty-incident-resolved")))
        await eventually(lambda: blocked(gateway), bool)

    assert (await resolving).json()["state"] == "ignored"
    assert (await gateway.engine.get(task.id)).status == "enqueued"


async def blocked(gateway: Gateway) -> bool:
    """Whether somebody waits for a lock in this database."""
    async with gateway.database.session() as session:
        waiting = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
        return bool(await session.connection.fetchval(waiting))


async def test_resolved_leaves_a_task_that_does_not_wait_for_approval(gateway):
    await post(gateway.by(None), triggered("Deployment/shop/web", incident="PINC001"))

    answer = await post(gateway.by(None), Envelope.read("pagerduty-incident-resolved-merged"))

    [task] = await tasks(gateway)
    assert (answer.status_code, answer.json()["state"], task.status) == (202, "ignored", "enqueued")


async def test_a_body_over_the_limit_is_413(gateway):
    is_problem(await post(gateway.by(None), sealed(b" " * (HUGE + 1))), 413, "PayloadTooLarge")
