"""Dead letters from the terminal: what needs a person, and what a person does about it."""

from enum import StrEnum, auto
from typing import Annotated, Any

import typer

from suture.cli import tasks
from suture.cli.door import open_door
from suture.cli.listing import AsJson, Id, Limit, moment, show, table

commands = typer.Typer()


class State(StrEnum):
    OPEN, REQUEUED, DISCARDED, ALL = auto(), auto(), auto(), auto()


letters = typer.Typer(invoke_without_command=True, help="List dead letters, run them again, or discard them.")
commands.add_typer(letters, name="dead-letters", rich_help_panel="Engine")


@letters.callback()
def list_letters(  # noqa: PLR0917 (typer passes them by name)
    context: typer.Context,
    state: Annotated[State, typer.Option(help="open: needs a person.")] = State.OPEN,
    type_: Annotated[str, typer.Option("--type", help="Only this type: the name of the workflow.")] = "",
    queue: Annotated[str, typer.Option(help="Only this queue.")] = "",
    limit: Limit = 50,
    as_json: AsJson = False,
) -> None:
    """List dead letters, run them again, or discard them; alone it lists the open ones.

    Example: suture dead-letters --json | jq '.[].reason'
    """
    if context.invoked_subcommand is not None:
        return
    chosen = "" if state is State.ALL else state.value
    found = open_door().dead_letters(state=chosen, type=type_, queue=queue, limit=limit)
    rows = [[d["taskId"], d["type"], d["queue"], d["step"], d["reason"], moment(d["deadAt"]), _fate(d)] for d in found]
    show(found, as_json, table("task", "type", "queue", "step", "reason", "since", "", rows=rows))


@letters.command()
def requeue(
    task: Id,
    from_start: Annotated[bool, typer.Option("--from-start", help="Run finished steps again too.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run a dead letter again as a new task, which keeps the finished steps.

    Example: suture dead-letters requeue 01930000-0000-7000-8000-000000000000
    """
    tasks.requeue(task, from_start=from_start, as_json=as_json)


@letters.command()
def discard(
    task: Id,
    reason: Annotated[str, typer.Option(help="Why; it stands in its row.", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Let a dead letter be, for good: nobody needs to look at it any more.

    Example: suture dead-letters discard 01930000-0000-7000-8000-000000000000 --reason "the tenant is gone"
    """
    found = open_door().discard(task, reason=reason)
    show(found, as_json, f"{found['taskId']} is discarded")


def _fate(letter: Any) -> str:
    if letter["requeuedAs"]:
        return f"runs again as {letter['requeuedAs']}"
    return f"discarded by {letter['discardedBy']}: {letter['discardReason']}" if letter["discardedAt"] else ""
