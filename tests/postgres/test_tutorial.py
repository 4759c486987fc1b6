"""The tutorial is a real run: its program is saved, its commands are typed into two terminals, and what it shows is what one sees."""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.postgres.command import environment
from tests.postgres.terminal import Terminal

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "tutorial.md").read_text()

END = "the-end-of-what-was-typed"


class Block(NamedTuple):
    language: str
    about: str
    text: str


def blocks() -> Iterator[Block]:
    for found in re.finditer(r"^```(\w+) ?(.*)\n((?:.*\n)*?)```$", TEXT, re.MULTILINE):
        yield Block(found[1], found[2], found[3])


class Shell:
    """A terminal with an interactive shell that neither prompts nor repeats what is typed."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal

    def type(self, line: str) -> None:
        self._terminal.type(f"{line}\n")

    def see(self, lines: list[str]) -> None:
        """Wait until `lines` are what was shown since the last look."""
        shown = self._terminal.until(lambda text: len(settled(text)) >= len(lines))
        assert settled(shown) == settled("\n".join(lines))
        self._terminal.shown = ""

    def quiet(self) -> None:
        """Wait until it is ready for another command: the last one said no more than what was seen."""
        self.type(f"echo {END}")
        self.see([END])


@contextmanager
def shell(folder: Path, environ: dict[str, str]) -> Iterator[Shell]:
    bash = ["bash", "--norc", "--noprofile", "--noediting", "-i"]
    with Terminal(bash, environ=environ, folder=folder, size=(40, 140), echo=False) as terminal:
        made = Shell(terminal)
        made.quiet()
        yield made


def settled(text: str) -> list[str]:
    """The lines without what differs from run to run: times, and the width of columns."""
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "TIME", text)
    return [re.sub(r"\s+", " ", line).strip() for line in text.splitlines() if line.strip()]


def test_every_command_of_the_tutorial_shows_what_is_shown(empty_database_url: str, tmp_path: Path) -> None:
    here = {
        "SUTURE_DATABASE_URL": empty_database_url,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PS1": "",
        "PS2": "",
    }
    with shell(tmp_path, environment(**here)) as one, shell(tmp_path, environment(**here)) as two:
        for block in blocks():
            if block.language == "python":
                (tmp_path / block.about).write_text(block.text)
            elif block.about.startswith("terminal"):
                play(block.text, one if block.about == "terminal 1" else two)

    assert "kill -9" in TEXT


def play(text: str, terminal: Shell) -> None:
    """Type the commands one after the other, each after the last one's output."""
    first, *rest = re.split(r"^\$ ", text, flags=re.MULTILINE)
    if first:
        terminal.see(first.splitlines())
    for command in rest:
        line, *shown = command.splitlines()
        terminal.type(line)
        if shown:
            terminal.see(shown)
        if line.split()[:3] != ["python", "shop.py", "work"]:  # that one stays in the foreground
            terminal.quiet()


def test_the_tutorials_program_is_short_enough_to_read() -> None:
    (program,) = [block.text for block in blocks() if block.language == "python"]
    assert len(program.splitlines()) < 80


def test_the_example_in_the_readme_runs(empty_database_url: str, tmp_path: Path) -> None:
    found = re.search(r"<!-- library -->\n```python\n(.*?)```\n<!-- /library -->", (ROOT / "README.md").read_text(), re.DOTALL)
    assert found
    (tmp_path / "example.py").write_text(found[1])
    environ = environment(SUTURE_DATABASE_URL=empty_database_url)
    with Terminal([sys.executable, "example.py"], environ=environ, folder=tmp_path) as terminal:
        assert terminal.until(lambda text: "\n" in text) == "hello Ada\n"
