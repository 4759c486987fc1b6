"""How a person sees it in a terminal: numbered lines, the diagnosis, the diff, the timeline. Untrusted text is never markup."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from suture.cli.listing import plain
from suture.engine import Checkpoint, Move
from suture.remediation.incident import Diagnosis, Outcome
from suture.remediation.report import render

_COLOURS = {"+": "green", "-": "red", "@": "cyan"}


class Story:
    def __init__(self, console: Console) -> None:
        self._console, self._number = console, 0

    def line(self, text: str) -> None:
        """The next line of the story; `text` is our own markup."""
        self._number += 1
        self._console.print(f"[dim]{self._number:>2}[/]  {text}", soft_wrap=True)

    @contextmanager
    def busy(self, text: str) -> Iterator[None]:
        with self._console.status(f"{text} …"):
            yield

    def prompt(self, text: str) -> None:
        self._console.print(f"\n[bold]{escape(text)}[/]", end="")

    def diagnosis(self, diagnosis: Diagnosis) -> None:
        self._console.print()
        self._console.print(render(diagnosis).rstrip(), markup=False, soft_wrap=True)
        self._console.print()

    def diff(self, diff: str) -> None:
        print_diff(self._console, diff)
        self._console.print()

    def timeline(self, moves: Sequence[Move], checkpoints: Sequence[Checkpoint]) -> None:
        """Moves and finished steps, in the order in which they happened."""
        table = Table("at", "who", "what", "why", title="\nTimeline, from the database", title_justify="left", box=None, pad_edge=False)
        lines = [(m.at, m.actor, _move(m), m.reason) for m in moves]
        lines += [(c.finished_at, f"epoch {c.epoch}", f"{c.kind} {c.step_id}", _tries(c.attempts)) for c in checkpoints]
        for at, who, what, why in sorted(lines, key=lambda line: line[0]):
            table.add_row(f"{at:%H:%M:%S.%f}"[:-3], *(Text(plain(part)) for part in (who, what, why)))
        self._console.print(table)

    def end(self, outcome: Outcome, branches: Sequence[str], *, right: bool) -> None:
        self._console.print()
        self._console.print(f"[bold]{outcome.state}[/]: {escape(plain(outcome.sentence))}", soft_wrap=True)
        self._console.print(f"branches: {escape(', '.join(branches) or 'none')}")
        verdict = "[bold green]as expected[/]" if right else "[bold red]not as expected[/]"
        self._console.print(f"The repository is {verdict}.")


def print_diff(console: Console, diff: str) -> None:
    """A unified diff in the usual colours."""
    for line in diff.splitlines():
        header = line.startswith(("+++", "---", "diff "))
        console.print(Text(plain(line), style="bold" if header else _COLOURS.get(line[:1], "")), soft_wrap=True)


def _move(move: Move) -> str:
    return f"{move.from_status} → {move.to_status}" if move.from_status else move.to_status


def _tries(attempts: int) -> str:
    return "checkpointed" if attempts == 1 else f"checkpointed at try {attempts}"
