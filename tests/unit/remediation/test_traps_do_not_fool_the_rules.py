"""Situations that look like one fault and are another, or none: what a hurried person would get wrong."""

import pytest

from suture.remediation.diagnosis import diagnose
from suture.remediation.evidence import Evidence
from suture.remediation.incident import Workload
from tests.unit.remediation.stage import (
    HASH,
    POD,
    codes,
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

LIMITED = {"resources": {"limits": {"memory": "90Mi"}}}
KILLED = {"lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}, "restartCount": 1}
HEALTHY = {"state": {"running": {}}, "ready": True, "restartCount": 0}


def test_a_healthy_looking_pod_that_was_killed_for_memory_is_not_healthy():
    box = container(**LIMITED)

    found = verdict(deployment(box), pod(box, status={**HEALTHY, **KILLED})).cause

    assert (found.code, found.changes[0].value, found.changes[0].before) == ("MemoryLimitTooLow", "256Mi", "90Mi")


@pytest.mark.parametrize(("limit", "grown"), [("20Mi", "80Mi"), ("64Mi", "256Mi"), ("90Mi", "256Mi"), ("200Mi", "400Mi"), ("1Gi", "2Gi")])
def test_memory_grows_by_a_documented_step(limit, grown):
    box = container(resources={"limits": {"memory": limit}})

    assert verdict(deployment(box), pod(box, status={**HEALTHY, **KILLED})).cause.changes[0].value == grown


def test_a_large_limit_is_not_doubled_without_a_person():
    box = container(resources={"limits": {"memory": "6Gi"}})

    found = verdict(deployment(box), pod(box, status={**HEALTHY, **KILLED})).cause

    assert found.changes == ()
    assert "leaks" in found.advice


def test_a_node_that_ran_out_of_memory_is_no_reason_to_raise_a_limit():
    box = container(**LIMITED)
    out = event("System OOM encountered, victim process: web", "SystemOOM", "Node//node1")

    assert codes(verdict(deployment(box), pod(box, status={**HEALTHY, **KILLED}), out)) == []


def test_a_pod_that_the_node_evicted_is_not_short_of_its_own_limit():
    box = container(**LIMITED)

    assert codes(verdict(deployment(box), pod(box, status=KILLED, phase="Failed", reason="Evicted"))) == []


@pytest.mark.parametrize(
    "symptom", ["no space left on device", "getting the final child's pid from pipe caused: read init-p: connection reset by peer"]
)
def test_memory_in_thousandths_is_seen_whatever_the_runtime_says(symptom):
    box = container(resources={"limits": {"memory": "128m", "cpu": "500m"}})
    told = event(f"Failed to create pod sandbox: rpc error: code = Unknown desc = {symptom}", "FailedCreatePodSandBox", container="")

    found = verdict(deployment(box), pod(box, status=waiting("ContainerCreating"), phase="Pending"), told).cause

    assert (found.code, [c.value for c in found.changes]) == ("MemoryUnit", ["128Mi"])


def test_an_autoscaler_on_its_way_is_waited_for():
    box = container(resources={"requests": {"cpu": "8"}})
    grows = event("pod triggered scale-up: [{group 1->2 (max: 5)}]", "TriggeredScaleUp", container="", kind="Normal")

    found = verdict(deployment(box), node(), pod(box, **unschedulable("0/1 nodes are available: 1 Insufficient cpu.")), grows).cause

    assert (found.code, found.changes) == ("InsufficientCpu", ())
    assert "Wait" in found.advice


def test_a_full_cluster_is_not_healed_by_a_smaller_request():
    box = container(resources={"requests": {"cpu": "2"}})
    other = pod(container(resources={"requests": {"cpu": "3"}}), name="web-other", status=HEALTHY)

    found = verdict(deployment(box), node(), other, pod(box, **unschedulable("0/1 nodes are available: 1 Insufficient cpu."))).cause

    assert (found.code, found.changes) == ("InsufficientCpu", ())


def test_a_request_that_no_node_ever_holds_becomes_what_is_left():
    box = container(resources={"requests": {"cpu": "4"}})
    daemon = pod(container(resources={"requests": {"cpu": "250m"}}), name="agent-x", status=HEALTHY)
    daemon["metadata"]["ownerReferences"] = [{"kind": "DaemonSet", "name": "agent", "controller": True}]

    found = verdict(deployment(box), node(), daemon, pod(box, **unschedulable("0/1 nodes are available: 1 Insufficient cpu."))).cause

    assert [(c.path, c.value, c.before) for c in found.changes] == [
        ("spec.template.spec.containers[name=app].resources.requests.cpu", "3700m", "4")
    ]


def test_a_request_goes_back_to_what_it_was_before_where_that_fits():
    found = raised("4", before="400m")

    assert [(c.path, c.value, c.before) for c in found.changes] == [
        ("spec.template.spec.containers[name=app].resources.requests.cpu", "400m", "4")
    ]
    assert ("ReplicaSet/shop/web-old", "400m") in [(c.object, c.value) for c in found.citations]


@pytest.mark.parametrize("before", ["3900m", "4", "8", None], ids=["no-room", "the-same", "more", "none"])
def test_a_request_does_not_go_back_to_what_would_wait_too(before):
    found = raised("4", before=before)

    assert [c.value for c in found.changes] == ["3700m"]
    assert "ReplicaSet/shop/web-old" not in [c.object for c in found.citations]


def raised(request, *, before):
    """The cause after a rollout that raised the request, on one node of 4 of which a daemon holds 250m."""
    box = container(resources={"requests": {"cpu": request}})
    old = container(resources={"requests": {"cpu": before}} if before else {})
    daemon = pod(container(resources={"requests": {"cpu": "250m"}}), name="agent-x", status=HEALTHY)
    daemon["metadata"]["ownerReferences"] = [{"kind": "DaemonSet", "name": "agent", "controller": True}]
    waits = pod(box, **unschedulable("0/1 nodes are available: 1 Insufficient cpu."))
    history = replica_set(old, name="web-old", revision=1, replicas=0, there=0), replica_set(box)
    return verdict(deployment(box), *history, node(), daemon, waits).cause


def test_the_change_of_image_that_began_a_stuck_rollout_is_innocent():
    rule = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "kubernetes.io/hostname"}]}}
    old = replica_set(container(image="registry.example.com/shop/web:1.0.0"), name="web-old", revision=1)
    runs = [pod(name=f"web-old-{n}", status=HEALTHY) for n in range(2)]
    waits = pod(**unschedulable("0/2 nodes are available: 2 node(s) didn't match pod anti-affinity rules."))

    found = verdict(deployment(affinity=rule, replicas=2), old, replica_set(), *runs, waits).cause

    assert [(c.path, c.value) for c in found.changes] == [("spec.strategy.rollingUpdate", {"maxSurge": 0, "maxUnavailable": 1})]


