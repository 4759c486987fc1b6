"""`suture demo`: the whole story on this machine, with a worker that is killed on the way. Reads top to bottom."""

import asyncio
import signal
import sys
import time
from typing import Annotated
from uuid import UUID

import typer
from rich.console import Console

from suture.cli import cases, show
from suture.cli.cases import Case
from suture.cli.stage import Stage
from suture.errors import SutureError
from suture.remediation.incident import Approval, Diagnosis, Outcome

commands = typer.Typer()

_LIMIT = 60.0  # seconds for what the processes do alone; ten times what it takes on two cores


@commands.command()
def demo(
    case: Annotated[str, typer.Option(help=f"Which failure: {', '.join(cases.names())}.", metavar="NAME")] = cases.DEFAULT,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Approve without asking, for machines.")] = False,
) -> None:
    """See a failing workload become one reviewed pull request, and survive a SIGKILL on the way.

    Needs git, and nothing else: no cluster, no Postgres, no account. Everything runs in a private folder and is gone at the end.

    Examples: suture demo · suture demo --case oom · suture demo --case missing-env --yes
    """
    if not asyncio.run(_interruptible(cases.load(case), yes=yes)):
        raise typer.Exit(1)


async def _interruptible(case: Case, *, yes: bool) -> bool:
    """Ctrl-C and SIGTERM end the story at any line, and the stage is taken down before the process ends."""
    story = asyncio.ensure_future(_tell(case, Console(highlight=False), yes=yes))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, story.cancel)
    try:
        return await story
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


async def _tell(case: Case, console: Console, *, yes: bool) -> bool:
    """True when the repository holds exactly what the case expects."""
    say = show.Story(console)
    console.print(f"[bold]{case.title}[/]  [dim]({case.workload}, case {case.name})[/]\n")
    with say.busy("starting Postgres, a repository and the gateway"):
        building = Stage.built(case)
        stage = await building.__aenter__()
    try:
        say.line(f"Postgres 18, a GitOps repository (main at {stage.head()}) and the gateway are up")
        task = await _take_in(stage, say)
        survivor = await _survive(stage, say, task)
        return await _finish(stage, say, task, survivor, yes=yes)
    finally:
        await building.__aexit__(None, None, None)


async def _take_in(stage: Stage, say: show.Story) -> UUID:
    await stage.post_webhook()
    task = await stage.task()
    say.line(f"signed PagerDuty webhook accepted; it is task [cyan]{task.id}[/]")
    return task.id


async def _survive(stage: Stage, say: show.Story, task: UUID) -> asyncio.subprocess.Process:
    """Let a worker begin, kill it in the middle of a step, let another go on. Returns the other."""
    first = await stage.start_worker("worker-a")
    async with asyncio.timeout(_LIMIT):
        step, done = await stage.stop_in_mid_step(first, task)
    await stage.kill(first)
    killed = time.monotonic()
    say.line(f"worker-a (pid {first.pid}) [bold red]killed with SIGKILL[/] in the middle of step [cyan]{step}[/]; done: {', '.join(done)}")
    second = await stage.start_worker("worker-b")
    async with asyncio.timeout(_LIMIT):
        execution = await stage.until(task, ("waiting", "completed", "error", "cancelled"), second)
    repeated = [c.step_id for c in await stage.engine.checkpoints(task) if c.step_id in done and c.epoch > 1]
    if execution.status == "error" or repeated:
        raise SutureError(f"The task is {execution.status}; repeated steps: {', '.join(repeated) or 'none'}.")
    took = time.monotonic() - killed
    say.line(f"worker-b (pid {second.pid}) [bold green]went on[/] from step [cyan]{step}[/]; nothing repeated ({took:.1f} s)")
    return second


async def _finish(stage: Stage, say: show.Story, task: UUID, worker: asyncio.subprocess.Process, *, yes: bool) -> bool:
    outputs = {c.step_id: c.output for c in await stage.engine.checkpoints(task)}
    diagnosis = Diagnosis.model_validate(outputs["diagnose"])
    say.diagnosis(diagnosis)
    approval = await stage.records.approval(task)
    if approval is not None:
        await _ask(stage, say, task, approval, yes=yes)
    async with asyncio.timeout(_LIMIT):
        execution = await stage.until(task, ("completed", "error", "cancelled"), worker)
    outcome = Outcome.model_validate(execution.output)
    right = _is_right(stage, diagnosis, outcome)
    say.timeline(await stage.engine.timeline(task), await stage.engine.checkpoints(task))
    say.end(outcome, stage.branches(), right=right)
    return right


async def _ask(stage: Stage, say: show.Story, task: UUID, approval: Approval, *, yes: bool) -> None:
    say.diff(approval.proposal.diff)
    if yes:
        say.line("approved by --yes")
        await stage.answer(task, approve=True, digest=approval.proposal.digest)
        return
    say.line(f"or answer on the page: {stage.url}/  [dim]token {stage.token}[/]")
    answer = await _first_answer(stage, say, task)
    if answer is not None:
        await stage.answer(task, approve=answer, digest=approval.proposal.digest)


async def _first_answer(stage: Stage, say: show.Story, task: UUID) -> bool | None:
    """What the person types, or None when the page was quicker."""
    typed = asyncio.ensure_future(_line())
    say.prompt("Open the pull request? [y/N] ")
    try:
        while not typed.done():
            await asyncio.wait([typed], timeout=0.2)
            approval = await stage.records.approval(task)
            if approval is not None and approval.decision is not None:
                say.line(f"\n{approval.decision.verdict} on the page by {approval.decision.by}")
                return None
        return (await typed).strip().lower() in ("y", "yes")
    finally:
        typed.cancel()


async def _line() -> str:
    """A line of standard input; empty at its end. No thread: one that reads could not be ended by Ctrl-C."""
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    try:
        loop.add_reader(sys.stdin, ready.set)
    except (OSError, ValueError):  # a regular file, or closed: it never makes us wait
        return "" if sys.stdin.closed else sys.stdin.readline()
    try:
        await ready.wait()
        return sys.stdin.readline()
    finally:
        loop.remove_reader(sys.stdin)


def _is_right(stage: Stage, diagnosis: Diagnosis, outcome: Outcome) -> bool:
    """Whether the cause is the expected one and the repository holds one branch with exactly the expected change, or none where none is."""
    case, branches = stage.case, stage.branches()
    if diagnosis.cause is None or diagnosis.cause.code != case.code:
        return False
    if not case.change:
        return outcome.state == "reported" and not branches
    return len(branches) == 1 and _changed(stage.diff(branches[0])) == [(line.file, line.old, line.new) for line in case.change]


def _changed(diff: str) -> list[tuple[str, str, str]]:
    """File, old and new text of each changed line of a git diff."""
    file, old, found = "", [], list[tuple[str, str, str]]()
    for line in diff.splitlines():
        if line.startswith("+++ b/"):
            file = line.removeprefix("+++ b/")
        elif line.startswith("-") and not line.startswith("---"):
            old.append(line[1:])
        elif line.startswith("+"):
            found.append((file, old.pop(0) if old else "", line[1:]))
    return found + [(file, line, "") for line in old]
