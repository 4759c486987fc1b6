"""The README shows what one sees: its demo is a real run, its commands and paths exist."""

import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from typer.main import get_command

from suture.cli.main import app
from tests.postgres.test_demo import ENVIRONMENT, LONG

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()

CHANGING = {
    r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}\b": "ID",
    r"\d\d:\d\d:\d\d\.\d{3}": "TIME",
    r"\(pid \d+\)": "(pid N)",
    r"\(\d+\.\d s\)": "(N s)",
    r"main at [0-9a-f]{7,}": "main at COMMIT",
    r"approval:[0-9a-f]{16}": "approval:DIGEST",
    r"http://127\.0\.0\.1:\d+/": "http://127.0.0.1:PORT/",
    r"token \S+": "token TOKEN",
    r"in the middle of step \S+; done: .*": "in the middle of step STEP",
    r"went on from step \S+;": "went on from step STEP;",
}


def settled(text: str) -> list[str]:
    """The lines of a demo without what differs from run to run."""
    for pattern, word in CHANGING.items():
        text = re.sub(pattern, word, text)
    # Which moves carry which epoch depends on where the kill fell; the order of names does not.
    return [re.sub(r"\s+", " ", line).strip() for line in text.splitlines() if line.strip() and "epoch" not in line]


def test_the_demo_in_the_readme_is_a_real_run() -> None:
    shown = re.search(r"<!-- demo -->\n```\n(.*?)```\n<!-- /demo -->", README, re.DOTALL)
    assert shown
    with tempfile.TemporaryDirectory(prefix="sr-") as folder:
        environ = {**ENVIRONMENT, "TMPDIR": folder, "COLUMNS": "140"}
        command = [sys.executable, "-m", "suture", "demo", "--yes"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LONG, check=True, stdin=subprocess.DEVNULL, env=environ)

    assert settled(done.stdout) == settled(shown[1])


@pytest.mark.parametrize("path", sorted(set(re.findall(r"[(`]((?:tests|src|charts|deploy|crds)/[\w./-]+)", README))))
def test_every_path_in_the_readme_exists(path: str) -> None:
    assert (ROOT / path.rstrip(".")).exists()


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(test_\w+\.py)`", README))))
def test_every_test_in_the_readme_exists(name: str) -> None:
    assert list((ROOT / "tests").rglob(name))


@pytest.mark.parametrize("line", sorted(set(re.findall(r"`(suture [a-z][^`]*)`", README))))
def test_every_command_in_the_readme_is_one(line: str) -> None:
    command, words = get_command(app), shlex.split(line)[1:]
    while words and hasattr(command, "commands"):
        assert words[0] in command.commands, line
        command = command.commands[words.pop(0)]
    options = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= options