@pytest.mark.parametrize("kind", ["not-ready", "disk-pressure", "unreachable"])
def test_a_taint_that_tells_of_trouble_is_never_tolerated(kind):
    sick = node(taints=[{"key": f"node.kubernetes.io/{kind}", "effect": "NoSchedule"}])
    waits = pod(**unschedulable("0/1 nodes are available: 1 node(s) had untolerated taint {node.kubernetes.io/" + kind + ": }."))

    found = verdict(deployment(), sick, waits).cause

    assert (found.code, found.changes) == ("UntoleratedTaint", ())


def test_the_control_planes_taint_is_innocent_where_workers_are_full():
    box = container(resources={"requests": {"cpu": "4"}})
    waits = pod(
        box,
        **unschedulable(
            "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint {node-role.kubernetes.io/control-plane: }."
        ),
    )

    assert codes(verdict(deployment(box), node(), waits)) == ["InsufficientCpu"]


def test_a_secret_is_never_made_nor_another_one_used():
    box = container(env=[{"name": "WORD", "valueFrom": {"secretKeyRef": {"name": "web-login", "key": "word"}}}])
    near = {"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "shop", "name": "web-logins"}, "data": {"word": "c2VjcmV0"}}

    found = verdict(deployment(box), near, pod(box, status=waiting("CreateContainerConfigError", 'secret "web-login" not found'))).cause

    assert (found.code, found.changes) == ("MissingSecret", ())
    assert "web-login with the key word" in found.advice


def test_a_misspelt_key_becomes_the_one_that_is_there():
    box = container(env=[{"name": "MODE", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "log-level"}}}])
    there = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"namespace": "shop", "name": "settings"},
        "data": {"LOG_LEVEL": "x", "PORT": "1"},
    }
    waits = pod(box, status=waiting("CreateContainerConfigError", "couldn't find key log-level in ConfigMap shop/settings"))

    found = verdict(deployment(box), there, waits).cause

    assert [c.value for c in found.changes] == ["LOG_LEVEL"]


