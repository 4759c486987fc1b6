"""Each failure class is told by what the kubelet, the scheduler, the API server or the program says; other wordings of it too."""

import pytest

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

PULL = 'Failed to pull image "registry.example.com/shop/web:2.0.0": '
SET = f"ReplicaSet/shop/web-{HASH}"


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (
            "rpc error: code = NotFound desc = failed to pull and unpack image: registry.example.com/shop/web:2.0.0: not found",
            "ImageNotFound",
        ),
        ("rpc error: code = Unknown desc = Error response from daemon: manifest for shop/web:2.0.0 not found", "ImageNotFound"),
        ("rpc error: code = Unknown desc = Error reading manifest 2.0.0", "ImageNotFound"),
        ("manifest unknown: The named manifest is not known to the registry", "ImageNotFound"),
        ("failed to resolve reference: pulling from host x failed with status code [manifests 2.0.0]: 401 Unauthorized", "ImagePullDenied"),
        ("pull access denied for shop/web, repository does not exist or may require 'docker login'", "ImagePullDenied"),
        (
            "Error: Status 403 trying to pull repository: please verify that it exists and you have permission to access it",
            "ImagePullDenied",
        ),
        ("toomanyrequests: You have reached your pull rate limit. You may increase the limit by authenticating", "ImagePullRateLimited"),
        ("unexpected status from HEAD request: 429 Too Many Requests", "ImagePullRateLimited"),
        ("no match for platform in manifest: not found", "ImageArchitecture"),
        ("no matching manifest for linux/amd64 in the manifest list entries", "ImageArchitecture"),
        ("failed to extract layer sha256:aa: archive/tar: invalid tar header", "ImageContentWrong"),
    ],
)
def test_a_pull_that_fails_is_told_by_the_registrys_answer(answer, code):
    back_off = pod(status=waiting("ImagePullBackOff", 'Back-off pulling image "registry.example.com/shop/web:2.0.0"'), phase="Pending")

    assert codes(verdict(deployment(), back_off, event(PULL + answer))) == [code]


@pytest.mark.parametrize(
    "answer", ["dial tcp: lookup registry.example.com: no such host", "dial tcp 10.0.0.1:443: i/o timeout", "x509: unknown authority"]
)
def test_a_registry_that_cannot_be_reached_says_nothing_of_the_image(answer):
    assert codes(verdict(deployment(), pod(status=waiting("ImagePullBackOff")), event(PULL + answer))) == []


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ('configmap "settings" not found', "MissingConfigMap"),
        ("couldn't find key mode in ConfigMap shop/settings", "MissingConfigMapKey"),
        ('secret "login" not found', "MissingSecret"),
        ("couldn't find key word in Secret shop/login", "MissingSecretKey"),
        ("container has runAsNonRoot and image will run as root (pod: x, container: app)", "NonRootViolation"),
        ("container has runAsNonRoot and image has non-numeric user (web), cannot verify user is non-root (pod: x)", "NonRootViolation"),
    ],
)
def test_a_container_that_cannot_be_made_is_told_by_its_waiting_message(message, code):
    assert codes(verdict(deployment(), pod(status=waiting("CreateContainerConfigError", message)))) == [code]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"exec /usr/bin/web: exec format error", "ImageArchitecture"),
        (b'standard_init_linux.go:207: exec user process caused "exec format error"', "ImageArchitecture"),
        (b"Error: unknown flag: --discoveryAddress\nUsage:\n  sidecar [flags]", "BadArguments"),
        (b"error: unexpected argument '--colour' found", "BadArguments"),
        (b"web: error: unrecognized arguments: --colour=red", "BadArguments"),
        (b"KeyError: 'APP_TIER'", "MissingEnv"),
        (b'level=error msg="APP_TIER is a required variable."', "MissingEnv"),
        (b"Error: required environment variable DATABASE_URL is not set", "MissingEnv"),
        (b"/entry.sh: line 3: APP_TIER: unbound variable", "MissingEnv"),
        (b"panic: required key APP_TIER missing value", "MissingEnv"),
        (b"socket.gaierror: [Errno -2] Name or service not known", "HostNotFound"),
        (b"dial tcp: lookup backend on 10.96.0.10:53: no such host", "HostNotFound"),
        (b"Error: getaddrinfo ENOTFOUND backend", "HostNotFound"),
        (b"listen tcp 0.0.0.0:8080: bind: address already in use", "PortInUse"),
        (b"Error: listen EADDRINUSE: address already in use :::8080", "PortInUse"),
        (b"error: unable to create directory for artifact: mkdir /var/lib/search/bugs: permission denied", "FilePermission"),
        (b"Error: EACCES: permission denied, open '/data/db.sqlite'", "FilePermission"),
        (b"ModuleNotFoundError: No module named 'web'", "ImageContentWrong"),
        (b"Error: Cannot find module '/app/server.js'", "ImageContentWrong"),
    ],
)
def test_a_program_that_ends_by_itself_is_told_by_its_last_words(line, code):
    assert codes(verdict(deployment(), pod(status=crashed()), logs=(log(b"starting\n" + line + b"\n"),))) == [code]


