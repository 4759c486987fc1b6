"""Tasks and approvals from the terminal, through the gateway: list, look, create, steer, answer."""

import json
import sys
from typing import Annotated, Any
from uuid import UUID

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from suture.cli.gateway import call
from suture.cli.show import plain, print_diff
from suture.errors import InvalidRequest

commands = typer.Typer()
tasks = typer.Typer(no_args_is_help=True, help="List, create and steer tasks.")
commands.add_typer(tasks, name="tasks", rich_help_panel="Tasks")

AsJson = Annotated[bool, typer.Option("--json", help="Print the gateway's answer as JSON.")]
Id = Annotated[UUID, typer.Argument(metavar="TASK", help="Id of the task.", show_default=False)]

console = Console(highlight=False)

_COLOURS = {"completed": "green", "error": "red", "cancelled": "yellow", "waiting": "cyan", "running": "blue"}


@tasks.command("list")
def list_tasks(
    status: Annotated[str, typer.Option(help="enqueued, running, waiting, completed, error or cancelled.")] = "",
    type_: Annotated[str, typer.Option("--type", help="Only this type.")] = "",
    workload: Annotated[str, typer.Option(help="Only this workload.", metavar="KIND/NAMESPACE/NAME")] = "",
    limit: Annotated[int, typer.Option(help="How many, youngest first.", min=1, max=200)] = 20,
    as_json: AsJson = False,
) -> None:
    """List tasks, youngest first.

    Example: suture tasks list --status waiting
    """
    found = call("GET", "/tasks", query={"status": status, "type": type_, "workload": workload, "limit": limit})
    rows = [[t["id"], t["type"], t["status"], t["step"], t["labels"].get("workload", ""), _time(t["createdAt"])] for t in found["items"]]
    _print(found, as_json, _table("id", "type", "status", "step", "workload", "created", rows=rows))


@tasks.command()
def get(task: Id, as_json: AsJson = False) -> None:
    """Show one task."""
    found = call("GET", f"/tasks/{task}")
    shown = ("id", "type", "status", "step", "reason", "queue", "attempt", "crashes", "createdAt", "finishedAt")
    rows = [[name, found[name]] for name in shown]
    rows += [[name, json.dumps(found[name])] for name in ("output", "error") if found[name] is not None]
    _print(found, as_json, _table("", "", rows=rows))


@tasks.command()
def create(
    type_: Annotated[str, typer.Argument(metavar="TYPE", help="Name of the workflow.", show_default=False)],
    input_: Annotated[str, typer.Option("--input", help="JSON, or - for standard input.", metavar="JSON")] = "{}",
    key: Annotated[str, typer.Option(help="Operation key: the same key is the same task.", metavar="KEY")] = "",
    as_json: AsJson = False,
) -> None:
    """Create a task.

    Example: suture tasks create remediate --input '{"workload": {"kind": "Deployment", "namespace": "shop", "name": "web"}}'
    """
    body = {"type": type_, "input": _json(sys.stdin.read() if input_ == "-" else input_), "operationKey": key or None}
    found = call("POST", "/tasks", body={name: value for name, value in body.items() if value is not None})
    _print(found, as_json, f"{found['id']} is {found['status']}")


@tasks.command()
def cancel(task: Id, reason: Annotated[str, typer.Option(help="Why; it stands in the timeline.")] = "", as_json: AsJson = False) -> None:
    """Cancel a task: at once where it waits, at its next step where it runs."""
    found = call("POST", f"/tasks/{task}/cancel", body={"reason": reason} if reason else {})
    _print(found, as_json, f"{found['id']} is {found['status']}")


@tasks.command()
def retry(
    task: Id,
    from_start: Annotated[bool, typer.Option("--from-start", help="Run finished steps again too.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run a dead letter again, from the step that failed."""
    found = call("POST", f"/tasks/{task}/retry", body={"fromStep": "start" if from_start else "failed"})
    _print(found, as_json, f"{found['id']} is {found['status']}")


@tasks.command()
def timeline(task: Id, as_json: AsJson = False) -> None:
    """Show every move of a task: who, when, from where to where, why."""
    found = call("GET", f"/tasks/{task}/timeline")
    lines = _items(found)
    rows = [[_time(m["at"]), m["actor"], m["fromStatus"] or "", m["toStatus"], m["step"] or "", m["reason"]] for m in lines]
    _print(found, as_json, _table("at", "who", "from", "to", "step", "why", rows=rows))


@tasks.command()
def steps(task: Id, as_json: AsJson = False) -> None:
    """Show the finished steps of a task."""
    found = call("GET", f"/tasks/{task}/steps")
    rows = [[s["name"], s["kind"], s["attempts"], _time(s["startedAt"]), _time(s["finishedAt"])] for s in _items(found)]
    _print(found, as_json, _table("step", "kind", "tries", "started", "finished", rows=rows))


@commands.command(rich_help_panel="Tasks")
def approvals(
    state: Annotated[str, typer.Option(help="pending, approved, rejected, expired or void; empty for all.")] = "pending",
    as_json: AsJson = False,
) -> None:
    """List what waits for a person."""
    found = call("GET", "/approvals", query={"state": state})
    rows = [[a["taskId"], a["state"], a["proposal"]["title"], _time(a["expiresAt"])] for a in _items(found)]
    _print(found, as_json, _table("task", "state", "change", "expires", rows=rows))


@commands.command(rich_help_panel="Tasks")
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
    _print(found, as_json, f"{task} is approved")


@commands.command(rich_help_panel="Tasks")
def reject(
    task: Id,
    reason: Annotated[str, typer.Option(help="Why; it teaches the next diagnosis.", show_default=False)],
    digest: Annotated[str, typer.Option(help="Digest of the change that you looked at; by default the current one.")] = "",
    as_json: AsJson = False,
) -> None:
    """Reject the change of a task, with a reason."""
    digest = digest or call("GET", f"/tasks/{task}/approval")["proposal"]["digest"]
    found = call("POST", f"/tasks/{task}/reject", body={"digest": digest, "reason": reason})
    _print(found, as_json, f"{task} is rejected")


def _look(task: UUID) -> str:
    proposal = call("GET", f"/tasks/{task}/approval")["proposal"]
    console.print(Text(plain(proposal["cause"]["sentence"])), soft_wrap=True)
    print_diff(console, proposal["diff"])
    return str(proposal["digest"])


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise InvalidRequest(f"--input is no JSON: {error}.") from None


def _items(found: Any) -> list[Any]:
    items: list[Any] = found["items"] if isinstance(found, dict) else found
    return items


def _time(text: str | None) -> str:
    return (text or "")[:19].replace("T", " ")


def _table(*heads: str, rows: list[list[Any]]) -> Table:
    table = Table(*heads, box=None, pad_edge=False, show_header=any(heads))
    for row in rows:
        table.add_row(*(Text(plain("" if cell is None else str(cell)), style=_COLOURS.get(str(cell), "")) for cell in row))
    return table


def _print(found: Any, as_json: bool, shown: Table | str) -> None:
    if as_json:
        typer.echo(json.dumps(found, indent=2))
    else:
        console.print(shown)