def test_of_two_keys_that_could_be_meant_none_is_taken():
    box = container(env=[{"name": "MODE", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "host"}}}])
    there = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"namespace": "shop", "name": "settings"},
        "data": {"host1": "x", "host2": "y"},
    }
    waits = pod(box, status=waiting("CreateContainerConfigError", "couldn't find key host in ConfigMap shop/settings"))

    assert verdict(deployment(box), there, waits).cause.changes == ()


def test_a_required_variable_gets_no_invented_value():
    found = verdict(deployment(), pod(status=crashed()), logs=(log(b"KeyError: 'APP_TIER'\n"),)).cause

    assert found.changes == ()
    assert "APP_TIER" in found.advice


def test_a_variable_that_the_revision_before_set_comes_back():
    had = container(env=[{"name": "APP_TIER", "value": "dev"}])
    old = replica_set(had, name="web-old", revision=1, replicas=0, there=0)

    found = verdict(deployment(), old, replica_set(), pod(status=crashed()), logs=(log(b"KeyError: 'APP_TIER'\n"),)).cause

    assert [(c.operation, c.value) for c in found.changes] == [("add", {"name": "APP_TIER", "value": "dev"})]


def test_an_unknown_flag_is_not_taken_away_when_the_image_was_changed():
    args = {"args": ["--drain=5s"]}
    old = replica_set(container(image="registry.example.com/shop/web:1.0.0", **args), name="web-old", revision=1)
    box = container(**args)

    found = verdict(deployment(box), old, replica_set(box), pod(box, status=crashed(2)), logs=(log(b"unknown flag: --drain\n"),)).cause

    assert [(c.path[-5:], c.value) for c in found.changes] == [("image", "registry.example.com/shop/web:1.0.0")]


def test_a_probe_of_a_program_that_ends_by_itself_is_an_effect():
    box = container(livenessProbe={"httpGet": {"port": 8080}}, ports=[{"containerPort": 8080}])
    refused = event('Liveness probe failed: Get "http://10.0.0.1:8080/": dial tcp 10.0.0.1:8080: connect: connection refused', "Unhealthy")

    assert codes(verdict(deployment(box), pod(box, status=crashed()), refused, logs=(log(b"KeyError: 'APP_TIER'\n"),))) == ["MissingEnv"]


def test_a_wrong_port_is_not_a_slow_start():
    box = container(livenessProbe={"tcpSocket": {"port": 9090}}, ports=[{"containerPort": 8080, "name": "http"}])
    running = pod(box, status={"state": {"running": {}}, "restartCount": 2, "lastState": {"terminated": {"exitCode": 0}}})
    told = (event("Liveness probe failed: dial tcp 10.0.0.1:9090: connect: connection refused", "Unhealthy"),
            event("Container app failed liveness probe, will be restarted", "Killing", kind="Normal"))  # fmt: skip

    found = verdict(deployment(box), running, *told, logs=(log(b"listening on 0.0.0.0:8080\n", previous=False),))

    assert codes(found) == ["ProbeWrongPort"]
    assert [(c.path, c.value) for c in found.cause.changes] == [
        ("spec.template.spec.containers[name=app].livenessProbe.tcpSocket.port", 8080)
    ]


