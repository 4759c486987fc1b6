"""Evidence becomes rows and comes back the same; its digest depends on what it says, not on the order in which it was collected."""

from pathlib import Path

import pytest

from suture.remediation.diagnosis import diagnose
from suture.remediation.documents import read_recording
from suture.remediation.evidence import Evidence, Log, Note, written_name
from tests.unit.remediation.stage import HASH, POD, deployment, event, log, pod, replica_set, waiting

CASES = sorted((Path(__file__).parents[2] / "cases" / "scenarios").glob("case-*"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_rows_and_back_is_the_same_evidence(case):
    evidence = read_recording(case / "bundle")

    again = Evidence.from_items(reversed(list(evidence.to_items())))

    assert again.digest == evidence.digest
    assert diagnose(again) == diagnose(evidence)


def test_any_difference_is_another_digest():
    base = Evidence((pod(),), (log(b"a"),), (Note("n", b"a"),))
    others = [
        Evidence((pod(phase="Failed"),), base.logs, base.notes),
        Evidence(base.objects, (log(b"b"),), base.notes),
        Evidence(base.objects, base.logs, (Note("n", b"b"),)),
        Evidence(base.objects, (log(b"a", previous=False),), base.notes),
        Evidence(),
    ]

    assert len({e.digest for e in [base, *others]}) == 6


def test_of_two_states_of_an_object_the_newer_is_kept():
    old, new = pod(phase="Pending"), pod()
    old["metadata"]["resourceVersion"], new["metadata"]["resourceVersion"] = "9", "10"

    assert Evidence((new, old)).get(POD)["status"]["phase"] == "Running"
    assert len(Evidence((new,)).__add__(Evidence((old,))).objects) == 1


def test_the_owner_chain_ends_at_what_a_person_wrote():
    evidence = Evidence((deployment(), replica_set(), pod()))

    assert evidence.owner(POD) == f"ReplicaSet/shop/web-{HASH}"
    assert evidence.top(POD) == "Deployment/shop/web"
    assert [p["metadata"]["name"] for p in evidence.pods("Deployment/shop/web")] == [f"web-{HASH}-abcde"]


def test_a_pod_that_is_gone_is_known_by_its_makers_events():
    told = event("Created pod: load-x1", "SuccessfulCreate", "Job/shop/load", kind="Normal")

    assert Evidence((told,)).top("Pod/shop/load-x1") == "Job/shop/load"


def test_an_owner_chain_that_bites_its_tail_ends():
    first, second = pod(name="a"), pod(name="b")
    first["metadata"]["ownerReferences"] = [{"kind": "Pod", "name": "b", "controller": True}]
    second["metadata"]["ownerReferences"] = [{"kind": "Pod", "name": "a", "controller": True}]

    assert Evidence((first, second)).top("Pod/shop/a") in ("Pod/shop/a", "Pod/shop/b")


def test_revisions_are_in_order_and_events_too():
    sets = [replica_set(name=f"web-{n}", revision=n) for n in (10, 2, 9)]
    events = [event("b", at=2), event("a", at=1)]
    evidence = Evidence((deployment(), *sets, *events))

    assert [s["metadata"]["name"] for s in evidence.revisions("Deployment/shop/web")] == ["web-2", "web-9", "web-10"]
    assert [e["message"] for e in evidence.events(POD)] == ["a", "b"]


def test_what_the_kubelet_writes_in_place_of_a_lost_log_is_no_log():
    lost = Log("shop", "x", "app", previous=True, content=b"unable to retrieve container logs for containerd://1f")

    assert lost.lost
    assert Evidence(logs=(lost,)).logs_of("shop", "x", "app") == []


def test_a_generated_name_leads_to_the_written_one():
    assert written_name("ConfigMap/tour/settings-hbtkchdf86") == "ConfigMap/tour/settings"
    assert written_name("ConfigMap/tour/settings-production") == "ConfigMap/tour/settings-production"
    assert written_name("Deployment/tour/settings-hbtkchdf86") == "Deployment/tour/settings-hbtkchdf86"


def test_a_log_without_names_belongs_to_the_only_container_that_is_broken():
    broken = pod(
        status={"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": {"exitCode": 1}}, "restartCount": 2}
    )
    loose = Log("", "output", "", previous=False, content=b"KeyError: 'APP_TIER'\n")

    assert diagnose(Evidence((deployment(), broken), (loose,))).cause.object == "Deployment/shop/web"
    assert diagnose(Evidence((deployment(), pod(status=waiting("ContainerCreating"))), (loose,))).findings == ()
