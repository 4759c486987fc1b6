"""Evidence from a live API server: whole where it matters, without any secret value, and never brought down by what is forbidden."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from suture.clients.cluster import Cluster
from suture.clients.cluster_reading import Collected
from suture.errors import AccessDenied, ConfigError, ServiceUnavailable
from tests.cluster.apiserver import ApiServer, eventually

LABELS = {"app": "till"}
SECRET = "c3VwZXItc2VjcmV0"


@pytest.fixture
async def cluster(apiserver: ApiServer) -> AsyncIterator[Cluster]:
    async with await Cluster.connect(apiserver.kubeconfig) as cluster:
        yield cluster


async def test_a_workload_comes_with_its_owners_pods_and_events(apiserver: ApiServer, cluster: Cluster) -> None:
    namespace = apiserver.namespace()
    broken_workload(apiserver, namespace)

    collected = await cluster.collect(namespace, "Deployment", "till")

    assert names(collected, "Deployment") == {"till"}
    assert names(collected, "ReplicaSet") == {"till-1"}
    assert "till-1-a" in names(collected, "Pod")
    assert names(collected, "Event") == {"till-1-a.1"}
    assert {"Namespace", "ServiceAccount", "ResourceQuota"} <= {o["kind"] for o in collected.objects}
    assert all(o["apiVersion"] and "managedFields" not in o["metadata"] for o in collected.objects)


async def test_the_evidence_is_the_same_whichever_member_is_named(apiserver: ApiServer, cluster: Cluster) -> None:
    namespace = apiserver.namespace()
    broken_workload(apiserver, namespace)

    by_pod = await cluster.collect(namespace, "Pod", "till-1-a")

    by_top = await cluster.collect(namespace, "Deployment", "till")
    assert references(by_pod) == references(by_top)


async def test_of_secrets_and_config_only_the_key_names_leave(apiserver: ApiServer, cluster: Cluster) -> None:
    namespace = apiserver.namespace()
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "till", "namespace": namespace}, "data": {"password": SECRET}}
    settings = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "till", "namespace": namespace}, "data": {"dsn": "mysql://a"}}
    for manifest in (secret, settings):  # client-side apply keeps a copy, values and all, in an annotation
        apiserver.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))

    collected = await cluster.collect(namespace, "Deployment", "till")

    assert one(collected, "Secret", "till")["data"] == {"password": ""}
    assert one(collected, "ConfigMap", "till")["data"] == {"dsn": ""}
    assert SECRET not in str(collected.objects)
    assert "mysql://" not in str(collected.objects)


async def test_a_missing_workload_is_a_note_beside_what_surrounds_it(apiserver: ApiServer, cluster: Cluster) -> None:
    namespace = apiserver.namespace()

    collected = await cluster.collect(namespace, "Deployment", "ghost")

    assert f"Deployment/{namespace}/ghost" in collected.notes
    assert names(collected, "Namespace") == {namespace}


async def test_what_is_forbidden_is_noted_and_the_rest_is_read(apiserver: ApiServer) -> None:
    namespace = apiserver.namespace()
    broken_workload(apiserver, namespace)
    kubeconfig = apiserver.kubeconfig_for(f"{namespace}/reader")
    apiserver.kubectl("create", "role", "reader", "--verb=list", "--resource=pods,replicasets,deployments", "-n", namespace)
    apiserver.kubectl("create", "rolebinding", "reader", "--role=reader", f"--serviceaccount={namespace}:reader", "-n", namespace)
    question = ("auth", "can-i", "list", "pods", "-n", namespace)
    eventually("the binding counts", lambda: "yes" in apiserver.kubectl(*question, kubeconfig=kubeconfig))

    async with await Cluster.connect(kubeconfig) as cluster:
        collected = await cluster.collect(namespace, "Deployment", "till")

    assert names(collected, "Deployment") == {"till"}
    assert names(collected, "Pod") == {"till-1-a"}
    assert "cannot list resource" in collected.notes[f"list/{namespace}/secrets"]
    assert "cannot list resource" in collected.notes["list//nodes"]
    assert not names(collected, "Secret")


async def test_a_log_that_cannot_be_had_is_kept_as_what_was_said(apiserver: ApiServer, cluster: Cluster) -> None:
    namespace = apiserver.namespace()
    broken_workload(apiserver, namespace)

    collected = await cluster.collect(namespace, "Deployment", "till")

    assert collected.logs == ()
    assert collected.notes[f"log/{namespace}/till-1-a/app/current"]
    assert collected.notes[f"log/{namespace}/till-1-a/app/previous"]


async def test_pods_elsewhere_are_read_only_where_room_is_the_question(apiserver: ApiServer, cluster: Cluster) -> None:
    namespace, elsewhere = apiserver.namespace(), apiserver.namespace()
    neighbour = pod(elsewhere, "big") | {"status": {"phase": "Running"}}
    neighbour["spec"]["containers"][0] |= {"resources": {"requests": {"cpu": "7"}}, "env": [{"name": "A", "value": "private"}]}
    apiserver.apply(neighbour)
    broken_workload(apiserver, namespace)

    seen_while_running = await cluster.collect(namespace, "Deployment", "till")
    unschedulable = {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}
    apiserver.apply(pod(namespace, "waiting") | {"status": unschedulable})
    seen_while_waiting = await cluster.collect(namespace, "Pod", "waiting")

    assert "big" not in names(seen_while_running, "Pod")
    big = one(seen_while_waiting, "Pod", "big")
    assert big["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "7"}
    assert "private" not in str(big)


async def test_a_long_list_is_read_page_by_page(apiserver: ApiServer, cluster: Cluster) -> None:
    namespace = apiserver.namespace()
    many = [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"c{n}", "namespace": namespace}} for n in range(620)]
    apiserver.kubectl("create", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": many}))

    collected = await cluster.collect(namespace, "Deployment", "till")

    assert len(names(collected, "ConfigMap") - {"kube-root-ca.crt"}) == 620


async def test_no_api_server_is_a_temporary_failure(apiserver: ApiServer) -> None:
    nowhere = apiserver.authority.kubeconfig_with_token("nowhere", "https://127.0.0.1:1", "none")
    async with await Cluster.connect(nowhere) as cluster:
        with pytest.raises(ServiceUnavailable, match="does not answer"):
            await cluster.collect("default", "Deployment", "till")


async def test_a_void_token_is_told_from_a_missing_right(apiserver: ApiServer) -> None:
    stranger = apiserver.authority.kubeconfig_with_token("stranger", apiserver.url, "void")
    async with await Cluster.connect(stranger) as cluster:
        with pytest.raises(AccessDenied, match="renew the credentials"):
            await cluster.collect("default", "Deployment", "till")


async def test_without_a_cluster_the_way_out_is_named(tmp_path: Any) -> None:
    with pytest.raises(ConfigError, match="KUBECONFIG"):
        await Cluster.connect(tmp_path / "missing")


async def test_a_sound_manifest_passes_the_dry_run_and_changes_nothing(apiserver: ApiServer, cluster: Cluster) -> None:
    namespace = apiserver.namespace()
    apiserver.apply(deployment(namespace))

    complaints = await cluster.dry_run(deployment(namespace, replicas=5))

    assert complaints == []
    assert apiserver.get("deployment", "till", namespace)["spec"]["replicas"] == 1


async def test_the_dry_run_repeats_the_servers_complaints(apiserver: ApiServer, cluster: Cluster) -> None:
    namespace = apiserver.namespace()
    apiserver.apply(deployment(namespace))
    wrong = deployment(namespace)
    wrong["spec"]["selector"]["matchLabels"] = {"app": "other"}
    unknown = deployment(namespace)
    unknown["spec"]["replica"] = 3

    immutable = await cluster.dry_run(wrong)
    misspelt = await cluster.dry_run(unknown)
    unserved = await cluster.dry_run({"apiVersion": "acme.example/v1", "kind": "Rocket", "metadata": {"name": "x", "namespace": namespace}})

    assert any("selector" in complaint for complaint in immutable)
    assert any("replica" in complaint for complaint in misspelt)
    assert unserved == ["the cluster serves no Rocket in acme.example/v1"]


async def test_a_refusal_by_quota_is_a_complaint_and_a_missing_right_is_not(apiserver: ApiServer) -> None:
    namespace = apiserver.namespace()
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "few", "namespace": namespace},
        "spec": {"hard": {"pods": "0"}},
    }
    apiserver.apply(quota | {"status": {"hard": {"pods": "0"}, "used": {"pods": "0"}}})

    async with await Cluster.connect(apiserver.kubeconfig) as cluster:
        assert any("exceeded quota" in complaint for complaint in await cluster.dry_run(pod(namespace, "one-too-many")))
    async with await Cluster.connect(apiserver.kubeconfig_for(f"{namespace}/nobody")) as cluster:
        with pytest.raises(AccessDenied, match="cannot patch"):
            await cluster.dry_run(deployment(namespace))


def deployment(namespace: str, replicas: int = 1) -> dict[str, Any]:
    template = {"metadata": {"labels": LABELS}, "spec": {"containers": [{"name": "app", "image": "registry.example/till:9"}]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": LABELS}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "till", "namespace": namespace}, "spec": spec}


def pod(namespace: str, name: str) -> dict[str, Any]:
    spec = {"containers": [{"name": "app", "image": "registry.example/till:9"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace, "labels": LABELS}, "spec": spec}


def broken_workload(apiserver: ApiServer, namespace: str) -> None:
    """A Deployment, its ReplicaSet, one pod in a crash loop on a node that is not there, an event, a quota, an account."""
    apiserver.apply(deployment(namespace))
    set_spec = deployment(namespace)["spec"]
    replica_set = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "till-1", "namespace": namespace}, "spec": set_spec}
    apiserver.apply(owned(replica_set, apiserver.get("deployment", "till", namespace)))
    state = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}
    status = {"name": "app", "restartCount": 3, "ready": False, "image": "x", "imageID": "", "state": state}
    crashing = pod(namespace, "till-1-a") | {"status": {"phase": "Running", "containerStatuses": [status]}}
    crashing["spec"]["nodeName"] = "gone"
    apiserver.apply(owned(crashing, apiserver.get("replicaset", "till-1", namespace)))
    about = {
        "kind": "Pod",
        "namespace": namespace,
        "name": "till-1-a",
        "uid": apiserver.get("pod", "till-1-a", namespace)["metadata"]["uid"],
    }
    apiserver.apply(
        {"apiVersion": "v1", "kind": "Event", "metadata": {"name": "till-1-a.1", "namespace": namespace}, "involvedObject": about}
        | {"reason": "BackOff", "message": "Back-off restarting failed container", "type": "Warning"},
        {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q", "namespace": namespace}, "spec": {"hard": {"pods": "9"}}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "till", "namespace": namespace}},
    )


def owned(document: dict[str, Any], owner: dict[str, Any]) -> dict[str, Any]:
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
    }
    return document | {"metadata": document["metadata"] | {"ownerReferences": [reference | {"controller": True}]}}


def names(collected: Collected, kind: str) -> set[str]:
    return {o["metadata"]["name"] for o in collected.objects if o["kind"] == kind}


def references(collected: Collected) -> list[tuple[str, str]]:
    return sorted((o["kind"], o["metadata"]["name"]) for o in collected.objects)


def one(collected: Collected, kind: str, name: str) -> dict[str, Any]:
    return next(o for o in collected.objects if (o["kind"], o["metadata"]["name"]) == (kind, name))
