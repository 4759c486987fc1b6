"""A refusal names the line or the value, and the way out; nothing is guessed."""

import time

import pytest

from suture.errors import EditRefused, ManifestUnreadable, SutureError
from suture.remediation.incident import Change
from suture.remediation.manifest.address import parse_path
from suture.remediation.manifest.editing import edit
from suture.remediation.manifest.tree import DEPTH, LIMIT

HEAD = "kind: Deployment\nmetadata:\n  name: web\nspec:\n"


def attempt(
    text: str | bytes, path: str, value: object = "new", *, operation: str = "set", before: object = None, target: str = "Deployment/x/web"
) -> bytes:
    data = text if isinstance(text, bytes) else text.encode()
    return edit(data, Change(object=target, operation=operation, path=path, value=value, before=before))


REFUSED: dict[str, tuple[str, str, type[SutureError], str]] = {
    "another value than the evidence shows": (HEAD + "  a: 2\n", "spec.a", EditRefused, "is 2 at line 5, not 1"),
    "an anchor that other places use": (HEAD + "  a: &p 1\n  b: *p\n", "spec.a", EditRefused, "&p that line 6 uses"),
    "a field inside an alias": (HEAD + "  a: &p {c: 1}\n  b: *p\n", "spec.b.c", EditRefused, r"alias \*p .line 6"),
    "a field below a merged key": (HEAD + "  a: &p {c: {d: 1}}\n  b:\n    <<: *p\n", "spec.b.c.d", EditRefused, "merged anchor"),
    "a template in a scalar": (HEAD + "  a: x:{{ .Values.tag }}\n", "spec.a", EditRefused, "template .* line 5"),
    "a template that is no YAML": (
        HEAD + "  {{- if .Values.x }}\n  a: 1\n  {{- end }}\n",
        "spec.a",
        ManifestUnreadable,
        "Line 5 is a template",
    ),
    "a template that reads as a map": (HEAD + "  a: {{ .Values.x }}\n", "spec.a", ManifestUnreadable, "Line 5"),
    "a key twice": (HEAD + "  a: 1\n  a: 2\n", "spec.a", ManifestUnreadable, "Line 6 repeats the key 'a' of line 5"),
    "a tag that runs code": (HEAD + "  a: !!python/object:os.system x\n", "spec.a", ManifestUnreadable, "Line 5 has the tag"),
    "no YAML": (HEAD + "  a: [1\n", "spec.a", ManifestUnreadable, "not YAML that can be read"),
    "an undefined alias": (HEAD + "  a: *nobody\n", "spec.a", ManifestUnreadable, r"Line 5 uses \*nobody"),
    "a tab as indent": (HEAD + "\ta: 1\n", "spec.a", ManifestUnreadable, "Line 5"),
    "NUL": (HEAD + "  a: \0\n", "spec.a", ManifestUnreadable, "NUL"),
    "a map where a list was named": (HEAD + "  a: {b: 1}\n", "spec.a[name=x].b", EditRefused, "is a map"),
    "a field of a plain value": (HEAD + "  a: 1\n", "spec.a.b", EditRefused, "spec.a is 1"),
    "two items of one name": (HEAD + "  a:\n  - name: x\n  - name: x\n", "spec.a[name=x].b", EditRefused, "fits 2 items, at lines 6, 7"),
    "an object that is not there": ("kind: Service\nmetadata: {name: web}\n", "spec.a", EditRefused, "not defined in this file"),
    "an object that is there twice": ((HEAD + "  a: 1\n---\n") * 2, "spec.a", EditRefused, "defined 2 times in this file, at lines 1, 7"),
    "a container that is not there": (
        HEAD + "  containers:\n  - name: a\n",
        "spec.containers[name=b].image",
        EditRefused,
        r"no \[name=b\]",
    ),
}


