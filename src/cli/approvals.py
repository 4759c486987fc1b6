"""Approvals from the terminal: list what waits, look, answer. Always through the gateway, which decides who may answer."""

from typing import Annotated
from uuid import UUID

import typer
from rich.text import Text

from suture.cli.gateway import call
from suture.cli.listing import AsJson, Id, console, moment, plain, show, table

commands = typer.Typer()

PANEL = "Tasks"


@commands.command(rich_help_panel=PANEL)
def approvals(
    state: Annotated[str, typer.Option(help="pending, approved, rejected, expired or void; empty for all.")] = "pending",
    as_json: AsJson = False,
) -> None:
    """List what waits for a person.

    Example: suture approvals --state rejected --json
    """
    found = call("GET", "/approvals", query={"state": state})["items"]
    rows = [[a["taskId"], a["state"], a["proposal"]["title"], moment(a["expiresAt"])] for a in found]
    show(found, as_json, table("task", "state", "change", "expires", rows=rows))


@commands.command(rich_help_panel=PANEL)
def approve(
    task: Id,
    digest: Annotated[str, typer.Option(help="Digest of the change that you looked at; without it, it is shown and you are asked.")] = "",
    as_json: AsJson = False,
) -> None:
    """Approve the change of a task. What is pushed is what you looked at: the digest binds it.

    Example: suture approve 01930000-0000-7000-8000-000000000000
    """
    if not digest:
        digest = _look(task)
        typer.confirm("Open the pull request?", abort=True)
    found = call("POST", f"/tasks/{task}/approve", body={"digest": digest})
    show(found, as_json, f"{task} is approved")


@commands.command(rich_help_panel=PANEL)
def reject(
    task: Id,
    reason: Annotated[str, typer.Option(help="Why; it teaches the next diagnosis.", show_default=False)],
    digest: Annotated[str, typer.Option(help="Digest of the change that you looked at; by default the current one.")] = "",
    as_json: AsJson = False,
) -> None:
    """Reject the change of a task, with a reason.

    Example: suture reject 01930000-0000-7000-8000-000000000000 --reason "the tag will be pushed again"
    """
    digest = digest or call("GET", f"/tasks/{task}/approval")["proposal"]["digest"]
    found = call("POST", f"/tasks/{task}/reject", body={"digest": digest, "reason": reason})
    show(found, as_json, f"{task} is rejected")


def _look(task: UUID) -> str:
    from suture.cli.show import print_diff  # noqa: PLC0415 (what it needs is not everybody's)

    proposal = call("GET", f"/tasks/{task}/approval")["proposal"]
    paper = console()
    paper.print(Text(plain(proposal["cause"]["sentence"])), soft_wrap=True)
    print_diff(paper, proposal["diff"])
    return str(proposal["digest"])
