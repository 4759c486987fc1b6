"""The nouns of a remediation, as frozen data. All that the operator and the api may know of the domain; does nothing itself."""

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

WORKFLOW = "remediate"
"""Name of the workflow that an incident becomes."""

APPROVAL = "approval"
"""Name of the step that waits for a person."""


def is_asking(step: str | None) -> bool:
    """Whether a task that waits in this step waits for a person; a change that is asked anew waits in `approval-2`, and so on.

    >>> is_asking("approval"), is_asking("approval-2"), is_asking("deliver")
    (True, True, False)
    """
    return step is not None and step.partition("-")[0] == APPROVAL


def answer_event(digest: str) -> str:
    """Name of the event that carries the `Decision` on the proposal with this digest: an answer to another proposal is another event.

    >>> answer_event("3f2a9c1b7d04e5f60718293a4b5c6d7e")
    'approval:3f2a9c1b7d04e5f6'
    """
    return f"{APPROVAL}:{digest[:16]}"


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Workload(Frozen):
    """The thing that fails, as its owner knows it: the top of the owner chain, not the pod."""

    kind: str = Field(examples=["Deployment"], min_length=1, max_length=63)
    namespace: str = Field(min_length=1, max_length=63)
    name: str = Field(min_length=1, max_length=253)
    cluster: str = Field(default="default", min_length=1, max_length=253)

    def __str__(self) -> str:
        return f"{self.kind}/{self.namespace}/{self.name}"

    @property
    def key(self) -> str:
        """The operation key of its remediation: one at a time for each workload."""
        return f"remediate:{self.cluster}/{self.namespace}/{self.kind}/{self.name}"


class Incident(Frozen):
    """Input of the workflow: what fails, and who says so."""

    workload: Workload
    title: str = Field(default="", max_length=1024)
    signal: Literal["pagerduty", "github", "alertmanager", "kubernetes", "task"] = "task"
    reference: str = Field(default="", max_length=2048)
    """The signal's own name for it: a PagerDuty incident id, an alert's fingerprint."""
    url: str = Field(default="", max_length=2048)
    """Where a person reads more."""


class Citation(Frozen):
    """A quoted piece of the frozen evidence, which a program can look up again."""

    object: str = Field(examples=["Pod/shop/web-7d9c-x2x", "log/shop/web-7d9c-x2x/app/previous"])
    """Kind/namespace/name, or log/namespace/pod/container/(current|previous); cluster-scoped objects are Kind//name."""
    path: str = Field(examples=["status.containerStatuses[name=app].lastState.terminated.reason", "bytes 120-166"])
    """Path in the object, list items chosen by [name=x] or [3]; in a log the half-open range of bytes."""
    value: JsonValue
    """The quoted value. It must equal what stands there, or the diagnosis is rejected."""
    why: str
    """Why it matters, one sentence."""


class Change(Frozen):
    """One typed edit of one field of one object, as the cluster sees the object."""

    object: str = Field(examples=["Deployment/shop/web"])
    """Kind/namespace/name."""
    operation: Literal["set", "add", "remove"]
    path: str = Field(examples=["spec.template.spec.containers[name=app].image"])
    value: JsonValue = None
    """What the field becomes; None with `remove`."""
    before: JsonValue = None
    """What the field is now, as far as the evidence tells; an edit that finds another value in the file is refused."""


class Finding(Frozen):
    """One fault: its code, the object that carries it, and what proves it."""

    code: str = Field(examples=["ImageNotFound"])
    object: str = Field(examples=["Deployment/shop/web"])
    container: str | None = None
    sentence: str
    """The cause for a tired person: what, where, since when."""
    confidence: float = Field(ge=0, le=1)
    citations: tuple[Citation, ...]
    changes: tuple[Change, ...] = ()
    """The edits that heal it; empty where no manifest change is safe."""
    advice: str = ""
    """What a person has to do instead, where `changes` is empty."""


class Diagnosis(Frozen):
    """What the rules say of the evidence; the first finding is the root cause. Empty: nothing was found, and that is said so."""

    findings: tuple[Finding, ...]
    ruled_out: tuple[str, ...] = ()
    """What looked likely and is not the cause, a sentence each."""

    @property
    def cause(self) -> Finding | None:
        return self.findings[0] if self.findings else None


class FileChange(Frozen):
    """One file of the repository, before and after; bytes travel as base64 in JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_bytes="base64", val_json_bytes="base64")

    path: str
    before: bytes
    after: bytes


class Proposal(Frozen):
    """What a person is asked to approve, bound by `digest`."""

    cause: Finding
    base: str
    """Commit that the change starts from."""
    files: tuple[FileChange, ...]
    diff: str
    """Unified diff of `files`."""
    digest: str
    """SHA-256, hex, of the diff, the base commit and the evidence: what was approved is what is pushed."""
    branch: str = Field(examples=["suture/3f2a9c1b7d04"])
    """suture/FINGERPRINT: the same cause on the same workload always has the same branch."""
    title: str
    body: str


class Decision(Frozen):
    """A person's answer to a proposal."""

    verdict: Literal["approved", "rejected"]
    by: str
    reason: str = ""
    digest: str
    """Digest of the proposal that was looked at; another one than the current makes the decision void."""


class PullRequest(Frozen):
    """The change, where its reviewers see it."""

    repository: str
    branch: str
    commit: str
    number: int | None = None
    url: str = ""


class Outcome(Frozen):
    """Result of the workflow."""

    state: Literal["proposed", "reported", "rejected", "expired"]
    """proposed: a pull request is open. reported: no safe change, the report says what to do."""
    sentence: str
    cause: str | None = None
    pull_request: PullRequest | None = None


class Approval(Frozen):
    """A proposal's row: pending, then decided once."""

    task_id: str
    state: Literal["pending", "approved", "rejected", "expired", "void"]
    proposal: Proposal
    asked_at: datetime
    expires_at: datetime
    decision: Decision | None = None
    decided_at: datetime | None = None
