"""Approvals: the first answer counts, and every later one is told what stands. Rows and execution change together."""

import asyncio

import pytest

from suture.remediation.incident import Decision, answer_event
from tests.postgres.api.gateway import PROPOSAL, is_problem

DIGEST = {"digest": PROPOSAL.digest}
NO = {"digest": PROPOSAL.digest, "reason": "wrong tag"}


async def test_the_proposal_is_shown_with_all_that_an_answer_needs(gateway):
    task = await gateway.asking()
    vera = gateway.by("vera")

    found = (await vera.get(f"/tasks/{task.id}/approval")).json()

    proposal = found["proposal"]
    assert (found["taskId"], found["state"], found["decision"]) == (str(task.id), "pending", None)
    assert (proposal["digest"], proposal["diff"], proposal["files"]) == (PROPOSAL.digest, PROPOSAL.diff, ["apps/web.yaml"])
    assert proposal["cause"]["citations"][0]["value"] == PROPOSAL.cause.citations[0].value
    assert [question["taskId"] for question in (await vera.get("/approvals?state=pending")).json()["items"]] == [str(task.id)]
    assert [step["name"] for step in (await vera.get(f"/tasks/{task.id}/steps")).json()] == ["diagnose", "ask"]


@pytest.mark.parametrize(("verb", "verdict", "body"), [("approve", "approved", DIGEST), ("reject", "rejected", NO)])
async def test_an_answer_lets_the_task_go_on_with_it(gateway, verb, verdict, body):
    task = await gateway.asking()

    answer = await gateway.by("anna").post(f"/tasks/{task.id}/{verb}", json=body)

    assert (answer.status_code, answer.json()["state"]) == (200, verdict)
    assert answer.json()["decision"] == {"verdict": verdict, "by": "anna", "reason": body.get("reason", ""), "digest": PROPOSAL.digest}
    async with gateway.worker():
        ended = await gateway.until(task.id, "completed")
    assert ended.output["state"] == verdict
    assert "anna" in [move.actor for move in await gateway.engine.timeline(task.id)]


async def test_the_same_answer_again_changes_nothing_even_after_the_end(gateway):
    task = await gateway.asking()
    anna = gateway.by("anna")

    answers = [await anna.post(f"/tasks/{task.id}/approve", json=DIGEST) for _ in range(2)]
    async with gateway.worker():
        await gateway.until(task.id, "completed")
    answers.append(await anna.post(f"/tasks/{task.id}/approve", json=DIGEST))

    assert [answer.status_code for answer in answers] == [200] * 3
    assert len({answer.text for answer in answers}) == 1


async def test_a_conflicting_or_later_answer_is_told_who_decided(gateway):
    task = await gateway.asking()
    await gateway.by("anna").post(f"/tasks/{task.id}/approve", json=DIGEST)

    refusals = [
        is_problem(await gateway.by("anna").post(f"/tasks/{task.id}/reject", json=NO), 409, "Conflict"),
        is_problem(await gateway.by("abel").post(f"/tasks/{task.id}/approve", json=DIGEST), 409, "Conflict"),
    ]

    assert all(f"Task {task.id} was approved by anna" in refusal["detail"] for refusal in refusals)


async def test_of_many_clicks_at_once_one_counts(gateway):
    task = await gateway.asking()
    people = [gateway.by(name) for name in ("anna", "abel") * 6]

    answers = await asyncio.gather(
        *(one.post(f"/tasks/{task.id}/{'approve' if n % 3 else 'reject'}", json=NO) for n, one in enumerate(people))
    )

    stands = await gateway.records.approval(task.id)
    decided = (stands.decision.by, stands.decision.verdict)
    good = [answer.json()["decision"] for answer in answers if answer.status_code == 200]
    assert {answer.status_code for answer in answers} == {200, 409}
    assert {(decision["by"], decision["verdict"]) for decision in good} == {decided}
    async with gateway.worker():
        assert (await gateway.until(task.id, "completed")).output["state"] == decided[1]


async def test_the_row_never_says_another_thing_than_the_execution_heard(gateway):
    task = await gateway.asking()
    heard = Decision(verdict="rejected", by="abel", reason="no", digest=PROPOSAL.digest)
    await gateway.engine.emit(task.id, answer_event(PROPOSAL.digest), heard.model_dump(mode="json"), actor="abel")

    refusal = is_problem(await gateway.by("anna").post(f"/tasks/{task.id}/approve", json=DIGEST), 409, "Conflict")

    assert "was answered by abel" in refusal["detail"]
    assert (await gateway.records.approval(task.id)).decision is None


