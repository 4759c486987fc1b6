"""What the workflow works with: the rows, the source of evidence, the repository. Handed in by the process that runs it.

The seams are `EvidenceSource` (a cluster, a recording) and `Repository` (see clients). Decides nothing.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol
from uuid import UUID

from suture.clients.repository import Repository
from suture.remediation.evidence import Evidence
from suture.remediation.incident import Frozen as Model
from suture.remediation.incident import Proposal, PullRequest, Workload
from suture.remediation.records import Records


class EvidenceSource(Protocol):
    async def collect(self, workload: Workload) -> Evidence:
        """All that bears on the workload, redacted.

        Raises: TemporaryError while the source does not answer; PermanentError when it never will.
        """
        ...


class Frozen(Model):
    """Result of the step that freezes: the evidence itself is in rows."""

    digest: str
    objects: int
    logs: int


class Delivered(Model):
    """Result of a delivery; without a pull request, the base moved and nothing was opened."""

    pull_request: PullRequest | None


@dataclass(frozen=True, slots=True)
class Tools:
    records: Records
    evidence: EvidenceSource
    repository: Repository
    repository_name: str
    """What the records and the pull request call the repository; never with credentials."""
    approval_timeout: timedelta = timedelta(days=14)

    async def ask(self, task_id: UUID, proposal: Proposal) -> None:
        """Put the question to the people; the same one is put once."""
        await self.records.ask(task_id, proposal, timeout=self.approval_timeout)

    async def expire(self, task_id: UUID) -> None:
        await self.records.close_question(task_id, state="expired")

    async def void(self, task_id: UUID) -> None:
        await self.records.close_question(task_id, state="void")

    async def record(self, task_id: UUID, proposal: Proposal, pull_request: PullRequest) -> None:
        """Note the opened change beside the task."""
        await self.records.record_pull_request(
            repository=pull_request.repository,
            branch=pull_request.branch,
            task_id=task_id,
            commit=pull_request.commit,
            url=pull_request.url,
            proposal=proposal,
        )
