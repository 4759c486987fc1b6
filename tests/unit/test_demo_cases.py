"""The failures of `suture demo` are what they say: recording, cause, change and webhook belong together."""

import json

import pytest

from suture.api import pagerduty
from suture.cli import cases
from suture.cli.cases import Case, Line
from suture.remediation.diagnosis import diagnose
from suture.remediation.documents import read_recording
from suture.remediation.source.proposing import propose_files

EVERY = pytest.mark.parametrize("case", [cases.load(name) for name in cases.names()], ids=lambda case: case.name)


@EVERY
def test_the_recording_shows_the_cause_and_nothing_else(case: Case) -> None:
    diagnosis = diagnose(read_recording(case.recording), case.workload)

    assert [finding.code for finding in diagnosis.findings] == [case.code]
    assert diagnosis.cause is not None
    assert diagnosis.cause.object == str(case.workload)


@EVERY
def test_the_change_is_the_expected_one_to_the_byte(case: Case) -> None:
    cause = diagnose(read_recording(case.recording), case.workload).cause
    repository = {str(path.relative_to(case.commits[-1])): path.read_bytes() for path in case.commits[-1].rglob("*.yaml")}

    changed = propose_files(repository, cause.changes) if cause and cause.changes else ()

    lines = [
        Line(change.path, old, new)
        for change in changed
        for old, new in zip(change.before.decode().split("\n"), change.after.decode().split("\n"), strict=True)
        if old != new
    ]
    assert tuple(lines) == case.change


@EVERY
def test_the_webhook_names_the_workload(case: Case) -> None:
    event = pagerduty.read(case.webhook)

    assert event is not None
    assert event.type == pagerduty.TRIGGERED
    assert pagerduty.workload(event) == case.workload


@EVERY
def test_nothing_of_the_machine_that_recorded_it_is_left(case: Case) -> None:
    for path in case.recording.rglob("*.*"):
        text = path.read_text()
        assert not any(trace in text for trace in ("suture-rig", "/root/", "/home/", "localhost/", "last-applied-configuration")), path
    nodes = json.loads((case.recording / "cluster/nodes.json").read_text())["items"]
    assert all("images" not in node["status"] for node in nodes)


def test_there_are_six_and_the_first_is_the_default() -> None:
    assert cases.names()[0] == cases.DEFAULT
    assert set(cases.names()) == {"image-tag", "oom", "config-key", "probe-port", "cpu-request", "missing-env"}
