"""Queues from the terminal: what is in them, and what they may do at once; changed while work goes on."""

import re
from typing import Annotated, Any

import typer

from suture.cli.door import open_door
from suture.cli.listing import SECONDS, AsJson, lasting, limits, show, table
from suture.errors import InvalidRequest

commands = typer.Typer()
queues = typer.Typer(invoke_without_command=True, help="List queues; pause, resume and limit them while work goes on.")
commands.add_typer(queues, name="queues", rich_help_panel="Engine")

Name = Annotated[str, typer.Argument(metavar="QUEUE", help="Name of the queue.", show_default=False)]
Reason = Annotated[str, typer.Option(help="Why; it stands in the queue's row.")]


@queues.callback()
def list_queues(context: typer.Context, as_json: AsJson = False) -> None:
    """List queues; pause, resume and limit them while work goes on; alone it lists those that hold work, or were changed.

    Example: suture queues --json | jq '.[] | select(.paused).name'
    """
    if context.invoked_subcommand is not None:
        return
    found = open_door().queues()
    counts = ("delayed", "parked", "running", "waiting")
    rows = [[q["name"], q["due"], lasting(q["oldestDueSeconds"]), *(q[name] for name in counts), limits_of(q), state_of(q)] for q in found]
    show(found, as_json, table("queue", "due", "oldest", *counts, "limits", "state", rows=rows))


@queues.command()
def pause(queue: Name, reason: Reason = "", as_json: AsJson = False) -> None:
    """Claim nothing more from a queue; what runs goes on.

    Example: suture queues pause mail --reason "the provider is down"
    """
    _tell(open_door().pause_queue(queue, reason=reason), as_json)


@queues.command()
def resume(queue: Name, reason: Reason = "", as_json: AsJson = False) -> None:
    """Claim from a queue again.

    Example: suture queues resume mail
    """
    _tell(open_door().resume_queue(queue, reason=reason), as_json)


@queues.command()
def limit(  # noqa: PLR0917 (typer passes them by name)
    queue: Name,
    concurrency: Annotated[str, typer.Option(metavar="N|none", help="Executions that run at once in the whole fleet.")] = "",
    per_key: Annotated[str, typer.Option(metavar="N|none", help="Executions with one concurrency key.")] = "",
    rate: Annotated[str, typer.Option(metavar="N/TIME|none", help="First starts over time, such as 100/1m or 5/s.")] = "",
    burst: Annotated[int | None, typer.Option(min=1, help="With --rate: starts at once after a quiet time; else N.")] = None,
    reason: Reason = "",
    as_json: AsJson = False,
) -> None:
    """Limit what a queue may do at once, from the next claim on; what is not named stays, `none` takes a limit away.

    Example: suture queues limit mail --concurrency 8 --rate 100/1m --burst 20
    """
    if burst is not None and rate in {"", "none"}:
        raise InvalidRequest("--burst goes with --rate: name both, for example --rate 100/1m --burst 20.")
    changes: dict[str, Any] = {
        "concurrency": _count("--concurrency", concurrency), "perKey": _count("--per-key", per_key), "rate": _rate(rate, burst),
    }  # fmt: skip
    named = {"concurrency": concurrency, "perKey": per_key, "rate": rate}
    if not any(named.values()):
        raise InvalidRequest("Nothing is to be changed: name --concurrency, --per-key or --rate.")
    _tell(open_door().limit_queue(queue, {name: changes[name] for name, text in named.items() if text}, reason=reason), as_json)


def limits_of(queue: Any) -> str:
    """The limits of a queue in a few words."""
    rate = queue["rate"] or {"starts": None, "perSeconds": None}
    return limits(queue["concurrency"], queue["perKey"], rate["starts"], rate["perSeconds"])


def state_of(queue: Any) -> str:
    return "paused" if queue["paused"] else ""


def _tell(queue: Any, as_json: bool) -> None:
    state = "paused" if queue["paused"] else "open"
    limited = limits_of(queue)
    show(queue, as_json, f"{queue['name']} is {state}{f', limited to {limited}' if limited else ''}")


def _count(option: str, text: str) -> int | None:
    if text in {"", "none"}:
        return None
    if not text.isdecimal() or not 0 < int(text) <= 1_000_000:
        raise InvalidRequest(f"{option} {text!r} is no number from 1 to 1,000,000; `none` takes the limit away.")
    return int(text)


def _rate(text: str, burst: int | None) -> dict[str, Any] | None:
    if text in {"", "none"}:
        return None
    found = re.fullmatch(r"(\d{1,7})/(\d*)(ms|s|m|h|d)", text)
    if not found or not int(found[1]):
        raise InvalidRequest(f"--rate {text!r} is no number and time, such as 100/1m or 5/s; `none` takes the limit away.")
    return {"starts": int(found[1]), "perSeconds": int(found[2] or 1) * SECONDS[found[3]], "burst": burst}
