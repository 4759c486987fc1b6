"""Pauses from the terminal: kinds of steps that nobody may begin for now, such as "open no more pull requests"."""

from typing import Annotated

import typer

from suture.cli.door import open_door
from suture.cli.listing import AsJson, moment, show, table

commands = typer.Typer()
pauses = typer.Typer(invoke_without_command=True, help="List pauses of steps; begin and end them while work goes on.")
commands.add_typer(pauses, name="pauses", rich_help_panel="Engine")

Step = Annotated[str, typer.Argument(metavar="STEP", help="A step's name, or the kind of an effect; * is any text.", show_default=False)]
Workflow = Annotated[str, typer.Option(help="Only in this workflow; * is any text.")]


@pauses.callback()
def list_pauses(context: typer.Context, as_json: AsJson = False) -> None:
    """List pauses of steps; begin and end them while work goes on; alone it lists them, with the tasks that they hold.

    Example: suture pauses --json
    """
    if context.invoked_subcommand is not None:
        return
    found = open_door().pauses()
    rows = [[p["step"], p["workflow"], p["held"], p["pausedBy"], moment(p["pausedAt"]), p["reason"]] for p in found]
    show(found, as_json, table("step", "workflow", "held", "by", "since", "why", rows=rows))


@pauses.command()
def begin(
    step: Step,
    workflow: Workflow = "*",
    reason: Annotated[str, typer.Option(help="Why; it stands in the timeline of what it holds.")] = "",
    as_json: AsJson = False,
) -> None:
    """Let nobody begin such a step; a task that comes to one waits as a row, and what has begun goes on.

    Example: suture pauses begin deliver --reason "freeze until Monday"
    """
    found = open_door().pause_steps(step, workflow=workflow, reason=reason)
    show(found, as_json, f"nobody begins {step}{_where(workflow)}")


@pauses.command()
def end(step: Step, workflow: Workflow = "*", as_json: AsJson = False) -> None:
    """End the pause that was begun with the same words.

    Example: suture pauses end deliver
    """
    found = open_door().resume_steps(step, workflow=workflow)
    count = found["released"]
    show(found, as_json, f"{step}{_where(workflow)} may begin again; {count} {'task goes' if count == 1 else 'tasks go'} on")


def _where(workflow: str) -> str:
    return "" if workflow == "*" else f" of {workflow}"
