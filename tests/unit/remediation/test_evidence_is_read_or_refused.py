"""Whatever is piped in is either read as Kubernetes printed it, or refused with a sentence that names the file and what would be right."""

import json
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from suture.errors import EvidenceUnreadable
from suture.remediation.diagnosis import diagnose
from suture.remediation.documents import LARGEST_FILE, read_documents, read_recording
from suture.remediation.evidence import LOG_HEAD, LOG_TAIL, Evidence, Log, reference
from suture.remediation.report import render

CASE = sorted((Path(__file__).parents[2] / "cases" / "scenarios").glob("case-*"))[0]
POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "shop", "name": "web"}, "status": {"phase": "Running"}}
YAML_POD = b"""apiVersion: v1
kind: Pod
metadata:
  namespace: shop
  name: web
  creationTimestamp: 2026-01-01T00:00:00Z
status:
  on: 'yes'
  n: 010
  t: true
"""


@pytest.mark.parametrize(
    "data",
    [
        json.dumps(POD).encode(),
        json.dumps({"apiVersion": "v1", "kind": "List", "items": [POD, POD]}).encode(),
        json.dumps(
            {"apiVersion": "v1", "kind": "PodList", "items": [{k: v for k, v in POD.items() if k not in ("kind", "apiVersion")}]}
        ).encode(),
        (json.dumps(POD) + "\n" + json.dumps(POD)).encode(),
        b"\xef\xbb\xbf" + json.dumps(POD, indent=2).encode(),
        json.dumps(POD).encode("utf-16"),
        YAML_POD,
        b"---\n" + YAML_POD + b"---\n" + YAML_POD + b"...\n",
        YAML_POD.replace(b"\n", b"\r\n"),
        b"apiVersion: v1\nkind: List\nitems:\n- " + YAML_POD.replace(b"\n", b"\n  "),
    ],
)
def test_objects_are_read_in_every_form_that_kubectl_prints(data):
    assert [reference(o) for o in read_documents("pods", data).objects] == ["Pod/shop/web"]


def test_yaml_stays_as_json_would_have_it():
    pod = read_documents("pod.yaml", YAML_POD).objects[0]

    assert pod["metadata"]["creationTimestamp"] == "2026-01-01T00:00:00Z"
    assert pod["status"] == {"on": "yes", "n": "010", "t": True}


def test_a_table_of_events_is_read():
    table = (
        b"NAMESPACE   LAST SEEN            TYPE      REASON   OBJECT         MESSAGE\n"
        b"shop        2m (x5 over 10m)     Warning   Failed   pod/web-1      Failed to pull image \"x:1\": manifest unknown: not found\n"
        b"shop        3m                   Normal    Pulled   pod/web-2      done\n"
    )  # fmt: skip

    evidence = read_documents("-", table)

    assert [(e["reason"], e["count"], e["involvedObject"]["kind"]) for e in evidence.objects] == [
        ("Failed", 5, "Pod"),
        ("Pulled", 1, "Pod"),
    ]
    assert diagnose(evidence).cause.code == "ImageNotFound"


def test_a_plain_log_is_filed_under_its_name_and_its_bytes_stay():
    log = read_documents("logs/web-1.app.previous.log", b"\xff\xfe not text \x80\nKeyError: 'A_B'\n".replace(b"\xff\xfe", b"\x80")).logs[0]

    assert (log.pod, log.container, log.previous) == ("web-1", "app", True)
    assert log.content.startswith(b"\x80 not text")


def test_json_lines_are_a_log():
    assert read_documents("-", b'{"level":"error","msg":"no"}\n{"level":"info","msg":"x"}\n').logs[0].content.startswith(b'{"level"')


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("logo.png", b"\x89PNG\r\n\x1a\n\x00\x00", "PNG picture"),
        ("package.json", b'{\n  "name": "web",\n  "version": "1.0.0"\n}\n', "no apiVersion and kind"),
        ("page.html", b"<!DOCTYPE html>\n<html></html>", "markup"),
        ("broken.yaml", b"apiVersion: v1\nkind: Pod\nmetadata: [a: b: c\n", "YAML"),
        ("broken.json", b'{"apiVersion": "v1", "kind": "Pod", ', "JSON"),
        ("empty.txt", b" \n", "empty"),
        ("pods.txt", b"NAME    READY   STATUS    RESTARTS   AGE\nweb-1   0/1   Error   3   5m\n", "-o json"),
        ("pod.txt", b"Name:             web-1\nNamespace:        shop\nPriority: 0\n", "describe"),
        ("all.tar.gz", b"\x1f\x8b\x08\x00", "gzip"),
        ("noise", bytes(range(32)) * 50, "binary"),
        ("list.json", b"[1, 2]", "no Kubernetes object"),
        ("nan.json", b'{"apiVersion": "v1", "kind": "Pod", "x": NaN}', "NaN"),
    ],
)
def test_what_is_not_of_kubernetes_is_refused_by_name(name, data, said):
    with pytest.raises(EvidenceUnreadable) as refused:
        read_documents(name, data)

    assert name in refused.value.message
    assert said in refused.value.message
    assert "kubectl" in refused.value.message


