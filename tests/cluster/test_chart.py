"""The chart: what it renders is what a real API server takes, what the processes read, and no more rights than they use."""

import json
import ssl
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
import yaml

from suture.clients.cluster import Cluster
from suture.clients.jobs import Jobs
from suture.errands.job_manifest import manifest
from suture.errands.requests import JobRequest
from suture.settings import Settings, names
from tests.cluster.apiserver import ApiServer, KubectlError, eventually
from tests.node.programs import BIN

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts/suture"
GIT = ("--set", "repository.url=git://git.example/deploy")
TRIAL = (*GIT, "--set", "postgres.trial.enabled=true")
OWN = (*GIT, "--set", "database.existingSecret=db")
EVERYTHING = (
    *OWN,
    *("--set", "database.directKey=direct,api.tokensSecret=tokens,api.pagerdutySecret=pagerduty,repository.tokenSecret=github"),
    *("--set", "repository.kind=github,repository.url=acme/deploy,rbac.secretNames=true,image.pullSecrets={registry}"),
    *("--set", "api.ingress.enabled=true,api.ingress.host=suture.example,api.ingress.tlsSecret=tls,nodeSelector.disk=ssd"),
    *("--set", f"image.digest=sha256:{'0' * 64},priorityClassName=high,operator.namespaces={{shop,bank}}"),
    *("--set", "workflows.modules={billing.workflows},http.allow={10.1.0.0/16,*.svc},jobs.namespaces={shop,bank}"),
    *("--set", "http.secrets[0].name=forge,http.secrets[0].secret=forge-token"),
)
VARIANTS = pytest.mark.parametrize("values", [TRIAL, (*TRIAL, "--set", "postgres.trial.size=1Gi"), OWN, EVERYTHING], ids=len)
LEFT_AT_DEFAULT = {
    f"SUTURE_{name}"
    for name in (
        *(
            "LEASE_GRACE",
            "WORKER_POLL",
            "WORKER_RETENTION",
            "WORKER_HEALTH_ADDRESS",
            "OPERATOR_RESYNC",
            "OPERATOR_MIRROR",
            "OPERATOR_HEALTH_ADDRESS",
        ),
        *("LEASE_CRASH_LIMIT", "LEASE_SUSPECT", "LEASE_RESTART", "LEASE_BLOCKED"),
        *("EVIDENCE_SOURCE", "EVIDENCE_RECORDING"),  # of demonstrations
        *("CLIENT_URL", "CLIENT_TOKEN"),  # of a person's command line
    )
}
"""Settings that the chart has no value for: extraEnv carries them. A setting that is neither here nor rendered was forgotten."""


def helm(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(a) for a in (BIN / "helm", *arguments)], capture_output=True, text=True, check=False, timeout=60)


