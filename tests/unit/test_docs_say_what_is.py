"""The engine's documentation says what the code does: each part that can be compared is."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from typer.main import get_command

from suture.api.metrics import Traffic, page
from suture.cli.api_reference import api_reference, undocumented
from suture.cli.guarantees import guarantees_table, promises
from suture.cli.main import app
from suture.cli.reference import replaced
from suture.engine import MOVES, Health
from suture.operator.main import gauges
from suture.operator.signs import Signs
from tests.unit.promql import Refused, read

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


# Metrics and alerts -----------------------------------------------------------------------------------------------------------

OPERATIONS = (DOCS / "operations.md").read_text()
SUFFIXES = {"counter": ("_total",), "histogram": ("_bucket", "_count", "_sum"), "gauge": ("",)}


def exposed() -> dict[str, tuple[str, frozenset[str]]]:
    """By name of each series that gateway and operator tell when there is something of everything: its type and its labels."""
    now, traffic, signs = datetime.now(UTC), Traffic(), Signs()
    traffic.answered("GET", "/tasks", 200, 0.1)
    traffic.delivered("pagerduty", "accepted")
    signs.of("tasks")
    depth = {"queue": "q", "status": "enqueued", "count": 1, "oldest_seconds": 1.0}
    counts = dict.fromkeys(("fired_count", "missed_count", "skipped_count"), 1)
    health = Health(
        depth=[depth | {"due": 1, "delayed": 0, "parked": 0, "due_seconds": 1.0}],
        workers=[{"beat_seconds": 1.0}],
        endings=[{"workflow": "w", "attempt": 1, "ended": 1, "failed": 1}],
        latency_seconds={"p50": 1.0},
        unclaimable=[{"workflow": "w", "count": 1}],
        queues=[{"name": "q", "paused": True, "concurrency": 1, "per_key": 1, "starts_per_second": 1.0}],
        paused_steps=[{"step": "s", "workflow": "w", "held": 1, "paused_at": now}],
        schedules=[{"name": "s", "paused": False, "problem": None, "next_at": now, "last_at": now} | counts],
    )
    nothing: Any = None
    told = {name: (text, lambda: 1.0) for name, (text, _) in gauges(nothing, nothing, nothing).items()}
    text = page(traffic, health).decode() + signs.page(told)
    families = [family for family in text_string_to_metric_families(text) if not family.name.endswith("_created")]
    return {
        sample.name: (family.type, frozenset(sample.labels) - {"le"})
        for family in families
        for sample in family.samples
        if sample.name.removeprefix(family.name) in SUFFIXES[family.type]
    }


EXPOSED = exposed()


def metrics_table() -> dict[str, frozenset[str]]:
    rows = re.findall(r"^\| `(suture_\w+)` \| (.*?) ?\| .+ \|$", OPERATIONS, re.MULTILINE)
    return {name: frozenset(re.findall(r"`(\w+)`", labels)) for name, labels in rows}


def alerts() -> dict[str, str]:
    """Expression by name."""
    return dict(re.findall(r"^\| (\w+) \| `([^`]+)`(?: for \d+[smh])? \| [^|]+ \|$", OPERATIONS, re.MULTILINE))


def test_every_metric_that_is_told_is_documented_with_its_labels_and_no_other():
    told = {name: labels for name, (kind, labels) in EXPOSED.items() if kind != "histogram"}
    told |= {
        name.removesuffix("_count"): labels for name, (kind, labels) in EXPOSED.items() if kind == "histogram" and name.endswith("_count")
    }
    assert metrics_table() == told


def test_every_line_of_the_alerts_is_read():
    first = OPERATIONS.partition("| alert |")[2].partition("\n\n")[0]
    assert len(alerts()) == first.count("\n| ") >= 20


@pytest.mark.parametrize("name", alerts())
def test_an_alert_is_an_expression_over_metrics_that_there_are(name: str):
    expression = read(alerts()[name])
    assert expression.metrics
    for metric, labels in expression.metrics:
        assert metric in EXPOSED, metric
        assert labels <= EXPOSED[metric][1], f"{metric} has no label of {sorted(labels - EXPOSED[metric][1])}"
    assert {metric for metric in expression.ranged if EXPOSED[metric][0] == "gauge"} == set(), "a gauge has no rate"


@pytest.mark.parametrize(
    "text",
    [
        "suture_workers ==",
        "suture_workers == 0)",
        "suture_workers[5m] > 0",
        "rate(suture_workers) > 0",
        "time() > 3",
        "time() and suture_workers",
        "max by queue (suture_workers) > 0",
        'suture_executions{status="running} > 0',
        "suture_executions{status=running} > 0",
        "rise(suture_workers[5m]) > 0",
        "rate(suture_workers[5]) > 0",
        "suture_workers > 0 unless on queue suture_workers",
        "suture_workers & 3",
        "",
    ],
)
def test_what_prometheus_would_refuse_is_no_alert(text: str):
    with pytest.raises(Refused):
        read(text)
