"""Workers from the terminal: who claims and runs, and how far their heartbeats are."""

import typer

from suture.cli.door import open_door
from suture.cli.listing import AsJson, lasting, show, table

commands = typer.Typer()


@commands.command(rich_help_panel="Engine")
def workers(as_json: AsJson = False) -> None:
    """List the workers that have not said goodbye: presence, age of the last heartbeat, what they run.

    A worker that was killed stays here, with a beat that grows older, for a day; its work is taken over meanwhile.

    Example: suture workers --json | jq '[.[].running] | add'
    """
    found = open_door().workers()
    rows = [
        [
            w["name"],
            "present" if w["presence"] else "by lease",
            lasting(w["beatSeconds"]),
            w["running"],
            ",".join(w["queues"]),
            w["version"],
        ]
        for w in found
    ]
    show(found, as_json, table("worker", "presence", "beat", "running", "queues", "version", rows=rows))
