"""A citation is looked up again in the frozen evidence, exactly; a finding with a false one is thrown away."""

import copy

import pytest

from suture.remediation.causes import Cause
from suture.remediation.citations import check, proven
from suture.remediation.diagnosis import diagnose
from suture.remediation.evidence import Evidence, Log, Note
from suture.remediation.incident import Citation, Finding
from tests.unit.remediation.stage import POD, deployment, log, pod, verdict, waiting

EVIDENCE = Evidence(
    (pod(status={"ready": True, "restartCount": 1}), deployment()), (log(b"one\ntwo \xff\n"),), (Note("commands.txt", b"$ apply\n"),)
)
LOG = log(b"").ref


def cite(object_: str, path: str, value: object) -> Citation:
    return Citation.model_validate({"object": object_, "path": path, "value": value, "why": "it matters"})


@pytest.mark.parametrize(
    "citation",
    [
        cite(POD, "status.containerStatuses[name=app].restartCount", 1),
        cite(POD, "status.containerStatuses[0].ready", True),
        cite(POD, "metadata.labels.pod-template-hash", "6d5f8c9b7d"),
        cite(LOG, "bytes 0-3", "one"),
        cite(LOG, "bytes 4-9", "two �"),
        cite("note/commands.txt", "bytes 2-7", "apply"),
    ],
)
def test_what_stands_there_is_true(citation):
    assert check(EVIDENCE, citation)


@pytest.mark.parametrize(
    "citation",
    [
        cite(POD, "status.containerStatuses[name=app].restartCount", 2),
        cite(POD, "status.containerStatuses[name=app].restartCount", "1"),
        cite(POD, "status.containerStatuses[name=app].restartCount", True),
        cite(POD, "status.containerStatuses[name=app].ready", 1),
        cite(POD, "status.containerStatuses[name=other].ready", True),
        cite(POD, "status.absent", None),
        cite(POD, "status..phase", "Running"),
        cite(POD, "", "Running"),
        cite("Pod/shop/another", "status.phase", "Running"),
        cite(LOG, "bytes 0-3", "two"),
        cite(LOG, "bytes 0-300", "one\ntwo �\n"),
        cite(LOG, "bytes 3-3", ""),
        cite(LOG, "line 1", "one"),
        cite("log/shop/another/app/previous", "bytes 0-3", "one"),
        cite("note/other.txt", "bytes 0-3", "one"),
    ],
)
def test_what_does_not_stand_there_is_false(citation):
    assert not check(EVIDENCE, citation)


def test_a_finding_needs_a_citation_and_every_one_must_be_true():
    good, bad = cite(LOG, "bytes 0-3", "one"), cite(LOG, "bytes 0-3", "two")
    finding = Finding(code="X", object="Pod/shop/x", sentence="x", confidence=1, citations=())

    assert not proven(EVIDENCE, finding)
    assert proven(EVIDENCE, finding.model_copy(update={"citations": (good,)}))
    assert not proven(EVIDENCE, finding.model_copy(update={"citations": (good, bad)}))


def test_tampered_evidence_makes_the_checker_reject():
    honest = pod(status=waiting("CreateContainerConfigError", 'secret "login" not found'))
    finding = verdict(deployment(), honest).cause
    forged = copy.deepcopy(honest)
    forged["status"]["containerStatuses"][0]["state"]["waiting"]["message"] = 'secret "other" not found'

    assert proven(Evidence((deployment(), honest)), finding)
    assert not proven(Evidence((deployment(), forged)), finding)
    assert not proven(Evidence((deployment(),)), finding)


def test_a_cause_that_lies_is_not_heard():
    lie = Finding(code="Lie", object="Pod/shop/x", sentence="x", confidence=1, citations=(cite(POD, "status.phase", "Failed"),))
    told = lie.model_copy(update={"citations": (cite(POD, "status.phase", "Running"),)})

    assert diagnose(EVIDENCE, causes=[Cause(("Lie",), lambda _scene: iter([lie]))]).findings == ()
    assert diagnose(EVIDENCE, causes=[Cause(("Lie",), lambda _scene: iter([told]))]).findings == (told,)


def test_a_byte_range_of_a_log_counts_from_its_first_byte():
    evidence = Evidence(logs=(Log("shop", "x", "app", previous=False, content=b"\xf0\x9f\x98\x80ok"),))

    assert check(evidence, cite("log/shop/x/app/current", "bytes 4-6", "ok"))