async def test_an_answer_to_another_change_is_refused_and_leaves_nothing(gateway):
    task = await gateway.asking()

    refusal = is_problem(await gateway.by("anna").post(f"/tasks/{task.id}/approve", json={"digest": "b" * 64}), 409, "Conflict")

    assert "not the one that you looked at" in refusal["detail"]
    assert (await gateway.records.approval(task.id)).state == "pending"
    assert (await gateway.engine.get(task.id)).status == "waiting"
    assert (await gateway.by("anna").post(f"/tasks/{task.id}/approve", json=DIGEST)).status_code == 200


async def test_an_answer_after_the_time_is_over_is_refused(gateway):
    task = await gateway.asking()
    connection = gateway.database
    async with connection.session() as session:
        await session.connection.execute("update suture.approvals set expires_at = now() - interval '1 second'")

    refusal = is_problem(await gateway.by("anna").post(f"/tasks/{task.id}/approve", json=DIGEST), 409, "Conflict")

    assert "expired" in refusal["detail"]
    assert (await gateway.engine.get(task.id)).status == "waiting"


async def test_an_answer_to_a_cancelled_task_is_refused(gateway):
    task = await gateway.asking()
    await gateway.by("otto").post(f"/tasks/{task.id}/cancel")

    refusal = is_problem(await gateway.by("anna").post(f"/tasks/{task.id}/approve", json=DIGEST), 409, "IllegalTransition")

    assert "is cancelled" in refusal["detail"]


async def test_a_task_that_asks_nothing_cannot_be_answered(gateway):
    task = (await gateway.by("otto").post("/tasks", json={"type": "order", "input": {"number": 1}})).json()["id"]

    is_problem(await gateway.by("anna").post(f"/tasks/{task}/approve", json=DIGEST), 404, "NotFound")
    assert (await gateway.engine.get(task)).status == "enqueued"


@pytest.mark.parametrize(
    ("verb", "body", "words"),
    [
        ("reject", DIGEST, "a rejection needs a reason"),
        ("reject", {**DIGEST, "reason": "  "}, "a rejection needs a reason"),
        ("approve", {}, "digest: Field required"),
        ("approve", {"digest": "a\0b"}, "NUL"),
        ("approve", {**DIGEST, "by": "somebody else"}, "by"),
    ],
)
async def test_an_incomplete_answer_is_422(gateway, verb, body, words):
    task = await gateway.asking()

    answer = await gateway.by("anna").post(f"/tasks/{task.id}/{verb}", json=body)

    assert answer.status_code == 422
    assert words in answer.json()["detail"]
    assert (await gateway.records.approval(task.id)).state == "pending"


async def test_who_is_no_approver_cannot_answer(gateway):
    task = await gateway.asking()

    for name in ("vera", "otto"):
        refusal = is_problem(await gateway.by(name).post(f"/tasks/{task.id}/approve", json=DIGEST), 403, "AccessDenied")
        assert "needs approver" in refusal["detail"]


async def test_the_pull_request_of_a_task_is_listed(gateway):
    task = await gateway.asking()
    await gateway.records.record_pull_request(
        repository="shop/manifests", branch=PROPOSAL.branch, task_id=task.id, commit="c" * 40, url="https://x.example/1", proposal=PROPOSAL
    )

    [found] = (await gateway.by("vera").get(f"/pull-requests?taskId={task.id}")).json()["items"]

    assert (found["repository"], found["branch"], found["taskId"]) == ("shop/manifests", PROPOSAL.branch, str(task.id))


async def test_a_task_that_moves_is_streamed(gateway):
    vera = gateway.by("vera")
    async with vera.stream("GET", "/tasks/stream?label=workload") as answer:
        lines = answer.aiter_lines()
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert await anext(lines) == "retry: 2000"
        task = await gateway.asking()
        async with asyncio.timeout(60):
            seen = [line async for line in _until(lines, f"id: {task.id}")]

    assert "event: task" in seen


async def _until(lines, last):
    async for line in lines:
        yield line
        if line == last:
            return
