"""Webhooks: store first, then answer. Each delivery and what it starts commit together, and only then the sender hears 2xx.

A sender drops what it is refused with 4xx, and PagerDuty switches a subscription off after three of them: 4xx is for a wrong signature
alone, our own trouble is 503. What PagerDuty's envelopes mean is in `pagerduty`.
"""

import json
import logging
from typing import NamedTuple
from uuid import UUID

from fastapi import APIRouter, Request, Response

from suture.api import pagerduty
from suture.api.gateway import Gateway, Here
from suture.api.pagerduty import PROVIDER, Event
from suture.api.patience import within
from suture.api.problems import documented
from suture.api.shapes import Shape
from suture.api.signatures import is_signed
from suture.api.tasks import labels_of, withdraw
from suture.engine import LIVE, Execution, Session
from suture.errors import Conflict, ServiceUnavailable, Unauthenticated
from suture.remediation.incident import WORKFLOW, Workload, is_asking
from suture.remediation.records import DeliveryState

log = logging.getLogger(__name__)

router = APIRouter(prefix="/webhooks", tags=["webhooks"])

ANSWER_LIMIT = 4.5  # seconds; PagerDuty gives up after 5, and a late COMMIT makes its retry a no-op

_KEPT_HEADERS = ("content-type", "user-agent", "x-webhook-id", "x-webhook-subscription")


class Receipt(Shape):
    """What became of a delivery."""

    state: str
    note: str = ""
    task_id: UUID | None = None


class Verdict(NamedTuple):
    state: DeliveryState
    note: str = ""
    task_id: UUID | None = None


@router.post("/pagerduty", status_code=202, responses=documented(401, 413, 503) | {200: {"model": Receipt, "description": "Came before"}})
async def receive_pagerduty(request: Request, response: Response, gateway: Here) -> Receipt:
    """A V3 subscription's events, signed with its secret. The same delivery, or event, again changes nothing (200)."""
    body = await request.body()
    _check(gateway, body, b",".join(_raw(request, b"x-pagerduty-signature")))
    receipt = await within(ANSWER_LIMIT, _admit(gateway, request, body))
    gateway.traffic.delivered(PROVIDER, receipt.state)
    log.info("a webhook of PagerDuty was received", extra={"state": receipt.state, "task": str(receipt.task_id or "")})
    response.status_code = 200 if receipt.state == "duplicate" else 202
    return receipt


def _check(gateway: Gateway, body: bytes, header: bytes) -> None:
    """Raises: Unauthenticated. ServiceUnavailable without a secret: the sender shall try again, not give up."""
    if not gateway.pagerduty_secrets:
        raise ServiceUnavailable("No signing secret is configured. Set SUTURE_API_PAGERDUTY_SECRET.")
    if not is_signed(body, header, gateway.pagerduty_secrets):
        raise Unauthenticated("No signature in X-PagerDuty-Signature fits this body and a configured secret.")


async def _admit(gateway: Gateway, request: Request, body: bytes) -> Receipt:
    """Store the delivery and do what it asks, in one transaction."""
    event = pagerduty.read(body)
    id = pagerduty.delivery_id(next(iter(_raw(request, b"x-webhook-id")), None), body)  # noqa: A001
    async with gateway.engine.transaction() as session:
        new = await gateway.records.keep_delivery(
            session,
            PROVIDER,
            id,
            event_type=event.type if event else "",
            headers={name: pagerduty.text(value, 1024) for name in _KEPT_HEADERS if (value := request.headers.get(name))},
            body=body,
            event_id=(event.id if event else "") or pagerduty.digest(body),
        )
        if not new:
            return Receipt(state="duplicate", note="this delivery, or its event, came before")
        verdict = await _follow(gateway, session, event)
        await gateway.records.mark_delivery(session, PROVIDER, id, state=verdict.state, note=verdict.note, task_id=verdict.task_id)
    return Receipt(**verdict._asdict())


async def _follow(gateway: Gateway, session: Session, event: Event | None) -> Verdict:
    if event is None:
        return Verdict("malformed", "signed, but no V3 envelope: the body is kept")
    if event.type == pagerduty.TRIGGERED:
        return await _open(gateway, session, event)
    if event.type == pagerduty.RESOLVED:
        return await _close(gateway, session, event)
    return Verdict("ignored", f"{event.type} starts nothing")


async def _open(gateway: Gateway, session: Session, event: Event) -> Verdict:
    """Start a remediation, or join the one that works on the workload already."""
    about = pagerduty.workload(event)
    if about is None:
        return Verdict("unmatched", "no workload is named in the details, the incident key or the title")
    workflow = gateway.workflows.known.get(WORKFLOW)
    try:
        enqueued = await gateway.engine.enqueue(
            WORKFLOW,
            pagerduty.incident(event, about).model_dump(mode="json"),
            actor=PROVIDER,
            version=workflow.version if workflow else 1,
            operation_key=about.key,
            labels=labels_of(about) | {PROVIDER: event.reference},
            reason=f"PagerDuty incident {event.reference}",
            reuse="new",
            session=session,
        )
    except Conflict:  # the same workload by another incident: one cause, one task, one pull request
        return await _join(session, about)
    if not enqueued.created:
        return Verdict("accepted", f"joined task {enqueued.execution.id}", enqueued.execution.id)
    return Verdict("accepted", f"opened a task for {about}", enqueued.execution.id)


async def _join(session: Session, about: Workload) -> Verdict:
    labels = json.dumps({"workload": str(about)})
    rows = await session.many("page", list(LIVE), WORKFLOW, None, labels, None, None, None, 50)
    living = next((row["id"] for row in rows if row["operation_key"] == about.key), None)
    return Verdict("accepted", f"joined task {living}" if living else f"joined what works on {about} already", living)


async def _close(gateway: Gateway, session: Session, event: Event) -> Verdict:
    """Withdraw what the incident opened, where a person was still to be asked; a change that was approved goes on."""
    if not event.reference:
        return Verdict("ignored", "the incident has no id")
    labels = json.dumps({PROVIDER: event.reference})
    waiting = await session.many("page", ["waiting"], WORKFLOW, None, labels, None, None, None, 50)
    for row in sorted(waiting, key=lambda row: row["id"]):  # in the order of ids, as everywhere
        if await _still_asks(session, row["id"]):
            await withdraw(gateway, session, row["id"], actor=PROVIDER, reason="resolved in PagerDuty")
            return Verdict("accepted", f"cancelled task {row['id']}", row["id"])
    return Verdict("ignored", "no task of this incident waits for approval")


async def _still_asks(session: Session, task_id: UUID) -> bool:
    # The lock first, then the look: whoever approves at this moment holds the same lock.
    await session.maybe("lock_execution", task_id)
    row = await session.maybe("get", task_id)
    execution = Execution.from_row(row) if row else None
    return execution is not None and execution.status == "waiting" and is_asking(execution.step)


def _raw(request: Request, name: bytes) -> list[bytes]:
    """A header's values as the bytes that came: a signature need not be text."""
    return [value for key, value in request.scope["headers"] if key == name]
