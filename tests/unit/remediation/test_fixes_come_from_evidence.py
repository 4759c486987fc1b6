"""The value of a change stands in the evidence or is a documented bound; where neither holds, a person is asked."""

import pytest

from tests.unit.remediation.stage import (
    HASH,
    container,
    crashed,
    deployment,
    event,
    log,
    node,
    pod,
    replica_set,
    unschedulable,
    verdict,
    waiting,
)

DENIED = "Failed to pull image: 401 Unauthorized"
SET = f"ReplicaSet/shop/web-{HASH}"


def login(name: str = "registry-login") -> dict:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/dockerconfigjson",
        "metadata": {"namespace": "shop", "name": name},
        "data": {"x": "eA=="},
    }


def changes(*objects: dict, logs: tuple = ()) -> list[tuple]:
    return [(c.operation, c.path, c.value) for c in verdict(*objects, logs=logs).cause.changes]


def test_the_only_login_of_the_namespace_is_named():
    denied = pod(status=waiting("ErrImagePull", DENIED), phase="Pending")

    assert changes(deployment(), denied, login()) == [("add", "spec.template.spec.imagePullSecrets", [{"name": "registry-login"}])]
    assert changes(deployment(), denied, login("a"), login("b")) == []
    assert changes(deployment(), denied) == []


def test_a_login_that_is_named_wrongly_becomes_the_one_that_is_there():
    secrets = {"imagePullSecrets": [{"name": "regcred"}]}
    denied = pod(status=waiting("ErrImagePull", DENIED), phase="Pending", **secrets)

    assert changes(deployment(**secrets), denied, login()) == [
        ("set", "spec.template.spec.imagePullSecrets[name=regcred].name", "registry-login")
    ]


def test_an_image_goes_back_to_the_newest_revision_that_had_another():
    revisions = [replica_set(container(image=f"registry.example.com/shop/web:{n}"), name=f"web-{n}", revision=n) for n in (1, 2)]
    missing = pod(status=waiting("ErrImagePull", "manifest unknown: not found"), phase="Pending")

    assert changes(deployment(), *revisions, replica_set(revision=3), missing) == [
        ("set", "spec.template.spec.containers[name=app].image", "registry.example.com/shop/web:2")
    ]


def test_without_a_revision_before_no_tag_is_invented():
    missing = pod(status=waiting("ErrImagePull", "manifest unknown: not found"), phase="Pending")

    assert changes(deployment(), replica_set(), missing) == []


def test_a_limit_above_the_maximum_comes_down_to_it():
    box = container(resources={"limits": {"memory": "2Gi"}, "requests": {"memory": "1500Mi"}})
    refused = event('pods "x" is forbidden: maximum memory usage per Container is 1Gi, but limit is 2Gi', "FailedCreate", SET)
    place = "spec.template.spec.containers[name=app].resources"

    assert changes(deployment(box), replica_set(box, there=0), refused) == [
        ("set", f"{place}.limits.memory", "1Gi"), ("set", f"{place}.requests.memory", "1Gi")
    ]  # fmt: skip


def test_a_quota_is_never_raised_and_replicas_come_down_to_what_fits():
    refused = event(
        'pods "x" is forbidden: exceeded quota: q, requested: limits.memory=256Mi, used: limits.memory=512Mi, limited: limits.memory=600Mi',
        "FailedCreate",
        SET,
    )

    assert changes(deployment(replicas=3), replica_set(replicas=3, there=2), refused)[0] == ("set", "spec.replicas", 2)


def test_with_an_autoscaler_replicas_are_left_alone():
    scaler = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"namespace": "shop", "name": "web"},
              "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "web"}}}  # fmt: skip
    refused = event('pods "x" is forbidden: exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2', "FailedCreate", SET)

    assert changes(deployment(replicas=3), replica_set(replicas=3, there=2), refused, scaler) == []


def test_a_selector_becomes_the_label_that_is_meant():
    selector = {"nodeSelector": {"disktype": "sdd"}}
    waits = pod(**unschedulable("0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector."), **selector)

    assert changes(deployment(**selector), node(labels={"disktype": "ssd"}), waits) == [
        ("set", "spec.template.spec.nodeSelector.disktype", "ssd")
    ]
    assert changes(deployment(**selector), node(labels={"disktype": "spinning"}), waits) == []


def test_a_toleration_that_missed_its_taint_by_a_word_is_corrected_and_none_is_opened_wide():
    tolerations = {"tolerations": [{"key": "dedicated", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"}]}
    taint = {"key": "dedicated", "value": "gpus", "effect": "NoSchedule"}
    verdict_ = "0/1 nodes are available: 1 node(s) had untolerated taint {dedicated: gpus}."

    assert changes(deployment(**tolerations), node(taints=[taint]), pod(**unschedulable(verdict_), **tolerations)) == [
        ("set", "spec.template.spec.tolerations[0].value", "gpus")
    ]
    assert changes(deployment(), node(taints=[taint]), pod(**unschedulable(verdict_))) == []


@pytest.mark.parametrize(
    ("words", "meant"), [(["slep", "5"], "sleep"), (["pyhton", "x.py"], "python"), (["frobnicate"], None), (["/usr/bin/slep"], None)]
)
def test_a_mistyped_program_becomes_the_well_known_one(words, meant):
    box = container(command=words)
    status = {
        "state": {"waiting": {"reason": "RunContainerError", "message": f'exec: "{words[0]}": executable file not found in $PATH: unknown'}}
    }

    found = changes(deployment(box), pod(box, status=status))

    assert found == ([("set", "spec.template.spec.containers[name=app].command[0]", meant)] if meant else [])


def test_a_host_of_another_namespace_becomes_the_service_next_door():
    box = container(env=[{"name": "BACKEND", "value": "http://api.default.svc.cluster.local:80/v1"}])
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "shop", "name": "api"}}
    words = log(b"dial tcp: lookup api.default.svc.cluster.local on 10.96.0.10:53: no such host\n")

    assert changes(deployment(box), pod(box, status=crashed()), service, logs=(words,)) == [
        ("set", "spec.template.spec.containers[name=app].env[name=BACKEND].value", "http://api.shop.svc.cluster.local:80/v1")
    ]


def test_names_that_are_not_resolved_at_all_are_no_wrong_names():
    box = container(env=[{"name": "BACKEND", "value": "http://api:80"}])
    words = log(b"socket.gaierror: [Errno -3] Temporary failure in name resolution\n")

    found = verdict(deployment(box), pod(box, status=crashed()), logs=(words,)).cause

    assert (found.code, found.changes) == ("DependencyNotReady", ())


def test_no_change_takes_a_guard_away():
    """Nothing that is proposed grants a privilege, drops a probe or touches a Secret, whatever the evidence."""
    strict = container(
        securityContext={"runAsNonRoot": True, "readOnlyRootFilesystem": True}, livenessProbe={"httpGet": {"path": "/x", "port": 1}}
    )
    states = [
        crashed(),
        crashed(137, "OOMKilled"),
        waiting("CreateContainerConfigError", "container has runAsNonRoot and image will run as root"),
    ]
    words = [b"Read-only file system: '/tmp/x'", b"permission denied: /data/x", b"KeyError: 'A_B'"]

    for state in states:
        for line in words:
            for finding in verdict(deployment(strict), pod(strict, status=state), logs=(log(line + b"\n"),)).findings:
                for change in finding.changes:
                    assert not change.object.startswith("Secret/")
                    assert change.operation != "remove"
                    assert change.value not in (False, 0)
                    assert "privileged" not in change.path