@pytest.mark.parametrize(("text", "path", "error", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_the_refusal_says_where_and_why(text: str, path: str, error: type[SutureError], message: str) -> None:
    with pytest.raises(error, match=message):
        attempt(text, path, before=1 if "not 1" in message else None)


IMMUTABLE = [
    ("StatefulSet", "spec.volumeClaimTemplates[0].spec.storageClassName"),
    ("StatefulSet", "spec.serviceName"),
    ("StatefulSet", "spec.selector.matchLabels.app"),
    ("Deployment", "spec.selector.matchLabels.app"),
    ("DaemonSet", "spec.selector"),
    ("Job", "spec.selector.matchLabels.app"),
    ("Job", "spec.completionMode"),
    ("PersistentVolumeClaim", "spec.storageClassName"),
    ("Deployment", "metadata.name"),
    ("Deployment", "kind"),
]


@pytest.mark.parametrize(("kind", "path"), IMMUTABLE)
def test_a_field_that_the_api_server_keeps_is_refused_with_the_reason(kind: str, path: str) -> None:
    with pytest.raises(EditRefused, match=r"immutable|identifies"):
        attempt(HEAD.replace("Deployment", kind), path, target=f"{kind}/x/web")


def test_a_job_s_template_is_edited() -> None:
    """The API server keeps it, and yet Git is where a Job is healed: what syncs it deletes the Job and makes it anew from the file.
    A refusal would leave no way out but to write the same edit by hand.
    """
    text = HEAD.replace("Deployment", "Job") + "  template:\n    spec:\n      containers:\n      - name: a\n        command: [catt]\n"

    after = attempt(text, "spec.template.spec.containers[name=a].command", ["cat"], target="Job/x/web", before=["catt"])

    assert after == text.replace("catt", "cat").encode()


def test_a_namespace_is_set_where_the_file_has_none_and_never_changed() -> None:
    """An object without a namespace lands in `default`: naming the one that was meant is the fix."""
    text = "kind: ServiceAccount\nmetadata:\n  name: web\n"
    named = (text + "  namespace: ops\n").encode()

    assert attempt(text, "metadata.namespace", "ops", target="ServiceAccount/default/web") == named
    with pytest.raises(EditRefused, match="identifies the object"):
        attempt(named, "metadata.namespace", "dev", target="ServiceAccount/ops/web")
    with pytest.raises(EditRefused, match="identifies the object"):
        attempt(text, "metadata.namespace", "ops", target="ServiceAccount/default/web", before="default")


def test_an_immutable_field_is_found_inside_of_a_larger_change() -> None:
    text = HEAD + "  replicas: 1\n  selector: {matchLabels: {app: web}}\n"

    with pytest.raises(EditRefused, match=r"selector.* immutable"):
        attempt(text, "spec", {"replicas": 2})
    with pytest.raises(EditRefused, match=r"selector is immutable"):
        attempt(text, "spec", None, operation="remove")
    assert attempt(text, "spec", {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}}) == text.replace("1", "2", 1).encode()


def test_a_claim_without_a_class_may_get_one() -> None:
    text = "kind: PersistentVolumeClaim\nmetadata: {name: web}\nspec:\n  accessModes: [ReadWriteOnce]\n"

    after = attempt(text, "spec.storageClassName", "ssd", operation="add", target="PersistentVolumeClaim/x/web")

    assert after == (text + "  storageClassName: ssd\n").encode()


@pytest.mark.parametrize(("file", "seen"), [("1", "1000m"), ('"0.5Gi"', "512Mi"), ("1e3", "1k"), ("128Mi", "134217728")])
def test_quantities_compare_as_numbers(file: str, seen: str) -> None:
    after = attempt(HEAD + f"  limits:\n    memory: {file}\n", "spec.limits.memory", "2Gi", before=seen)

    assert b"2Gi" in after


@pytest.mark.parametrize(("file", "seen"), [('"1.00000000000000000000000000001"', "1"), ('" 1Gi"', "1Gi"), ("9" * 40, "9" * 39 + "8")])
def test_quantities_are_neither_rounded_nor_trimmed(file: str, seen: str) -> None:
    with pytest.raises(EditRefused, match="not"):
        attempt(HEAD + f"  limits:\n    memory: {file}\n", "spec.limits.memory", "2Gi", before=seen)


def test_what_is_no_quantity_compares_as_text() -> None:
    with pytest.raises(EditRefused, match=r'not "1\.1"'):
        attempt(HEAD + '  tag: "1.10"\n', "spec.tag", "1.11", before="1.1")


def test_defaults_in_the_evidence_do_not_count_as_a_difference() -> None:
    text = HEAD + "  probe:\n    port: 80\n"

    after = attempt(text, "spec.probe", {"port": 81}, before={"port": 80, "scheme": "HTTP"})

    assert after == text.replace("80", "81").encode()
    with pytest.raises(EditRefused, match="not"):
        attempt(text, "spec.probe", {"port": 81}, before={"port": 82, "scheme": "HTTP"})


def test_a_field_that_only_the_cluster_has_is_refused() -> None:
    with pytest.raises(EditRefused, match="something else sets it"):
        attempt(HEAD + "  a: 1\n", "spec.limits.memory", "2Gi", before="1Gi")


def test_an_anchor_that_other_places_use_is_not_removed() -> None:
    with pytest.raises(EditRefused, match="&p that line 6 uses"):
        attempt(HEAD + "  a: &p {c: 1}\n  b: *p\n", "spec.a", None, operation="remove")


def test_add_never_overwrites() -> None:
    with pytest.raises(EditRefused, match="set it instead"):
        attempt(HEAD + "  a: 1\n", "spec.a", 2, operation="add")
    merged = attempt(HEAD + "  a:\n    b: 1\n", "spec.a", {"b": 1, "c": 2}, operation="add")
    assert merged == (HEAD + "  a:\n    b: 1\n    c: 2\n").encode()


@pytest.mark.parametrize(
    "path", ["", ".", "a..b", "a[", "a[name=x", "[+].b", 'a["b', "a[0]b", 'a["b"]c', f"a[{'9' * 5_000}]", f"a[{'9' * 4_000}]", "x" * 5_000]
)
def test_what_is_no_path_is_said_to_be_none(path: str) -> None:
    with pytest.raises(EditRefused, match="no path"):
        parse_path(path)


BOMB = "bomb:\n  a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"  {name}: &{name} [{', '.join([f'*{prior}'] * 10)}]\n" for prior, name in zip("abcdefghi", "bcdefghij", strict=True)
)
HUGE = {
    "too large": b"a: b\n" * (LIMIT // 5 + 1),
    "too deep": HEAD.encode() + b"  a: " + b"[" * (DEPTH + 1) + b"]" * (DEPTH + 1),
    "deep and open": HEAD.encode() + b"  a: " + b"[" * 500_000,
    "not UTF-8": HEAD.encode() + b"  a: \xff\n",
}


@pytest.mark.parametrize("data", HUGE.values(), ids=HUGE.keys())
def test_hostile_input_ends_soon(data: bytes) -> None:
    began = time.monotonic()

    with pytest.raises(ManifestUnreadable):
        attempt(data, "spec.a")

    assert time.monotonic() - began < 20


def test_an_alias_bomb_is_edited_around_and_never_expanded() -> None:
    text = HEAD + "  a: 1\n" + BOMB

    assert attempt(text, "spec.a", 2) == text.replace("a: 1\n", "a: 2\n", 1).encode()
    with pytest.raises(ManifestUnreadable, match="aliases"):
        attempt(text, "bomb.j", 2)


def test_a_bomb_of_merges_is_read_in_time() -> None:
    chain = "".join(f"  m{n}: &m{n}\n    <<: [*m{n - 1}, *m{n - 1}]\n" for n in range(1, 60))
    text = HEAD + "  a: 1\nbomb:\n  m0: &m0 {x: 1}\n" + chain
    began = time.monotonic()

    assert attempt(text, "bomb.m59.x", 2) == text.replace(chain, chain + "    x: 2\n").encode()

    assert time.monotonic() - began < 20
