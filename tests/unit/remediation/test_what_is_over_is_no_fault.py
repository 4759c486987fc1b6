"""What happened once and is over says nothing about now; what comes back every few minutes does, however well it looks in between."""

from datetime import UTC, datetime, timedelta

import pytest

from tests.unit.remediation.stage import HASH, codes, container, crashed, deployment, event, log, node, pod, verdict, waiting

NOW = datetime(2026, 1, 1, 0, 0, tzinfo=UTC)
WORDS = log(b"KeyError: 'APP_TIER'\n")


def ago(minutes: int) -> str:
    return (NOW - timedelta(minutes=minutes)).isoformat().replace("+00:00", "Z")


def running(minutes: int) -> dict:
    ended = {"terminated": {"exitCode": 1}}
    return {"state": {"running": {"startedAt": ago(minutes)}}, "ready": True, "restartCount": 3, "lastState": ended}


def clock() -> dict:
    tick = event("tick", "Tick", "Node//node1", kind="Normal")
    return {**tick, "lastTimestamp": ago(0)}


@pytest.mark.parametrize(("minutes", "found"), [(1, ["MissingEnv"]), (10, ["MissingEnv"]), (16, []), (600, [])])
def test_a_container_that_has_been_ready_for_long_has_recovered(minutes, found):
    assert codes(verdict(deployment(), pod(status=running(minutes)), clock(), logs=(WORDS,))) == found


def test_a_probe_that_killed_long_ago_is_forgotten():
    box = container(livenessProbe={"exec": {"command": ["check"]}})
    told = (
        event("Liveness probe failed: command timed out", "Unhealthy"),
        event("Container app failed liveness probe, will be restarted", "Killing"),
    )
    calm, shaken = ({**running(minutes), "lastState": {"terminated": {"exitCode": 137}}} for minutes in (60, 1))

    assert codes(verdict(deployment(box), pod(box, status=calm), *told, clock())) == []
    assert codes(verdict(deployment(box), pod(box, status=shaken), *told, clock())) == ["ProbeTimeout"]


@pytest.mark.parametrize(("condition", "found"), [("Complete", []), ("Failed", ["MissingEnv"])])
def test_a_job_that_is_complete_has_forgiven_its_failed_pods(condition, found):
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"namespace": "shop", "name": "load"},
        "status": {"conditions": [{"type": condition, "status": "True"}]},
    }
    failed = pod(phase="Failed", status={"state": {"terminated": {"exitCode": 1}}})
    failed["metadata"]["ownerReferences"] = [{"kind": "Job", "name": "load", "controller": True}]

    assert codes(verdict(job, failed, logs=(WORDS,))) == found


def test_a_failed_pod_that_was_replaced_is_over():
    healthy = pod(name=f"web-{HASH}-new", status={"state": {"running": {}}, "ready": True})

    assert codes(verdict(deployment(), healthy, pod(phase="Failed", status=crashed()), logs=(WORDS,))) == []


def test_a_pod_that_is_being_deleted_is_over():
    leaving = pod(status=waiting("InvalidImageName"))
    leaving["metadata"]["deletionTimestamp"] = ago(0)

    assert codes(verdict(deployment(), leaving)) == []


def test_pods_that_are_lost_with_their_node_are_told_by_the_node():
    leaving = pod(status={"state": {"running": {}}, "ready": True}, conditions=[{"type": "Ready", "status": "False"}])
    leaving["metadata"]["deletionTimestamp"] = ago(0)

    assert codes(verdict(node(ready="Unknown"), deployment(), leaving)) == ["NodeLost"]
