"""The rows that a remediation keeps: deliveries, frozen evidence, approvals, pull requests. One method is one statement or one
transaction of `sql/records.sql`. The gateway uses it too; it decides nothing.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal
from uuid import UUID

from suture.engine import Database, Session
from suture.errors import Conflict, NotFound
from suture.remediation.incident import Approval, Decision, Proposal

DeliveryState = Literal["accepted", "ignored", "unmatched", "malformed"]

Item = tuple[str, str, bytes]
"""Kind (object, log or note), reference and content of a piece of evidence."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """A webhook as it is listed; its body stays in the database."""

    provider: str
    delivery_id: str
    received_at: datetime
    event_type: str
    state: DeliveryState
    note: str
    task_id: UUID | None
    size: int


@dataclass(frozen=True, slots=True)
class OpenedChange:
    """A pull request's row."""

    repository: str
    branch: str
    number: int
    task_id: UUID
    base: str
    commit: str
    url: str
    title: str
    body: str
    diff: str
    digest: str
    opened_at: datetime


class Records:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def keep_delivery(
        self,
        session: Session,
        provider: str,
        delivery_id: str,
        *,
        event_type: str,
        headers: Mapping[str, str],
        body: bytes,
        event_id: str | None = None,
    ) -> bool:
        """Store a delivery; False when it, or its event under another delivery id, came before. Joins the caller's transaction."""
        row = await session.maybe("keep_delivery", provider, delivery_id, event_type, json.dumps(dict(headers)), body, event_id)
        return row is not None

    async def mark_delivery(
        self, session: Session, provider: str, delivery_id: str, *, state: DeliveryState, note: str = "", task_id: UUID | None = None
    ) -> None:
        await session.none("mark_delivery", provider, delivery_id, state, note, task_id)

    async def deliveries(self, *, limit: int = 50) -> list[Delivery]:
        """Youngest first."""
        return [Delivery(**row) for row in await self._database.many("deliveries", limit)]

    async def freeze(self, task_id: UUID, items: Sequence[Item]) -> list[Item]:
        """Keep `items` as the evidence of a task; where some was frozen before, that stays and comes back."""
        async with self._database.transaction() as session:
            await session.maybe("lock_execution", task_id)
            if not (frozen := await session.many("frozen", task_id)):
                kinds, refs, contents = (list(column) for column in zip(*items, strict=True)) if items else ([], [], [])
                await session.none("freeze", task_id, kinds, refs, contents)
                frozen = await session.many("frozen", task_id)
        return [(row["kind"], row["ref"], row["content"]) for row in frozen]

    async def evidence(self, task_id: UUID) -> list[Item]:
        """What was frozen, ordered by kind and reference; empty before it was."""
        return [(row["kind"], row["ref"], row["content"]) for row in await self._database.many("frozen", task_id)]

    async def ask(self, task_id: UUID, proposal: Proposal, *, timeout: timedelta) -> Approval:
        """Put the question; the same proposal is asked once, another one voids the earlier question."""
        async with self._database.transaction() as session:
            await session.none("void_questions", task_id, proposal.digest)
            return _approval(await session.one("ask", task_id, proposal.digest, proposal.model_dump_json(), timeout))

    async def approval(self, task_id: UUID) -> Approval | None:
        """The newest question of a task."""
        row = await self._database.maybe("approval", task_id)
        return _approval(row) if row else None

    async def approvals(self, *, state: str | None = None, limit: int = 50) -> list[Approval]:
        """Youngest first."""
        return [_approval(row) for row in await self._database.many("approvals", state, limit)]

    async def decide(self, session: Session, task_id: UUID, decision: Decision) -> Approval:
        """Answer the open question; the first answer counts. Joins the transaction that also tells the execution.

        Raises: NotFound when nothing was asked. Conflict when the question is answered, over, or was about another change.
        """
        row = await session.maybe("decide", task_id, decision.digest, decision.verdict, decision.by, decision.reason)
        if row is None:
            raise _refusal(task_id, decision, await session.maybe("approval", task_id))
        return _approval(row)

    async def close_question(self, task_id: UUID, *, state: Literal["expired", "void"], session: Session | None = None) -> None:
        """End the open question without an answer, if there is one; joins the transaction of `session`."""
        await (session or self._database).none("close_question", task_id, state)

    async def record_pull_request(
        self, *, repository: str, branch: str, task_id: UUID, commit: str, url: str, proposal: Proposal
    ) -> OpenedChange:
        """Note an opened change, once for each branch of a repository."""
        texts = proposal.title, proposal.body, proposal.diff, proposal.digest
        row = await self._database.one("record_pull_request", repository, branch, task_id, proposal.base, commit, url, *texts)
        return OpenedChange(**row)

    async def pull_requests(self, task_id: UUID | None = None, *, limit: int = 50) -> list[OpenedChange]:
        """Youngest first; of one task, or all."""
        return [OpenedChange(**row) for row in await self._database.many("pull_requests", task_id, limit)]


def _approval(row: Mapping[str, Any]) -> Approval:
    decision = row["verdict"] and Decision(verdict=row["verdict"], by=row["decided_by"], reason=row["reason"], digest=row["digest"])
    return Approval(
        task_id=str(row["task_id"]),
        state=row["state"],
        proposal=Proposal.model_validate_json(row["proposal"]),
        asked_at=row["asked_at"],
        expires_at=row["expires_at"],
        decision=decision,
        decided_at=row["decided_at"],
    )


def _refusal(task_id: UUID, decision: Decision, row: Mapping[str, Any] | None) -> Conflict | NotFound:
    if row is None:
        return NotFound(f"Task {task_id} asks for no approval.")
    if row["verdict"]:
        return Conflict(f"Task {task_id} was {row['state']} by {row['decided_by']} at {row['decided_at']:%Y-%m-%d %H:%M:%S} UTC.")
    if row["digest"] != decision.digest:
        return Conflict(f"The change of task {task_id} is not the one that you looked at ({decision.digest[:12]}): look again.")
    return Conflict(f"The question of task {task_id} is {row['state'] if row['state'] != 'pending' else 'expired'}.")
