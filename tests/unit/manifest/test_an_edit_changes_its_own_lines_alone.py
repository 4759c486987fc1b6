"""Manifests as people write them: the edit's own lines change, every other byte stays, and a second run does nothing."""

from pathlib import Path

import pytest

from suture.remediation.incident import Change
from suture.remediation.manifest.address import parse_path
from suture.remediation.manifest.editing import edit, edit_at

MANIFESTS = Path(__file__).parents[2] / "cases" / "manifests"
CONTAINERS = "spec.template.spec.containers"
GRABBER = "spec.values.controllers.grabber.containers.app"


def change(target: str, path: str, value: object = None, *, operation: str = "set", before: object = None) -> Change:
    return Change(object=target, operation=operation, path=path, value=value, before=before)


def difference(before: bytes, after: bytes) -> tuple[list[bytes], list[bytes]]:
    """The lines that went and those that came; the rest is equal, byte by byte."""
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    while old and new and old[0] == new[0]:
        old.pop(0), new.pop(0)
    while old and new and old[-1] == new[-1]:
        old.pop(), new.pop()
    return old, new


EDITS = {
    "a limit, its comment kept": (
        "01-deployment-comments.yaml",
        change("Deployment/shop/checkout", f"{CONTAINERS}[name=app].resources.limits.memory", "256Mi", before="128Mi"),
        [b"            memory: 128Mi      # measured: 95Mi\n"],
        [b"            memory: 256Mi      # measured: 95Mi\n"],
    ),
    "inside a flow map": (
        "01-deployment-comments.yaml",
        change("Deployment/shop/checkout", f"{CONTAINERS}[name=app].livenessProbe.httpGet.port", 8080, before=8081),
        [b"          httpGet: {path: /healthz, port: 8081}\n"],
        [b"          httpGet: {path: /healthz, port: 8080}\n"],
    ),
    "a namespace for one of four objects of the same name": (
        "02-multidoc-duplicate-names.yaml",
        change("ServiceAccount/ops/check", "metadata.namespace", "ops", operation="add"),
        [],
        [b"  namespace: ops\n"],
    ),
    "the canary stays": (
        "02-multidoc-duplicate-names.yaml",
        change("Deployment/ops/check", f"{CONTAINERS}[name=main].image", "registry.example.com/ops/check:0.3.1"),
        [b"        image: registry.example.com/ops/check:0.3\n"],
        [b"        image: registry.example.com/ops/check:0.3.1\n"],
    ),
    "beside anchors": (
        "03-anchors-helmrelease.yaml",
        change("HelmRelease/media/grabber", f"{GRABBER}.resources.limits.memory", "512Mi"),
        [b"                memory: 256Mi\n"],
        [b"                memory: 512Mi\n"],
    ),
    "an alias becomes a literal": (
        "03-anchors-helmrelease.yaml",
        change("HelmRelease/media/grabber", f"{GRABBER}.probes.readiness.spec.httpGet.port", 8080, before=80),
        [b"                    port: *port\n"],
        [b"                    port: 8080\n"],
    ),
    "a tag and its digest go together": (
        "03-anchors-helmrelease.yaml",
        change("HelmRelease/media/grabber", f"{GRABBER}.image.tag", "v1.84.1"),
        [b"              tag: v1.84.0@sha256:" + b"a" * 64 + b"\n"],
        [b"              tag: v1.84.1\n"],
    ),
    "a number that is meant as text gets quotes": (
        "03-anchors-helmrelease.yaml",
        change("HelmRelease/media/grabber", f"{GRABBER}.env.GRABBER__UMASK", "0644"),
        [b"              GRABBER__UMASK: 0022\n"],
        [b'              GRABBER__UMASK: "0644"\n'],
    ),
    "CRLF": (
        "07-crlf-service-deployment.yaml",
        change("Deployment/shop/carts", f"{CONTAINERS}[name=carts].resources.limits.memory", "750Mi", before="500Mi"),
        [b"            memory: 500Mi\r\n"],
        [b"            memory: 750Mi\r\n"],
    ),
    "lines that are added end as the file's do": (
        "07-crlf-service-deployment.yaml",
        change("Deployment/shop/carts", f"{CONTAINERS}[name=carts].resources.requests", {"cpu": "100m"}, operation="add"),
        [],
        [b"          requests:\r\n", b"            cpu: 100m\r\n"],
    ),
    "a list item at the list's odd indent": (
        "07-crlf-service-deployment.yaml",
        change("Deployment/shop/carts", f"{CONTAINERS}[name=carts].env[+]", {"name": "PORT", "value": "80"}, operation="add"),
        [],
        [b"         - name: PORT\r\n", b'           value: "80"\r\n'],
    ),
    "a default that the file does not spell out": (
        "09-statefulset-volumeclaims.yaml",
        change("StatefulSet/pay/ledger", f"{CONTAINERS}[name=db].livenessProbe.timeoutSeconds", 5, before=1),
        [],
        [b"          timeoutSeconds: 5\n"],
    ),
    "nested maps that are missing": (
        "09-statefulset-volumeclaims.yaml",
        change("StatefulSet/pay/ledger", f"{CONTAINERS}[name=db].resources.limits.memory", "1Gi", operation="add"),
        [],
        [b"        resources:\n", b"          limits:\n", b"            memory: 1Gi\n"],
    ),
    "a key with dots": (
        "09-statefulset-volumeclaims.yaml",
        change("StatefulSet/pay/ledger", 'spec.template.metadata.annotations["prometheus.io/port"]', "9798", before="9797"),
        [b'        prometheus.io/port: "9797"\n'],
        [b'        prometheus.io/port: "9798"\n'],
    ),
    "an image in a flow map of a List, umlauts around it": (
        "14-bom-list-unicode.yaml",
        change("Deployment/i18n/grusse", f"{CONTAINERS}[name=app].image", "registry.example.com/i18n/grusse:v2"),
        ['        - {name: app, image: "registry.example.com/i18n/grusse:v1", env: [{name: MOTTO, value: "naïve façade"}]}\n'.encode()],
        ['        - {name: app, image: "registry.example.com/i18n/grusse:v2", env: [{name: MOTTO, value: "naïve façade"}]}\n'.encode()],
    ),
}