def test_warnings_of_a_start_that_is_over_are_no_fault():
    found = verdict(deployment(), pod(status=HEALTHY), event("Readiness probe failed: connection refused", "Unhealthy"))

    assert codes(found) == ["NoFault"]
    assert found.cause.changes == ()


def test_a_refusal_that_is_over_is_no_fault():
    refused = event(
        'Error creating: pods "x" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1',
        "FailedCreate",
        f"ReplicaSet/shop/web-{HASH}",
    )

    assert codes(verdict(deployment(), replica_set(there=1), refused, pod(status=HEALTHY))) == []


def test_an_image_that_was_pulled_at_last_is_no_fault():
    failed = event('Failed to pull image "registry.example.com/shop/web:2.0.0": manifest unknown: not found')

    assert codes(verdict(deployment(), pod(status=HEALTHY), failed)) == []


def test_several_faults_are_several_findings_the_earlier_in_the_chain_first():
    broken = [container(), container(name="side")]
    both = pod(*broken, phase="Pending")
    both["status"]["containerStatuses"] = [
        {"name": "app", "ready": False, **waiting("ErrImagePull", "rpc error: manifest unknown: not found")},
        {"name": "side", "ready": False, **waiting("CreateContainerConfigError", 'configmap "settings" not found')},
    ]

    assert codes(verdict(deployment(*broken), both)) == ["MissingConfigMap", "ImageNotFound"]


def test_the_same_fault_on_many_pods_is_one_finding():
    pods = [pod(name=f"web-{HASH}-{n}", status=waiting("InvalidImageName"), phase="Pending") for n in range(5)]

    assert len(verdict(deployment(), *pods).findings) == 1


def test_a_webhook_that_is_down_is_not_the_workloads_fault():
    told = 'Internal error occurred: failed calling webhook "v.example.com": Post "https://policy.ops.svc:443/v": no endpoints available'

    found = verdict(
        deployment(), replica_set(there=0), event(f"Error creating: {told}", "FailedCreate", f"ReplicaSet/shop/web-{HASH}")
    ).cause

    assert (found.code, found.changes) == ("WebhookUnavailable", ())
    assert "policy.ops" in found.advice


def test_what_concerns_the_workload_comes_first():
    lost = node("node9", ready="Unknown")
    evidence = Evidence((lost, deployment(), pod(status=waiting("InvalidImageName"))))

    assert codes(diagnose(evidence)) == ["NodeLost", "InvalidImageName"]
    assert codes(diagnose(evidence, Workload(kind="Deployment", namespace="shop", name="web"))) == ["InvalidImageName", "NodeLost"]


def test_another_workloads_fault_is_not_the_cause_of_this_one():
    evidence = Evidence((deployment(), pod(status=waiting("InvalidImageName"))))

    found = diagnose(evidence, Workload(kind="Deployment", namespace="shop", name="other"))

    assert found.cause is None
    assert any("InvalidImageName of Deployment/shop/web" in sentence for sentence in found.ruled_out)


def test_without_evidence_nothing_is_found():
    assert verdict().findings == ()


def test_a_crash_without_a_log_is_said_to_be_unexplained():
    found = verdict(deployment(), pod(status=crashed()))

    assert found.findings == ()
    assert any("log is not in the evidence" in sentence for sentence in found.ruled_out)


def test_the_owner_is_known_even_when_only_the_pod_is_there():
    found = verdict(pod(container(**LIMITED), status={**HEALTHY, **KILLED})).cause

    assert found.object == "Deployment/shop/web"
    assert found.changes[0].path == "spec.template.spec.containers[name=app].resources.limits.memory"
    assert found.citations[0].object == POD