def test_a_write_to_a_read_only_root_is_told_by_log_and_manifest():
    strict = container(securityContext={"readOnlyRootFilesystem": True})
    words = log(b"/run.sh: line 28: cannot create temp file for here-document: Read-only file system\n")

    found = verdict(deployment(strict), pod(strict, status=crashed()), logs=(words,)).cause

    assert found.code == "ReadOnlyFilesystem"
    assert [change.value for change in found.changes] == [{"name": "tmp", "emptyDir": {}}, {"name": "tmp", "mountPath": "/tmp"}]


@pytest.mark.parametrize(
    ("message", "spec", "code"),
    [
        ('exec: "wbe": executable file not found in $PATH: unknown', {"command": ["wbe"]}, "BadCommand"),
        ('exec: "/docker-entrypoint.sh": permission denied: unknown', {}, "BadEntrypoint"),
        ('exec: "/app/run": stat /app/run: no such file or directory: unknown', {}, "BadEntrypoint"),
    ],
)
def test_a_process_that_cannot_be_started_is_told_by_the_runtime(message, spec, code):
    box = container(**spec)
    status = {
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "restartCount": 2,
        "lastState": {"terminated": {"exitCode": 128, "reason": "StartError", "message": "OCI runtime create failed: " + message}},
    }

    assert codes(verdict(deployment(box), pod(box, status=status))) == [code]


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("0/1 nodes are available: 1 Insufficient cpu.", "InsufficientCpu"),
        (
            "0/1 nodes are available: 1 Insufficient memory. preemption: 0/1 nodes are available: 1 No preemption victims found.",
            "InsufficientMemory",
        ),
        ("0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector.", "NodeSelectorMismatch"),
        ("0/1 nodes are available: 1 node(s) had untolerated taint {dedicated: gpu}.", "UntoleratedTaint"),
        ("0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports.", "HostPortConflict"),
    ],
)
def test_a_pod_without_a_node_is_told_by_the_schedulers_verdict(message, code):
    assert codes(verdict(deployment(), node(), pod(**unschedulable(message)))) == [code]


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ("is forbidden: failed quota: quota: must specify limits.cpu,limits.memory,requests.cpu,requests.memory", "QuotaNeedsLimits"),
        (
            "is forbidden: Exceeded quota: compute, requested: limits.cpu=384m, used: limits.cpu=384m, limited: limits.cpu=384m",
            "QuotaExceeded",
        ),
        (
            'is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true (container "app" must set runAsNonRoot=true)',
            "PodSecurityViolation",
        ),
        ('is forbidden: error looking up service account shop/check: serviceaccount "check" not found', "MissingServiceAccount"),
        (
            'failed calling webhook "a.example.com": Post "https://hook.ops.svc:443/x": connect: connection refused',
            "WebhookUnavailable",
        ),
        ("is forbidden: maximum memory usage per Container is 1Gi, but limit is 2Gi", "LimitRangeViolation"),
    ],
)
def test_a_pod_that_is_refused_is_told_by_the_event_on_its_maker(answer, code):
    refused = event(f'Error creating: pods "web-{HASH}-x" {answer}', "FailedCreate", SET)

    assert codes(verdict(deployment(), replica_set(there=0), refused)) == [code]


@pytest.mark.parametrize(
    ("why", "probe", "code"),
    [
        ("HTTP probe failed with statuscode: 404", {"httpGet": {"path": "/status", "port": 8080}}, "ProbeWrongPath"),
        ('Get "http://10.0.0.1:8080/": context deadline exceeded (Client.Timeout exceeded)', {"httpGet": {"port": 8080}}, "ProbeTimeout"),
        ("", {"exec": {"command": ["check"]}}, "ProbeTimeout"),
        ("dial tcp 10.0.0.1:9090: connect: connection refused", {"tcpSocket": {"port": 9090}}, "ProbeWrongPort"),
    ],
)
def test_a_probe_that_fails_is_told_by_its_answer(why, probe, code):
    box = container(ports=[{"containerPort": 8080}], livenessProbe={"periodSeconds": 10, **probe})
    running = pod(box, status={"state": {"running": {}}, "restartCount": 1, "lastState": {"terminated": {"exitCode": 137}}})
    killed = event("Container app failed liveness probe, will be restarted", "Killing", kind="Normal")

    assert codes(verdict(deployment(box), running, event(f"Liveness probe failed: {why}", "Unhealthy"), killed)) == [code]


def test_events_alone_are_enough_when_the_pod_is_gone():
    told = event(PULL + "manifest unknown")

    found = verdict(told).cause

    assert (found.code, found.object, found.container) == ("ImageNotFound", POD, "app")


def test_an_unready_node_is_one_fault_however_many_pods_it_took():
    lost = node(ready="Unknown")
    pods = [
        pod(name=f"web-{HASH}-{n}", status={"state": {"running": {}}, "ready": True}, conditions=[{"type": "Ready", "status": "False"}])
        for n in range(3)
    ]

    found = verdict(lost, deployment(), *pods)

    assert [(f.code, f.object) for f in found.findings] == [("NodeLost", "Node//node1")]