@pytest.mark.parametrize(
    "data",
    [
        b"apiVersion: v1\nkind: Pod\na: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: [*b,*b,*b,*b,*b,*b,*b]\n",
        b"apiVersion: v1\nkind: Pod\nx: " + b"[" * 5_000,
        b"apiVersion: v1\nkind: Pod\nx: " + b"{a: " * 500 + b"}" * 500,
        b'{"apiVersion": "v1", "kind": "Pod", "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"apiVersion": "v1", "kind": "Pod", "x": ' + b'{"a":' * 90 + b"1" + b"}" * 90 + b"}",
        b'{"apiVersion": "v1", "kind": "Pod", "x": ' + b"9" * 10_000 + b"}",
        b"apiVersion: v1\nkind: Pod\nx: \x00\n",
        b"x" * (LARGEST_FILE + 1),
    ],
)
def test_hostile_input_is_refused_before_it_costs_much(data):
    with pytest.raises(EvidenceUnreadable):
        read_documents("hostile", data)


def test_a_nul_in_a_string_becomes_what_a_database_can_keep():
    pod = read_documents(
        "pod.json", b'{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "labels": {"x": "a\\u0000b\\ud800"}}}'
    ).objects[0]

    assert "\x00" not in pod["metadata"]["labels"]["x"]
    assert pod["metadata"]["labels"]["x"].encode()


@given(st.binary(max_size=600))
def test_arbitrary_bytes_raise_nothing_else(data):
    _read(data)


@given(
    st.sampled_from(
        [
            b"apiVersion: v1\nkind: Pod\n",
            b'{"apiVersion":"v1","kind":"Pod",',
            b"LAST SEEN   TYPE   REASON   OBJECT   MESSAGE\n",
            b"[{",
            b"---\n",
        ]
    ),
    st.binary(max_size=300),
)
def test_arbitrary_bytes_behind_a_plausible_beginning_raise_nothing_else(beginning, data):
    _read(beginning + data)


FIELDS = [
    "metadata",
    "name",
    "namespace",
    "spec",
    "status",
    "containers",
    "containerStatuses",
    "state",
    "waiting",
    "reason",
    "message",
    "conditions",
    "type",
    "ownerReferences",
    "kind",
    "involvedObject",
    "resources",
    "limits",
    "memory",
    "env",
]
KINDS = ["Pod", "Event", "Node", "Deployment", "HorizontalPodAutoscaler", "PodDisruptionBudget", "ReplicaSet", "Secret", "ConfigMap"]
LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8)
BODIES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=5), max_leaves=25
)


@given(BODIES, st.sampled_from(KINDS))
@settings(max_examples=150)
def test_an_object_of_any_shape_is_diagnosed_without_a_complaint(body, kind):
    made = {**(body if isinstance(body, dict) else {"spec": body}), "apiVersion": "v1", "kind": kind}
    evidence = read_documents("any", json.dumps(made).encode())

    assert render(diagnose(evidence))
    assert Evidence.from_items(evidence.to_items()).digest == evidence.digest


def _read(data: bytes) -> None:
    try:
        evidence = read_documents("any", data)
    except EvidenceUnreadable:
        return
    diagnose(evidence)


def test_a_recording_holds_objects_logs_and_notes():
    evidence = read_recording(CASE / "bundle")

    assert {"Pod", "Node", "Deployment", "Event"} <= {o["kind"] for o in evidence.objects}
    assert {log.previous for log in evidence.logs} == {True, False}
    assert "note/commands.txt" in [note.ref for note in evidence.notes]


def test_a_folder_that_is_none_or_empty_is_refused(tmp_path):
    for folder in (tmp_path / "absent", tmp_path):
        with pytest.raises(EvidenceUnreadable, match=str(folder)):
            read_recording(folder)


def test_a_recording_does_not_follow_links_out_of_its_folder(tmp_path):
    (tmp_path / "secret.json").write_text(json.dumps(POD))
    inside = tmp_path / "bundle"
    inside.mkdir()
    (inside / "pods.json").symlink_to(tmp_path / "secret.json")

    with pytest.raises(EvidenceUnreadable):
        read_recording(inside)


def test_a_long_log_keeps_its_beginning_and_its_end():
    content = b"first\n" + b"x" * 1_000_000 + b"\nlast"

    kept = Evidence(logs=(Log("n", "p", "c", previous=False, content=content),)).logs[0].content

    assert len(kept) == LOG_HEAD + LOG_TAIL
    assert kept.startswith(b"first\n")
    assert kept.endswith(b"\nlast")
    assert b"left out" in kept


@pytest.mark.parametrize(
    "words", [b"A_" * 131_072, b"listening " * 26_000, b"aaaaaaaaa" * 29_000, b"'x' " * 65_000, b"/a/b permission denied " * 11_000]
)
def test_a_log_that_was_made_to_be_slow_is_not(words):
    broken = {
        "containerStatuses": [
            {"name": "app", "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": {"exitCode": 1}}}
        ]
    }
    pod = {**POD, "status": {"phase": "Running", **broken}, "spec": {"containers": [{"name": "app"}]}}
    start = time.perf_counter()

    diagnose(Evidence((pod,), (Log("shop", "web", "app", previous=True, content=words),)))

    assert time.perf_counter() - start < 10


@pytest.mark.parametrize(
    ("name", "data", "complaint"),
    [
        ("broken.yaml", b"a: [1,\n", "broken.yaml is not readable as YAML: .*line 2"),
        ("values.yml", b"replicas: 1\n", "values.yml holds a document that is no Kubernetes object"),
        ("words.json", b"no braces here\n", "words.json"),
    ],
)
def test_a_file_that_calls_itself_a_document_is_never_taken_for_a_log(name, data, complaint):
    with pytest.raises(EvidenceUnreadable, match=complaint):
        read_documents(name, data)
