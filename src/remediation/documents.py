"""Documents: reads what people pipe in and what was recorded into `Evidence`.

Takes `kubectl get … -o json|yaml` (one object, a List, many documents), the table of `kubectl get events`, and the plain text of a log.
All of it is hostile until proven otherwise: sizes, depth and numbers are bounded, YAML anchors are refused (kubectl never prints any).
Neighbours: `evidence` redacts whatever enters; `yaml_documents` and `event_table` read the two formats that need a reader of their own.
"""

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NoReturn

from suture.errors import EvidenceUnreadable
from suture.remediation.event_table import is_event_table, read_event_table
from suture.remediation.evidence import Evidence, Log, Note
from suture.remediation.paths import Object, maps, text
from suture.remediation.yaml_documents import Unfit, load_yaml

LARGEST_FILE = 32 << 20
LARGEST_RECORDING = 256 << 20
DEEPEST = 64
MOST_OBJECTS = 50_000

RIGHT = "What can be read: `kubectl get … -o json` or `-o yaml`, the table of `kubectl get events`, and the plain text of `kubectl logs`."

_MAGIC = {
    b"\x89PNG": "a PNG picture", b"\xff\xd8\xff": "a JPEG picture", b"GIF8": "a GIF picture", b"%PDF": "a PDF",
    b"PK\x03\x04": "a ZIP archive", b"\x1f\x8b": "a gzip archive", b"BZh": "a bzip2 archive", b"\xfd7zXZ": "an xz archive",
    b"\x28\xb5\x2f\xfd": "a zstd archive", b"\x7fELF": "a program",
}  # fmt: skip
_MARKUP = re.compile(rb"\s*<(?:!doctype|html|\?xml|svg|head|body)\b", re.IGNORECASE)
_TABLE = re.compile(r"(?:NAMESPACE +)?NAME +(?:READY|STATUS|AGE|DATA|TYPE|DESIRED|COMPLETIONS|SCHEDULE)\b")
_DESCRIBED = re.compile(r"Name: +\S+\n(?:Namespace: +|Priority: +|Labels: +|Roles: +)")
_LOOKS_LIKE_OBJECT = re.compile(r"^(?:apiVersion|kind):", re.MULTILINE)
_DOCUMENTS = (".yaml", ".yml", ".json")
"""A file that calls itself so is no log, however broken it is."""

_LOG_WORDS = frozenset({"level", "severity", "lvl", "msg", "message", "ts", "time", "timestamp", "@timestamp", "log", "error"})


def read_documents(name: str, data: bytes) -> Evidence:
    """The evidence in one file or pipe called `name`; a plain log is filed under its name (POD.CONTAINER[.previous].log).

    Raises: EvidenceUnreadable, naming the file and what would be right.
    """
    _refuse_binary(name, data)
    content = _decoded(data)
    if is_event_table(content):
        return Evidence(tuple(read_event_table(content)))
    if (objects := _objects(name, content)) is not None:
        return Evidence(tuple(objects))
    _refuse_other_prints(name, content)
    return Evidence(logs=(_log("", Path(name).name, data),))


def _refuse_binary(name: str, data: bytes) -> None:
    if len(data) > LARGEST_FILE:
        _refuse(name, f"has {len(data):,} bytes and the limit is {LARGEST_FILE:,}: cut it, or name fewer objects")
    if not data.strip():
        _refuse(name, "is empty")
    what = next((what for magic, what in _MAGIC.items() if data.startswith(magic)), None)
    if what or _MARKUP.match(data):
        _refuse(name, f"is {what or 'a page of markup'}")
    sample = data[: 64 << 10]
    if sum(byte < 32 and byte not in b"\t\n\r\x1b\f\b" for byte in sample) * 20 > len(sample) and data[:2] not in (
        b"\xff\xfe",
        b"\xfe\xff",
    ):
        _refuse(name, "is binary")


