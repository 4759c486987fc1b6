"""A cause becomes a proposal: the files that change, their diff, and the digest that binds an approval to exactly that. Thin edge around
`source`, which edits; delivers nothing.
"""

import asyncio
import hashlib
from typing import Literal

from suture.errors import EditRefused, ManifestUnreadable
from suture.remediation.incident import Citation, FileChange, Finding, Frozen, Incident, Proposal
from suture.remediation.source.diff import unified_diff
from suture.remediation.source.proposing import propose_files
from suture.remediation.tools import Tools

TITLE_LIMIT = 72
"""Characters of a commit's subject that git's tools show whole."""


class Refusal(Frozen):
    """No safe edit was found; the reason is for the person who must do it by hand."""

    kind: Literal["refused"] = "refused"
    reason: str


async def propose(tools: Tools, incident: Incident, cause: Finding, evidence: str) -> Proposal | Refusal:
    """The change that heals `cause`, made on the head of the deployed branch. `evidence` is the digest of what was frozen.

    Raises: TemporaryError while the repository does not answer.
    """
    base = await tools.repository.base()
    files = await tools.repository.files(base)
    try:
        # in a thread: a large file takes seconds, and the loop has other executions to serve
        changed = await asyncio.to_thread(propose_files, files, cause.changes)
    except (EditRefused, ManifestUnreadable) as error:
        return Refusal(reason=f"No edit was made: {error.message}")
    if not changed:
        return Refusal(reason="No edit was made: the repository already holds the change. It may not be deployed yet.")
    return describe(incident, cause, base=base, files=changed, evidence=evidence)


def describe(incident: Incident, cause: Finding, *, base: str, files: tuple[FileChange, ...], evidence: str) -> Proposal:
    """Put a change into the words and the digests that people and machines check. Pure."""
    diff = unified_diff(files)
    digest = hashlib.sha256("\0".join((diff, base, evidence)).encode()).hexdigest()
    return Proposal(
        cause=cause,
        base=base,
        files=files,
        diff=diff,
        digest=digest,
        branch=f"suture/{fingerprint(incident, cause)}",
        title=_title(cause),
        body=_body(incident, cause, digest=digest, evidence=evidence),
    )


def fingerprint(incident: Incident, cause: Finding) -> str:
    """Twelve hex digits that name a cause on a workload, and what would heal it: the same is never proposed on two branches."""
    parts = [incident.workload.cluster, cause.object, cause.code, cause.container or ""]
    parts += [f"{c.operation} {c.object} {c.path} {c.before!r} {c.value!r}" for c in cause.changes]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


def _title(cause: Finding) -> str:
    name = cause.object.rsplit("/", 1)[-1]
    title = f"Fix {name}: {cause.code}"
    return title if len(title) <= TITLE_LIMIT else title[: TITLE_LIMIT - 1] + "…"


def _body(incident: Incident, cause: Finding, *, digest: str, evidence: str) -> str:
    lines = [cause.sentence, ""]
    lines += [f"- {c.object} `{c.path}` → `{c.value!r}`" for c in cause.changes]
    lines += ["", "Evidence:"]
    lines += [_quote(citation) for citation in cause.citations]
    lines += ["", f"Workload: {incident.workload}", f"Signal: {incident.signal} {incident.reference}".rstrip()]
    lines += [f"Digest of this change: {digest}", f"Digest of the evidence: {evidence}"]
    return "\n".join(lines)


def _quote(citation: Citation) -> str:
    value = str(citation.value).replace("`", "'").replace("\n", " ")
    return f"- {citation.object} `{citation.path}`: `{value[:200]}` ({citation.why})"
