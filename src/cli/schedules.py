"""Schedules from the terminal: what is due again and again, when next, and what a person does about it. Code declares them."""

from typing import Annotated, Any

import typer

from suture.cli.door import open_door
from suture.cli.listing import AsJson, lasting, moment, show, table

commands = typer.Typer()
schedules = typer.Typer(invoke_without_command=True, help="List schedules; pause, resume and run them by hand.")
commands.add_typer(schedules, name="schedules", rich_help_panel="Engine")

Name = Annotated[str, typer.Argument(metavar="SCHEDULE", help="Name of the schedule.", show_default=False)]


@schedules.callback()
def list_schedules(context: typer.Context, as_json: AsJson = False) -> None:
    """List schedules; pause, resume and run them by hand; alone it lists them.

    Example: suture schedules --json | jq '.[] | {name, nextAt}'
    """
    if context.invoked_subcommand is not None:
        return
    found = open_door().schedules()
    rows = [
        [s["name"], s["workflow"], rhythm_of(s), moment(s["nextAt"]), moment(s["lastAt"]), s["missedCount"], s["skippedCount"], _state(s)]
        for s in found
    ]
    show(found, as_json, table("schedule", "workflow", "when", "next (UTC)", "last (UTC)", "missed", "skipped", "state", rows=rows))


@schedules.command()
def pause(schedule: Name, as_json: AsJson = False) -> None:
    """Let nothing of a schedule fire until it is resumed; what it has enqueued goes on.

    Example: suture schedules pause nightly-report
    """
    _tell(open_door().pause_schedule(schedule), as_json)


@schedules.command()
def resume(schedule: Name, as_json: AsJson = False) -> None:
    """Go on at the next time from now; what fell into the pause is not made up for.

    Example: suture schedules resume nightly-report
    """
    _tell(open_door().resume_schedule(schedule), as_json)


@schedules.command()
def run(schedule: Name, as_json: AsJson = False) -> None:
    """Enqueue its workflow once, now, whatever its rhythm and its pause say.

    Example: suture schedules run nightly-report
    """
    found = open_door().run_schedule(schedule)
    show(found, as_json, f"{found['id']} is {found['status']}")


def rhythm_of(schedule: Any) -> str:
    """When it fires, in a few words."""
    if schedule["cron"]:
        return f"{schedule['cron']} {schedule['timeZone']}"
    return f"every {lasting(schedule['everySeconds'])}"


def _state(schedule: Any) -> str:
    if schedule["problem"]:
        return str(schedule["problem"])
    return "paused" if schedule["paused"] else ""


def _tell(schedule: Any, as_json: bool) -> None:
    state = "paused" if schedule["paused"] else f"due next at {moment(schedule['nextAt'])} UTC" if schedule["nextAt"] else "over"
    show(schedule, as_json, f"{schedule['name']} is {state}")
