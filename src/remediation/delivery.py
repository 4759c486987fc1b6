"""An approved proposal becomes exactly one branch, one commit, one pull request. Converts between the domain and the repository's words."""

from suture.clients.repository import Blob, Opened
from suture.errors import BaseMoved
from suture.remediation.incident import Decision, Proposal, PullRequest
from suture.remediation.tools import Delivered, Tools


def delivery_key(tools: Tools, proposal: Proposal) -> str:
    """Key of the effect: what is delivered once is this very change, on this branch, of this repository."""
    return f"{tools.repository_name}:{proposal.branch}:{proposal.digest}"


async def find_delivered(tools: Tools, proposal: Proposal) -> Delivered | None:
    """What an earlier try, or an earlier execution with the same cause, left behind."""
    found = await tools.repository.find(proposal.branch)
    return Delivered(pull_request=_pull_request(tools, found)) if found else None


async def deliver(tools: Tools, proposal: Proposal, decision: Decision) -> Delivered:
    """Open the pull request; nothing but what was approved is pushed.

    Raises: TemporaryError while the repository does not answer.
    """
    blobs = [Blob(file.path, file.before, file.after) for file in proposal.files]
    body = f"{proposal.body}\nApproved by: {decision.by}"
    try:
        opened = await tools.repository.open(branch=proposal.branch, base=proposal.base, files=blobs, title=proposal.title, body=body)
    except BaseMoved:
        return Delivered(pull_request=None)
    return Delivered(pull_request=_pull_request(tools, opened))


def _pull_request(tools: Tools, opened: Opened) -> PullRequest:
    return PullRequest(repository=tools.repository_name, branch=opened.branch, commit=opened.commit, number=opened.number, url=opened.url)
