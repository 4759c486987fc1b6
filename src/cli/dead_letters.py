"""Dead letters from the terminal: what needs a person, and what a person does about it."""

from typing import Annotated

import typer

from suture.cli import tasks
from suture.cli.door import open_door
from suture.cli.listing import AsJson, Id, Limit, moment, show, table

commands = typer.Typer()
letters = typer.Typer(invoke_without_command=True, help="List dead letters, run them again, or discard them.")
commands.add_typer(letters, name="dead-letters", rich_help_panel="Engine")


@letters.callback()
def list_letters(context: typer.Context, limit: Limit = 50, as_json: AsJson = False) -> None:
    """List dead letters, run them again, or discard them; alone it lists the youngest.

    Example: suture dead-letters --json | jq '.[].reason'
    """
    if context.invoked_subcommand is not None:
        return
    found = open_door().dead_letters(limit=limit)
    rows = [[d["taskId"], d["type"], d["queue"], d["step"], d["reason"], moment(d["deadAt"]), d["requeuedAs"]] for d in found]
    show(found, as_json, table("task", "type", "queue", "step", "reason", "since", "requeued as", rows=rows))


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
