"""The engine's documentation says what the code does: each part that can be compared is."""

import json
import re
from pathlib import Path

import pytest
from typer.main import get_command

from suture.cli.api_reference import api_reference, undocumented
from suture.cli.guarantees import guarantees_table, promises
from suture.cli.main import app
from suture.cli.reference import replaced
from suture.engine import MOVES

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
OF_THE_ENGINE = ("tasks", "steps", "timeline", "queues", "pauses", "workers", "dead-letters", "schedules", "top")


def test_the_picture_of_a_life_has_the_moves_of_the_code():
    shown = set(re.findall(r"^    (\w+) --> (\w+)", CONTRIBUTING, re.MULTILINE))
    assert shown == {(before, after) for before, afters in MOVES.items() for after in afters}


def faults() -> list[tuple[str, str]]:
    found = re.search(r"<!-- faults -->\n(.*?)\n<!-- /faults -->", CONTRIBUTING, re.DOTALL)
    assert found
    return re.findall(r"\| `([\w.]+)::(\w+)` \|$", found[1], re.MULTILINE)


def test_every_row_of_the_fault_table_names_its_test():
    assert len(faults()) == CONTRIBUTING.partition("<!-- faults -->")[2].partition("<!-- /faults -->")[0].count("\n| ") - 2


@pytest.mark.parametrize(("file", "name"), faults())
def test_a_fault_is_tried(file: str, name: str):
    assert is_defined(ROOT / "tests" / "postgres" / "engine" / file, name)


def test_every_invariant_is_promised_and_held_by_a_test():
    assert [promise["id"] for promise in promises(DOCS)] == [*(f"I{number}" for number in range(1, 18)), "all"]
    assert [promise["id"] for promise in promises(DOCS) if not promise["tests"]] == []


@pytest.mark.parametrize("test", [test for promise in promises(DOCS) for test in promise["tests"]])
def test_a_promise_is_held(test: str):
    file, _, name = test.partition("::")
    assert is_defined(ROOT / "tests" / file, name)


def is_defined(file: Path, name: str) -> bool:
    return re.search(rf"^(async )?def {name}\(", file.read_text(), re.MULTILINE) is not None


@pytest.mark.parametrize(("page", "part"), [("reference", "api"), ("guarantees", "guarantees")])
def test_a_printed_page_is_that_of_the_code(page: str, part: str):
    text = (DOCS / f"{page}.md").read_text()
    made = api_reference() if part == "api" else guarantees_table(DOCS)
    assert replaced(text, part, made) == text, "make generate"


def test_a_figure_that_was_missed_says_so(tmp_path: Path):
    (tmp_path / "guarantees.toml").write_text(
        '[[guarantee]]\nid = "I1"\nholds = "it"\nbecause = "so"\ntests = ["a/test_b.py::test_c_d"]\nfigures = ["scale: claim"]\n'
    )
    assert "| - |" in guarantees_table(tmp_path)
    missed = {"name": "claim p50", "measured": "9 ms", "asked": "<= 3 ms", "met": False}
    other = {"name": "other", "measured": "1", "asked": "1", "met": True}
    part = {"date": "2030-01-01", "machine": "2 cores", "seed": 7, "figures": [missed, other]}
    (tmp_path / "figures.json").write_text(json.dumps({"scale": part}))
    table = guarantees_table(tmp_path)
    assert "[c d](../tests/a/test_b.py) | claim p50: 9 ms (asked <= 3 ms, **missed**) |" in table
    assert "- *scale*: 2030-01-01, 2 cores, seed 7" in table


def test_every_public_name_says_what_it_is():
    assert undocumented() == []


def commands() -> dict[str, str]:
    """Name and help of every command about the engine."""
    found, left = {}, [(name, get_command(app).commands[name]) for name in OF_THE_ENGINE]  # type: ignore[attr-defined]
    while left:
        name, command = left.pop()
        found[name] = (command.callback and command.callback.__doc__) or command.help or ""
        left += [(f"{name} {sub}", one) for sub, one in getattr(command, "commands", {}).items()]
    return found


@pytest.mark.parametrize("name", sorted(commands()))
def test_a_command_shows_an_example_of_itself(name: str):
    asked = re.sub(r"^tasks (timeline|steps)$", r"(tasks )?\1", name)
    assert re.search(rf"suture {asked}\b", commands()[name]), commands()[name]


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md"), key=str), ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        assert "://" in target or (page.parent / target).exists(), target


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(test_\w+\.py)`", (DOCS / "operations.md").read_text() + CONTRIBUTING))))
def test_a_test_that_is_named_exists(name: str):
    assert list((ROOT / "tests").rglob(name))