def _decoded(data: bytes) -> str:
    """The text of a file; PowerShell writes UTF-16 with a byte order mark."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return data.decode("utf-16", "replace")
    return data.decode("utf-8-sig", "replace")


def _objects(name: str, content: str) -> list[Object] | None:
    """The Kubernetes objects in `content`; None where it is no document but text."""
    if content.lstrip()[:1] in ("{", "["):
        return _json_objects(name, content)
    if not (_LOOKS_LIKE_OBJECT.search(content) or name.lower().endswith(_DOCUMENTS)):
        return None
    try:
        return list(_flattened(name, load_yaml(content, deepest=DEEPEST)))
    except Unfit as error:
        _refuse(name, f"is not readable as YAML: {error}")


def _json_objects(name: str, content: str) -> list[Object] | None:
    try:
        documents = _json_documents(content)
    except (ValueError, RecursionError) as error:
        first = content.lstrip().partition("\n")[0]
        if '"apiVersion"' in content[:2_000] or first.strip() in ("{", "["):
            _refuse(name, f"is not readable as JSON: {'nested too deeply' if isinstance(error, RecursionError) else error}")
        return None
    if all(isinstance(d, dict) and "kind" not in d and _LOG_WORDS & d.keys() for d in documents) and _a_line_each(content):
        return None
    return list(_flattened(name, documents))


def _json_documents(content: str) -> list[Any]:
    """One JSON document, or several one after the other (`kubectl get … -o json` run twice)."""
    decoder = json.JSONDecoder(parse_constant=_no_constant)
    documents, at = [], 0
    while at < len(content):
        while at < len(content) and content[at].isspace():
            at += 1
        if at < len(content):
            document, at = decoder.raw_decode(content, at)
            documents.append(document)
    return documents


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _a_line_each(content: str) -> bool:
    return all(line.startswith("{") for line in content.splitlines() if line.strip())


def _flattened(name: str, documents: Iterable[Any]) -> Iterator[Object]:
    """The objects of all documents; Lists are taken apart."""
    number = 0
    for document in documents:
        if document is None:
            continue
        for item in _items(name, document):
            number += 1
            if number > MOST_OBJECTS:
                _refuse(name, f"holds more than {MOST_OBJECTS:,} objects: name fewer of them")
            yield item


def _items(name: str, document: Any) -> Iterator[Object]:
    if isinstance(document, list):
        for inner in document:
            yield from _items(name, inner) if isinstance(inner, dict) else _refuse_item(name, inner)
        return
    if not isinstance(document, dict) or not text(document, "kind") or not text(document, "apiVersion"):
        _refuse(name, "holds a document that is no Kubernetes object: it has no apiVersion and kind")
    kind = text(document, "kind")
    if kind.endswith("List") and isinstance(document.get("items"), list):
        for item in maps(document, "items"):
            yield from _checked(name, {"apiVersion": document["apiVersion"], "kind": kind.removesuffix("List"), **item})
    else:
        yield from _checked(name, document)


def _refuse_item(name: str, inner: object) -> NoReturn:
    _refuse(name, f"holds a list whose item is no Kubernetes object but {type(inner).__name__}")


def _checked(name: str, item: dict[str, Any]) -> Iterator[Object]:
    if _depth(item) > DEEPEST:
        _refuse(name, f"holds a {text(item, 'kind')} that is nested deeper than {DEEPEST} levels")
    if text(item, "kind"):
        yield item


def _depth(value: Any) -> int:
    """How deep a value is nested; counts level by level, so that no depth exhausts the stack."""
    level, depth = [value], 0
    while level and depth <= DEEPEST:
        depth += 1
        inner = [v.values() if isinstance(v, dict) else v for v in level if isinstance(v, dict | list)]
        level = [v for values in inner for v in values if isinstance(v, dict | list)]
    return depth


def _refuse_other_prints(name: str, content: str) -> None:
    if _TABLE.match(content):
        _refuse(name, "is a table for people, which leaves out the reasons: print it with `-o json`")
    if _DESCRIBED.match(content):
        _refuse(name, "is the output of `kubectl describe`, which is made for people: use `kubectl get … -o yaml` and `kubectl get events`")


def _refuse(name: str, complaint: str) -> NoReturn:
    shown = "the input" if name in ("", "-") else name
    raise EvidenceUnreadable(f"{shown} {complaint}. {RIGHT}")


def _log(namespace: str, file: str, content: bytes) -> Log:
    """POD.CONTAINER.log or POD.CONTAINER.previous.log; a pod's name may hold dots, a container's may not."""
    stem = re.sub(r"\.(?:log|txt|out)$", "", file)
    pod, dot, container = stem.removesuffix(".previous").rpartition(".")
    previous = stem.endswith(".previous")
    return Log(namespace, pod, container, previous, content) if dot else Log(namespace, container, "", previous, content)


def read_recording(folder: Path) -> Evidence:
    """The evidence in a recorded folder: lists of objects as JSON or YAML, NAMESPACE/logs/POD.CONTAINER[.previous].log, commands.txt.

    Raises: EvidenceUnreadable.
    """
    if not folder.is_dir():
        raise EvidenceUnreadable(f"{folder} is no folder. A recording is a folder with one folder a namespace, each with lists as JSON.")
    objects: list[Object] = []
    logs: list[Log] = []
    notes: list[Note] = []
    for path in _files(folder):
        data, place = path.read_bytes(), str(path.relative_to(folder))
        if path.parent.name == "logs" and path.suffix == ".log":
            logs.append(_log(path.parent.parent.name, path.name, data))
        elif path.parent.name == "logs" or path.suffix == ".txt":
            notes.append(Note(place, data))
        else:
            objects += _objects(str(path), _decoded(data)) or ()
    if not objects and not logs:
        raise EvidenceUnreadable(f"{folder} holds no Kubernetes object and no log. {RIGHT}")
    return Evidence(tuple(objects), tuple(logs), tuple(notes))


def _files(folder: Path) -> list[Path]:
    """The files of a recording, in a stable order; links are not followed, and meta.json speaks of the recording itself."""
    found = [p for p in sorted(folder.rglob("*")) if p.is_file() and not p.is_symlink() and p.name != "meta.json"]
    wanted = [p for p in found if p.suffix in (".json", ".yaml", ".yml", ".txt", ".log", ".error")]
    total = 0
    for path in wanted:
        size = path.stat().st_size
        total += size
        if size > LARGEST_FILE or total > LARGEST_RECORDING:
            raise EvidenceUnreadable(
                f"{path} makes the recording larger than can be read: {LARGEST_FILE:,} bytes a file, {LARGEST_RECORDING:,} in all."
            )
    return wanted
