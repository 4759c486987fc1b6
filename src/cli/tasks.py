"""Tasks from the terminal: list, look, steer, through either door. Only a new task needs the gateway: it knows which inputs fit."""

import json
import sys
from typing import Annotated, Any
from uuid import UUID

import typer

from suture.cli.door import open_door
from suture.cli.gateway import call
from suture.cli.listing import AsJson, Id, Limit, facts, moment, show, table
from suture.errors import InvalidRequest

commands = typer.Typer()
tasks = typer.Typer(invoke_without_command=True, help="List, look at and steer tasks.")
commands.add_typer(tasks, name="tasks", rich_help_panel="Tasks")

PANEL = "Tasks"

Status = Annotated[str, typer.Option(help="enqueued, running, waiting, completed, error or cancelled.")]
Type = Annotated[str, typer.Option("--type", help="Only this type: the name of the workflow.")]
QueueName = Annotated[str, typer.Option("--queue", help="Only this queue.")]
Workload = Annotated[str, typer.Option(help="Only this workload.", metavar="KIND/NAMESPACE/NAME")]


@tasks.callback()
def _tasks(context: typer.Context, as_json: AsJson = False) -> None:
    """List, look at and steer tasks; alone it lists the youngest.

    Example: suture tasks --json
    """
    if context.invoked_subcommand is None:
        list_tasks(as_json=as_json)


@tasks.command("list")
def list_tasks(  # noqa: PLR0917 (typer passes them by name)
    status: Status = "", type_: Type = "", queue: QueueName = "", workload: Workload = "", limit: Limit = 20, as_json: AsJson = False
) -> None:
    """List tasks, youngest first.

    Example: suture tasks list --status waiting
    """
    found = open_door().tasks(status=status, type=type_, queue=queue, workload=workload, limit=limit)
    about = [t["labels"].get("workload", "") for t in found]
    heads = ["id", "type", "status", "step", "queue", "created", *(["workload"] if any(about) else [])]
    rows = [
        [t["id"], t["type"], t["status"], t["step"], t["queue"], moment(t["createdAt"]), *([workload] if any(about) else [])]
        for t, workload in zip(found, about, strict=True)
    ]
    show(found, as_json, table(*heads, rows=rows))


@tasks.command()
def get(task: Id, as_json: AsJson = False) -> None:
    """Show one task.

    Example: suture tasks get 01930000-0000-7000-8000-000000000000
    """
    found = open_door().task(task)
    names = "id", "type", "status", "step", "reason", "queue", "attempt", "crashes", "createdAt", "finishedAt", "input", "output", "error"
    show(found, as_json, facts(found, *names))


@tasks.command()
def create(
    type_: Annotated[str, typer.Argument(metavar="TYPE", help="Name of the workflow.", show_default=False)],
    input_: Annotated[str, typer.Option("--input", help="JSON, or - for standard input.", metavar="JSON")] = "{}",
    key: Annotated[str, typer.Option(help="Operation key: the same key is the same task.", metavar="KEY")] = "",
    as_json: AsJson = False,
) -> None:
    """Create a task. Always asks the gateway, which knows what inputs fit.

    Example: suture tasks create remediate --input '{"workload": {"kind": "Deployment", "namespace": "shop", "name": "web"}}'
    """
    body = {"type": type_, "input": _json(sys.stdin.read() if input_ == "-" else input_), "operationKey": key or None}
    found = call("POST", "/tasks", body={name: value for name, value in body.items() if value is not None})
    show(found, as_json, _stands(found))


@tasks.command()
def cancel(task: Id, reason: Annotated[str, typer.Option(help="Why; it stands in the timeline.")] = "", as_json: AsJson = False) -> None:
    """Cancel a task: at once where it waits, at its next step where it runs.

    Example: suture tasks cancel 01930000-0000-7000-8000-000000000000 --reason "the wrong tenant"
    """
    found = open_door().cancel(task, reason=reason)
    show(found, as_json, f"{found['id']} is running and will stop" if found["status"] == "running" else _stands(found))


@tasks.command()
def retry(
    task: Id,
    from_start: Annotated[bool, typer.Option("--from-start", help="Run finished steps again too.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run a dead letter again, from the step that failed; the same as `suture dead-letters requeue`.

    Example: suture tasks retry 01930000-0000-7000-8000-000000000000 --from-start
    """
    requeue(task, from_start=from_start, as_json=as_json)


@tasks.command()
def fork(
    task: Id,
    step: Annotated[str, typer.Option("--from", metavar="STEP", help="The first step that is done again.", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Run an ended task again, as a new one, from one of its steps; what had finished before that step is kept.

    Example: suture tasks fork 01930000-0000-7000-8000-000000000000 --from create-account
    """
    found = open_door().fork(task, from_step=step)
    show(found, as_json, _stands(found))


@commands.command(rich_help_panel=PANEL)
@tasks.command()
def timeline(task: Id, as_json: AsJson = False) -> None:
    """Show every move of a task: who, when, from where to where, why.

    Example: suture timeline 01930000-0000-7000-8000-000000000000
    """
    found = open_door().timeline(task)
    rows = [[moment(m["at"]), m["actor"], m["fromStatus"], m["toStatus"], m["step"], m["reason"]] for m in found]
    show(found, as_json, table("at", "who", "from", "to", "step", "why", rows=rows))


@commands.command(rich_help_panel=PANEL)
@tasks.command()
def steps(task: Id, as_json: AsJson = False) -> None:
    """Show the finished steps of a task, in the order in which they finished.

    Example: suture steps 01930000-0000-7000-8000-000000000000 --json
    """
    found = open_door().steps(task)
    rows = [[s["name"], s["kind"], s["attempts"], moment(s["startedAt"]), moment(s["finishedAt"]), _short(s["output"])] for s in found]
    show(found, as_json, table("step", "kind", "tries", "started", "finished", "result", rows=rows))


def requeue(task: UUID, *, from_start: bool, as_json: bool) -> None:
    """Run a dead letter again and say as what."""
    found = open_door().requeue(task, from_step="start" if from_start else "failed")
    show(found, as_json, _stands(found))


def _stands(found: Any) -> str:
    return f"{found['id']} is {found['status']}"


def _short(output: Any, *, limit: int = 60) -> str:
    text = "" if output is None else json.dumps(output)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise InvalidRequest(f"--input is no JSON: {error}.") from None