@pytest.mark.parametrize(("name", "wanted", "gone", "come"), EDITS.values(), ids=EDITS.keys())
def test_the_difference_is_the_lines_that_were_meant(name: str, wanted: Change, gone: list[bytes], come: list[bytes]) -> None:
    before = (MANIFESTS / name).read_bytes()

    after = edit(before, wanted)

    assert difference(before, after) == (gone, come)


@pytest.mark.parametrize(("name", "wanted"), [(name, wanted) for name, wanted, _, _ in EDITS.values()], ids=EDITS.keys())
def test_a_second_run_returns_the_same_bytes(name: str, wanted: Change) -> None:
    once = edit((MANIFESTS / name).read_bytes(), wanted)

    assert edit(once, wanted.model_copy(update={"before": None})) == once
    assert edit(once, wanted) == once


def test_json_on_one_line_stays_so() -> None:
    before = (MANIFESTS / "13-single-line-json.yaml").read_bytes()

    after = edit(before, change("Pod/tools/one-shot", "spec.containers[name=main].resources.limits.memory", "128Mi"))

    assert after == before.replace(b'"64Mi"', b'"128Mi"')
    added = edit(before, change("Pod/tools/one-shot", "spec.containers[name=main].env[+]", {"name": "A", "value": "1"}, operation="add"))
    assert added == before.replace(b'"64Mi"}}}', b'"64Mi"}},"env":[{"name":"A","value":"1"}]}')


def pod(spec: str) -> bytes:
    return b"kind: Pod\nmetadata:\n  name: web\nspec:\n" + spec.encode()


