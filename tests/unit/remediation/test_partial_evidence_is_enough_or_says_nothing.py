"""Events expire, logs are lost, people paste a part: what is left is enough, or nothing is said. It never leads to a wrong cause."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from suture.remediation.diagnosis import diagnose
from suture.remediation.documents import read_recording
from suture.remediation.evidence import Evidence

CASES = sorted((Path(__file__).parents[2] / "cases" / "scenarios").glob("case-*"))
FORBIDDEN = {"QuotaExceeded", "QuotaNeedsLimits", "PodSecurityViolation", "LimitRangeViolation"}

PARTS: dict[str, Callable[[dict[str, Any]], bool]] = {
    "no events": lambda o: o["kind"] != "Event",
    "pods and events": lambda o: o["kind"] in ("Pod", "Event"),
    "no nodes": lambda o: o["kind"] != "Node",
    "pods": lambda o: o["kind"] == "Pod",
    "workloads": lambda o: o["kind"] in ("Deployment", "ReplicaSet", "StatefulSet"),
}


def truth(case: Path) -> set[str]:
    return {cause["code"] for cause in json.loads((case / "expected.json").read_text())["causes"]}


def part(case: Path, keep: Callable[[dict[str, Any]], bool], *, logs: bool = True) -> set[str]:
    whole = read_recording(case / "bundle")
    rest = Evidence(tuple(o for o in whole.objects if keep(o)), whole.logs if logs else (), whole.notes)
    return {finding.code for finding in diagnose(rest).findings}


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_part_never_leads_to_another_cause(case, name):
    assert part(case, PARTS[name]) <= truth(case)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_without_logs_no_other_cause_is_found(case):
    assert part(case, lambda _: True, logs=False) <= truth(case)


@pytest.mark.parametrize("case", [c for c in CASES if truth(c) & FORBIDDEN], ids=lambda case: case.name)
def test_a_refusal_is_known_by_the_controllers_condition_when_its_events_have_expired(case):
    assert part(case, PARTS["no events"]) & FORBIDDEN == truth(case) & FORBIDDEN


@pytest.mark.parametrize("case", [c for c in CASES if "NodeLost" in truth(c)], ids=lambda case: case.name)
def test_a_lost_node_is_known_by_its_pods(case):
    assert part(case, PARTS["no nodes"]) == {"NodeLost"}