def render(*values: str, namespace: str = "suture") -> list[dict[str, Any]]:
    done = helm("template", "suture", CHART, "--namespace", namespace, *values)
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def pods(documents: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Pod templates by the name of their owner."""
    return {d["metadata"]["name"]: d["spec"]["template"] for d in documents if "template" in d.get("spec", {})}


def environment(template: dict[str, Any]) -> dict[str, str]:
    return {entry["name"]: entry["value"] for entry in template["spec"]["containers"][0].get("env", ()) if "value" in entry}


@VARIANTS
def test_lint_finds_nothing(values: tuple[str, ...]) -> None:
    done = helm("lint", "--strict", CHART, *values)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stdout


@VARIANTS
def test_a_real_api_server_takes_every_object(apiserver: ApiServer, values: tuple[str, ...]) -> None:
    documents = render(*values, namespace=apiserver.namespace("chart"))
    for name in {d["metadata"]["namespace"] for d in documents if "namespace" in d["metadata"]}:
        apiserver.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    apiserver.apply({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 1000})

    for document in documents:
        apiserver.kubectl("create", "--dry-run=server", "--validate=strict", "-f", "-", stdin=json.dumps(document))


@VARIANTS
def test_every_pod_fits_a_namespace_that_enforces_the_restricted_standard(apiserver: ApiServer, values: tuple[str, ...]) -> None:
    namespace = apiserver.namespace("restricted")
    apiserver.kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")

    for name, template in pods(render(*values, namespace=namespace)).items():
        spec = {key: value for key, value in template["spec"].items() if key != "priorityClassName"}  # the class may not be there
        spec["volumes"] = [*spec["volumes"], {"name": "data", "emptyDir": {}}] if "1Gi" in values[-1] else spec["volumes"]
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace}, "spec": spec}
        apiserver.kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(pod))


@VARIANTS
def test_every_name_in_a_pod_is_a_setting_and_no_secret_is_in_one(values: tuple[str, ...]) -> None:
    known = set(names(Settings))

    for template in pods(render(*values)).values():
        for name, value in environment(template).items():
            assert name.removesuffix("_FILE") in known, name
            assert not name.endswith("_FILE") or value.startswith("/etc/suture/")
        assert not template["spec"]["containers"][0].get("envFrom")
        assert template["spec"]["enableServiceLinks"] is False  # or the Services of the chart would set SUTURE_… names


def test_no_setting_is_forgotten() -> None:
    rendered = {name.removesuffix("_FILE") for template in pods(render(*EVERYTHING)).values() for name in environment(template)}

    assert rendered | LEFT_AT_DEFAULT == set(names(Settings))
    assert not rendered & LEFT_AT_DEFAULT


def test_the_settings_that_are_rendered_are_readable() -> None:
    for template in pods(render(*EVERYTHING)).values():
        Settings.read({name: value for name, value in environment(template).items() if not name.endswith("_FILE")})


def test_a_pod_outlives_its_drain() -> None:
    template = pods(render(*OWN, "--set", "worker.drainSeconds=300"))["suture-worker"]

    assert template["spec"]["terminationGracePeriodSeconds"] > int(environment(template)["SUTURE_WORKER_DRAIN"]) == 300


def test_the_schema_comes_before_the_code_with_a_database_of_ones_own_and_after_it_with_the_trial() -> None:
    own = next(d for d in render(*OWN) if d["kind"] == "Job")
    trial = next(d for d in render(*TRIAL) if d["kind"] == "Job")

    assert own["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
    assert "annotations" not in trial["metadata"]
    assert trial["metadata"]["name"].endswith("-1")
    assert "--wait" in trial["spec"]["template"]["spec"]["containers"][0]["args"]


def test_a_wrong_value_is_refused_by_its_name() -> None:
    misspelt = helm("template", "suture", CHART, *OWN, "--set", "worker.replcias=3")
    nowhere = helm("template", "suture", CHART, *GIT)

    assert "replcias" in misspelt.stderr
    assert "database.existingSecret" in nowhere.stderr


def test_every_value_is_in_the_schema_and_has_its_comment() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    text = (CHART / "values.yaml").read_text()

    assert leaves_of(schema) - {"global"} == leaves_of_values(yaml.safe_load(text), schema)
    bare = [line.strip() for before, line in pairwise(text.splitlines()) if is_value(line) and not is_explained(before, line)]
    assert not bare, f"no comment above: {bare}"


def test_the_charts_crds_are_those_of_the_repository() -> None:
    ours = {path.name: path.read_bytes() for path in (ROOT / "crds").glob("*.yaml")}
    charts = {path.name: path.read_bytes() for path in (CHART / "files/crds").glob("*.yaml")}

    assert ours == charts, "run charts/sync-crds.sh"
    rendered = [d for d in render(*OWN) if d["kind"] == "CustomResourceDefinition"]
    assert len(rendered) == len(ours)
    assert all(d["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep" for d in rendered)


@pytest.fixture(scope="module")
def installed(apiserver: ApiServer) -> str:
    """The accounts, roles and admission policy of the chart, for real; the namespace that they are in."""
    namespace = apiserver.namespace("suture")
    wanted = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
    apiserver.apply(*(d for d in render(*OWN, namespace=namespace) if d["kind"] in wanted))
    kubeconfig = apiserver.kubeconfig_for(f"{namespace}/suture-worker")
    eventually("the roles count", lambda: "yes" in apiserver.kubectl("auth", "can-i", "list", "nodes", kubeconfig=kubeconfig))
    return namespace


async def test_a_worker_may_read_all_the_evidence_but_secrets(apiserver: ApiServer, installed: str) -> None:
    apiserver.apply(deployment(installed, "read"))

    async with await Cluster.connect(apiserver.kubeconfig_for(f"{installed}/suture-worker")) as cluster:
        collected = await cluster.collect(installed, "Deployment", "read")

    assert set(collected.notes) == {f"list/{installed}/secrets"}


async def test_a_worker_may_try_a_change_and_never_make_it(apiserver: ApiServer, installed: str) -> None:
    apiserver.apply(deployment(installed, "tried"))
    worker = f"{installed}/suture-worker"

    async with await Cluster.connect(apiserver.kubeconfig_for(worker)) as cluster:
        assert await cluster.dry_run(deployment(installed, "tried", replicas=2)) == []
    path = f"/apis/apps/v1/namespaces/{installed}/deployments/tried"
    eventually("the admission policy counts", lambda: patch(apiserver, worker, path, {}).status_code != 200)
    refused = patch(apiserver, worker, path, {"spec": {"replicas": 9}})

    assert "change nothing in the cluster" in refused.json()["message"]
    assert apiserver.get("deployment", "tried", installed)["spec"]["replicas"] == 1


def patch(apiserver: ApiServer, account: str, path: str, change: dict[str, Any]) -> httpx.Response:
    headers = {"Authorization": f"Bearer {apiserver.token_for(account)}", "Content-Type": "application/merge-patch+json"}
    trust = ssl.create_default_context(cafile=str(apiserver.authority.folder / "ca.crt"))
    return httpx.patch(f"{apiserver.url}{path}", json=change, headers=headers, verify=trust)


def test_no_role_lets_a_process_write_anything_but_tasks_events_and_dry_runs() -> None:
    reading = {"get", "list", "watch"}
    for role in (
        d for d in render(*OWN, "--set", "rbac.dryRun=false") if d["kind"] == "ClusterRole" and "approver" not in d["metadata"]["name"]
    ):
        for rule in role["rules"]:
            writes = set(rule["verbs"]) - reading
            assert not writes or rule["apiGroups"] == ["suture.dev"] or rule["resources"] == ["events"], rule
            assert "*" not in (*rule["verbs"], *rule["resources"], *rule["apiGroups"])
            assert "secrets" not in rule["resources"]


async def test_a_worker_may_make_jobs_where_the_values_say_and_nothing_else(apiserver: ApiServer) -> None:
    namespace, shop, bank = (apiserver.namespace(name) for name in ("suture", "shop", "bank"))
    documents = render(*OWN, "--set", f"jobs.namespaces={{{shop}}}", namespace=namespace)
    apiserver.apply(*(d for d in documents if d["kind"].startswith(("ServiceAccount", "Role", "ClusterRole", "ValidatingAdmission"))))
    account = f"{namespace}/suture-worker"
    kubeconfig = apiserver.kubeconfig_for(account)
    can = lambda *asked: "yes" in allowed(apiserver, kubeconfig, *asked)  # noqa: E731
    eventually("the roles count", lambda: can("create", "jobs", "-n", shop))

    assert all(can(verb, "jobs", "-n", shop) for verb in ("get", "list", "delete"))
    assert can("get", "pods", "--subresource=log", "-n", shop)
    for verb in ("create", "delete"):
        assert not can(verb, "jobs", "-n", bank)
    assert not any(can(verb, "pods", "-n", shop) for verb in ("create", "delete", "patch"))
    assert not can("create", "cronjobs", "-n", shop)

    path = f"/apis/apps/v1/namespaces/{shop}/deployments/tried"
    apiserver.apply(deployment(shop, "tried"))
    eventually("the admission policy counts", lambda: patch(apiserver, account, path, {}).status_code != 200)
    async with await Cluster.connect(kubeconfig) as cluster:
        jobs = Jobs(cluster, namespaces=[shop])
        asked = JobRequest.model_validate({"image": "app:1"})
        made = await jobs.create(manifest(asked, namespace=shop, execution=uuid4()))
        assert [job["metadata"]["name"] async for job in jobs.ours(shop)] == [made["metadata"]["name"]]
        await jobs.delete(shop, made["metadata"]["name"], uid=made["metadata"]["uid"])
        assert await jobs.find(shop, made["metadata"]["name"]) is None


def test_nobody_reads_the_metrics_of_the_operator_who_was_not_named() -> None:
    named = "networkPolicy.metricsFrom[0].namespaceSelector.matchLabels.team=monitoring"

    assert ingress_of_operator(*OWN) == []
    (rule,) = ingress_of_operator(*OWN, "--set", named)

    assert rule["ports"] == [{"port": "health"}]
    assert rule["from"] == [{"namespaceSelector": {"matchLabels": {"team": "monitoring"}}}]


def ingress_of_operator(*values: str) -> list[dict[str, Any]]:
    found = (d for d in render(*values) if d["kind"] == "NetworkPolicy" and d["metadata"]["name"].endswith("-operator"))
    rules: list[dict[str, Any]] = next(found)["spec"]["ingress"]
    return rules


def test_the_operator_hears_of_pods_and_jobs_only_where_it_needs_to() -> None:
    roles = {
        (d["metadata"]["namespace"], d["metadata"]["name"]): d["rules"]
        for d in render(*EVERYTHING)
        if d["kind"] == "Role" and d["metadata"]["labels"]["app.kubernetes.io/component"] == "operator"
    }

    assert {place for place, _ in roles} == {"suture", "shop", "bank"}
    assert all(rule["verbs"] == ["list", "watch"] for rules in roles.values() for rule in rules)
    assert not [d for d in render(*OWN, "--set", "operator.watchWorkers=false") if d["kind"] == "Role"]


def allowed(apiserver: ApiServer, kubeconfig: Path, *asked: str) -> str:
    try:
        return apiserver.kubectl("auth", "can-i", *asked, kubeconfig=kubeconfig)
    except KubectlError:  # `no` is its failure
        return "no"


def deployment(namespace: str, name: str, replicas: int = 1) -> dict[str, Any]:
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "app", "image": "registry.example/app:1"}]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": namespace}, "spec": spec}


def leaves_of(schema: dict[str, Any], prefix: str = "") -> set[str]:
    found: set[str] = set()
    for name, part in schema.get("properties", {}).items():
        nested = "properties" in part and name != "resources"
        found |= leaves_of(part, f"{prefix}{name}.") if nested else {prefix + name}
    return found


def leaves_of_values(values: dict[str, Any], schema: dict[str, Any], prefix: str = "") -> set[str]:
    found: set[str] = set()
    for name, value in values.items():
        part = schema["properties"].get(name, {})
        nested = "properties" in part and name != "resources"
        found |= leaves_of_values(value, part, f"{prefix}{name}.") if nested else {prefix + name}
    return found


def is_value(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#") and not line.rstrip().endswith(":")


SELF_EXPLAINING = (
    "pullPolicy",
    "port",
    "type",
    "annotations",
    "className",
    "host",
    "replicas",
    "format",
    "resources",
    "requests",
    "limits",
)
ONE_COMMENT_FOR_ALL = ("podLabels", "nodeSelector", "tolerations", "affinity", "priorityClassName")


def is_explained(before: str, line: str) -> bool:
    name = line.strip().split(":")[0]
    sibling = before.strip().split(":")[0]
    shares = name == f"{sibling.removesuffix('Secret')}Key" or (name, sibling) == ("heartbeatSeconds", "leaseSeconds")
    return before.lstrip().startswith("#") or name in (*SELF_EXPLAINING, *ONE_COMMENT_FOR_ALL) or shares