SMALL = {
    "tabs between tokens": ("  a:\t1\t# one\n", change("Pod/x/web", "spec.a", "yes"), '  a:\t"yes"\t# one\n'),
    "single quotes": ("  a: 'one'\n", change("Pod/x/web", "spec.a", "it's"), "  a: 'it''s'\n"),
    "single quotes cannot hold a line break": ("  a: 'one'\n", change("Pod/x/web", "spec.a", "b\nc"), '  a: "b\\nc"\n'),
    "no final newline": ("  a: 1", change("Pod/x/web", "spec.b", "1.10", operation="add"), '  a: 1\n  b: "1.10"'),
    "no final newline, the last line goes": ("  a: 1\n  b: 2", change("Pod/x/web", "spec.b", operation="remove"), "  a: 1"),
    "an empty value": ("  a:\n", change("Pod/x/web", "spec.a.b[+]", {"c": True}, operation="add"), "  a:\n    b:\n    - c: true\n"),
    "an empty value with a comment": ("  a:   # later\n", change("Pod/x/web", "spec.a", 1), "  a: 1   # later\n"),
    "the last key of a map": ("  a:\n    b: 1\n  c: 2\n", change("Pod/x/web", "spec.a.b", operation="remove"), "  a: {}\n  c: 2\n"),
    "the first key of a list item": (
        "  a:\n  - b: 1\n    c: 2\n",
        change("Pod/x/web", "spec.a[0].b", operation="remove"),
        "  a:\n  - c: 2\n",
    ),
    "an item of a list": (
        "  a:\n  - n: 1\n  - n: 2  # two\n  - n: 3\n",
        change("Pod/x/web", "spec.a[n=2]", operation="remove"),
        "  a:\n  - n: 1\n  - n: 3\n",
    ),
    "a map that loses a part": (
        "  a:\n    b: Rolling\n    c:\n      d: 1  # one\n  e: 1\n",
        change("Pod/x/web", "spec.a", {"b": "Recreate"}),
        "  a:\n    b: Recreate\n  e: 1\n",
    ),
    "a list in its flow style": (
        '  a: [chown, "65534:82", /srv/cfg]  # c\n',
        change("Pod/x/web", "spec.a", ["chown", "65534:82", "/srv/data"]),
        '  a: [chown, "65534:82", /srv/data]  # c\n',
    ),
    "a line of a literal block": (
        "  a: |\n    x = 1\n    y = 2  # two\n\n  b: 1\n",
        change("Pod/x/web", "spec.a", "x = 1\ny = 3  # two\n"),
        "  a: |\n    x = 1\n    y = 3  # two\n\n  b: 1\n",
    ),
    "a merged key is overridden, its anchor stays": (
        "  base: &b {m: 1}\n  use:\n    <<: *b\n",
        change("Pod/x/web", "spec.use.m", 2),
        "  base: &b {m: 1}\n  use:\n    <<: *b\n    m: 2\n",
    ),
    "an anchor that nobody uses keeps its name": ("  a: &unused 1\n", change("Pod/x/web", "spec.a", 2), "  a: &unused 2\n"),
    "a list item that is named but missing": (
        "  env:\n  - {name: A, value: b}\n",
        change("Pod/x/web", "spec.env[name=PORT].value", "8088", operation="add"),
        '  env:\n  - {name: A, value: b}\n  - {name: PORT, value: "8088"}\n',
    ),
    "indented JSON": (
        '  a: {\n    "b": 1\n  }\n',
        change("Pod/x/web", "spec.a.c", "x", operation="add"),
        '  a: {\n    "b": 1,\n    "c": "x"\n  }\n',
    ),
}


@pytest.mark.parametrize(("before", "wanted", "after"), SMALL.values(), ids=SMALL.keys())
def test_the_file_s_own_style_is_kept(before: str, wanted: Change, after: str) -> None:
    assert edit(pod(before), wanted).decode() == pod(after).decode()
    assert edit(pod(after), wanted) == pod(after)


@pytest.mark.parametrize(
    "text",
    ["1.10", "yes", "No", "0644", "null", "~", "1e3", "0x1F", "12:30", "2026-01-02", "", "true", "on", "-1", ".5", "<<", "=", "{{ x }}"],
)
def test_text_that_reads_as_another_type_is_quoted(text: str) -> None:
    assert edit(pod("  a: b\n"), change("Pod/x/web", "spec.a", text)) == pod(f'  a: "{text}"\n')


@pytest.mark.parametrize(
    "text", ["1.4.2", "256Mi", "500m", "-Xms64m", "/srv/data", "registry.example.com/a/b:v1@sha256:00", "größe", "a b", "x#y", "no-op"]
)
def test_text_that_reads_as_text_stays_plain(text: str) -> None:
    assert edit(pod("  a: b\n"), change("Pod/x/web", "spec.a", text)) == pod(f"  a: {text}\n")


def test_a_kustomization_is_edited_by_its_place() -> None:
    before = (MANIFESTS / "05-kustomization-patches-images.yaml").read_bytes()

    tagged = edit_at(
        before, document=0, path=parse_path("images[name=registry.example.com/shop/checkout].newTag"), operation="set", value="1.11"
    )
    removed = edit_at(before, document=0, path=parse_path("resources[1]"), operation="remove", value=None, before="pdb.yaml")

    assert difference(before, tagged)[1] == [b'  newTag: "1.11"      # quotes needed: 1.10 is a float\n']
    assert difference(before, removed) == ([b"  - pdb.yaml\n"], [])
