"""Of a ConfigMap the keys are read and the values dropped: one that was not read is never taken for one that is set, and to nothing."""

from dataclasses import replace
from pathlib import Path

import pytest

from suture.remediation.diagnosis import diagnose
from suture.remediation.documents import read_recording
from suture.remediation.evidence import Evidence
from tests.unit.remediation.stage import codes, container, crashed, deployment, log, pod, replica_set, verdict, waiting

CASES = sorted((Path(__file__).parents[2] / "cases" / "scenarios").glob("case-*"))
FROM_FILE = {"envFrom": [{"configMapRef": {"name": "settings"}}]}
COMPLAINTS = [
    b"json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)\n",
    b'error: invalid value "" for setting LOG_LEVEL\n',
    b"ValueError: could not convert string to float: ''\n",
    b"panic: cannot parse '' as duration: time: invalid duration \"\"\n",
    b"getaddrinfo ENOTFOUND : no such host\n",
    b"dial tcp: connect: connection refused\n",
]


@pytest.mark.parametrize("complaint", COMPLAINTS)
@pytest.mark.parametrize("key", ["app.json", "app.yaml", "LOG_LEVEL", "DB_HOST"])
def test_no_rule_accuses_a_value_that_was_not_read(complaint, key):
    box = container(**FROM_FILE, env=[{"name": "DB_URL", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": key}}}])

    found = verdict(deployment(box), settings({key: ""}), pod(box, status=crashed()), logs=(log(complaint),))

    assert "BadConfigValue" not in codes(found)
    assert not [c for f in found.findings for c in f.citations if c.object.startswith("ConfigMap/")]
    assert not [c for f in found.findings for c in f.changes]


def test_a_key_that_is_there_is_not_said_to_be_empty():
    box = container(env=[{"name": "LEVEL", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "log-level"}}}])
    waits = pod(box, status=waiting("CreateContainerConfigError", "couldn't find key log-level in ConfigMap shop/settings"))

    found = verdict(deployment(box), settings({"LOG_LEVEL": ""}), waits).cause

    assert [c.value for c in found.changes] == ["LOG_LEVEL"]
    assert [c.why for c in found.citations if c.object == "ConfigMap/shop/settings"] == ["the key that is there; its value was not read"]


@pytest.mark.parametrize("was", [{"name": "REGION"}, {"name": "REGION", "value": ""}])
def test_a_variable_that_was_empty_before_is_no_source_of_its_value(was):
    old, box = container(env=[was]), container()
    history = replica_set(old, name="web-old", revision=1, replicas=0, there=0), replica_set(box)

    found = verdict(deployment(box), *history, pod(box, status=crashed()), logs=(log(b"KeyError: 'REGION'\n"),)).cause

    assert (found.code, found.changes) == ("MissingEnv", ())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_without_the_values_no_recorded_incident_gets_another_cause(case):
    whole = read_recording(case / "bundle")
    told = {(f.code, f.object) for f in diagnose(whole).findings}

    found = diagnose(without_values(whole)).findings

    assert {(f.code, f.object) for f in found} <= told
    assert not [c for f in found for c in f.changes if c.object.startswith("ConfigMap/")]


def settings(data):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "shop", "name": "settings"}, "data": data}


def without_values(evidence: Evidence) -> Evidence:
    emptied = [o | {"data": dict.fromkeys(o.get("data", {}), "")} if o["kind"] == "ConfigMap" else o for o in evidence.objects]
    return replace(evidence, objects=tuple(emptied))
