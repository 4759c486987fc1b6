"""Evidence: what Kubernetes said, frozen, redacted, and the ways through it.

Objects (events are objects too), logs as bytes, notes of tools. Everything that enters passes `redaction`; nothing that leaves is
changed any more, so a citation can be looked up again years later. Pure data: files are read by `documents`, a cluster by the clients.
Neighbours: `sightings` puts views over pods, containers and events; `causes` ask; `citations` checks.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple, Self, TypeVar

from suture.redaction import redact_bytes, redact_object
from suture.remediation.paths import Object, mapping, maps, text, whole

LOG_HEAD = 64 << 10
LOG_TAIL = 192 << 10
"""Of a long log the first and the last bytes are kept: how it started, and how it ended."""
LONGEST_MESSAGE = 4_096
"""Characters of a message that the rules look at: the API server keeps 1,024 of an event."""
_MARGIN = 32 << 10
"""More than the longest secret that is recognised: none is cut in two before it was seen."""

CLUSTER_SCOPED = frozenset(
    {"Node", "Namespace", "PersistentVolume", "StorageClass", "ClusterRole", "ClusterRoleBinding", "APIService", "PriorityClass"}
    | {"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration", "CustomResourceDefinition", "IngressClass", "CSIDriver", "CSINode"}
)
TEMPLATES = {"CronJob": "spec.jobTemplate.spec.template", "Pod": ""}
"""Where a kind keeps its pod template; all others at spec.template."""

_MADE = re.compile(r"(?:Created|Deleted) pod: (?P<pod>\S+)|Scaled (?:up|down) replica set (?P<set>\S+) ")
"""How the controllers tell what they made."""

_LOST_LOG = (b"unable to retrieve container logs for ", b"failed to try resolving symlinks in path ", b"Error from server")
"""What a kubelet writes in place of a log that is gone. Facts about the kubelet, not about the program."""


class Item(NamedTuple):
    """One row of frozen evidence. `ref` is unique within its kind; an object's content is canonical JSON."""

    kind: Literal["object", "log", "note"]
    ref: str
    content: bytes


@dataclass(frozen=True)
class Log:
    """What one container wrote, in its current or its previous life."""

    namespace: str
    pod: str
    container: str
    previous: bool
    content: bytes

    @property
    def ref(self) -> str:
        return f"log/{self.namespace}/{self.pod}/{self.container}/{'previous' if self.previous else 'current'}"

    @property
    def lost(self) -> bool:
        """The log is gone and the kubelet's apology stands in its place."""
        return len(self.content) < 2_000 and self.content.startswith(_LOST_LOG)


@dataclass(frozen=True)
class Note:
    """What a tool printed: the output of a sync, a refused drain."""

    name: str
    content: bytes

    @property
    def ref(self) -> str:
        return f"note/{self.name}"


def reference(document: Object) -> str:
    """Kind/namespace/name of an object."""
    metadata = mapping(document, "metadata")
    return f"{text(document, 'kind')}/{text(metadata, 'namespace')}/{text(metadata, 'name')}"


def split(ref: str) -> tuple[str, str, str]:
    """Kind, namespace and name of a reference."""
    kind, _, rest = ref.partition("/")
    namespace, _, name = rest.partition("/")
    return kind, namespace, name


@dataclass(frozen=True)
class Evidence:
    """Everything that is known about a failure. Equal evidence has an equal digest, whatever the order of its parts."""

    objects: tuple[Object, ...] = ()
    logs: tuple[Log, ...] = ()
    notes: tuple[Note, ...] = ()
    _index: Mapping[str, Object] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        index: dict[str, Object] = {}
        for document in map(redact_object, self.objects):
            ref = reference(document)
            if ref not in index or _version(index[ref]) <= _version(document):
                index[ref] = document
        index = dict(sorted(index.items()))
        object.__setattr__(self, "objects", tuple(index.values()))
        object.__setattr__(self, "_index", index)
        object.__setattr__(self, "logs", _unique(replace(log, content=_clean(log.content)) for log in self.logs))
        object.__setattr__(self, "notes", _unique(replace(note, content=_clean(note.content)) for note in self.notes))

    def __add__(self, other: Self) -> "Evidence":
        return Evidence(self.objects + other.objects, self.logs + other.logs, self.notes + other.notes)

    def get(self, ref: str) -> Object | None:
        """The object called Kind/namespace/name."""
        return self._index.get(ref)

    def of_kind(self, kind: str, namespace: str | None = None) -> Sequence[Object]:
        """All objects of a kind, of one namespace or of all."""
        found = self._kinds.get(kind, ())
        return found if namespace is None else [o for o in found if text(o, "metadata", "namespace") == namespace]

    @cached_property
    def _kinds(self) -> Mapping[str, list[Object]]:
        kinds: dict[str, list[Object]] = {}
        for document in self.objects:
            kinds.setdefault(text(document, "kind"), []).append(document)
        return kinds

    # Owners

    def top(self, ref: str) -> str:
        """The end of the owner chain: what a person wrote. An owner that is not in the evidence is still named."""
        if ref not in self._tops:
            seen, end = {ref}, ref
            while (owner := self.owner(end)) and owner not in seen:
                seen.add(owner)
                end = owner
            self._tops[ref] = end
        return self._tops[ref]

    @cached_property
    def _tops(self) -> dict[str, str]:
        return {}

    def owner(self, ref: str) -> str | None:
        """Who made the object: by its ownerReferences, by the events of its maker, or by the names that Deployments give."""
        kind, namespace, name = split(ref)
        document = self.get(ref)
        if document is not None:
            references = maps(document, "metadata", "ownerReferences")
            owner = next((o for o in references if o.get("controller") is True), references[0] if references else None)
            if owner is not None and text(owner, "kind") != "Node":
                return f"{text(owner, 'kind')}/{namespace}/{text(owner, 'name')}"
            return None
        if kind == "Pod":
            return self._made.get(ref) or self._replica_set_by_name(namespace, name)
        if kind == "ReplicaSet":
            return self._made.get(ref) or self._deployment_by_hash(ref, name)
        return None

    @cached_property
    def _made(self) -> Mapping[str, str]:
        """Pods and ReplicaSets by the events of their makers: the only trace of those that are gone."""
        made: dict[str, str] = {}
        for event in self.of_kind("Event"):
            maker, told = involved(event), _MADE.match(event_message(event))
            if told is not None:
                kind, name = ("Pod", told["pod"]) if told["pod"] else ("ReplicaSet", told["set"])
                made[f"{kind}/{split(maker)[1]}/{name}"] = maker
        return made

    def _replica_set_by_name(self, namespace: str, name: str) -> str | None:
        parent = f"ReplicaSet/{namespace}/{name.rpartition('-')[0]}"
        return parent if parent in self._index else None

    def _deployment_by_hash(self, ref: str, name: str) -> str | None:
        """A ReplicaSet that is not in the evidence: its name is the Deployment's and the hash that its pods carry as a label."""
        stem, dash, stamp = name.rpartition("-")
        return f"Deployment/{split(ref)[1]}/{stem}" if dash and (split(ref)[1], stamp) in self._stamps else None

    @cached_property
    def _stamps(self) -> frozenset[tuple[str, str]]:
        found = ((text(p, "metadata", "namespace"), text(p, "metadata", "labels", "pod-template-hash")) for p in self.of_kind("Pod"))
        return frozenset((namespace, stamp) for namespace, stamp in found if stamp)

    def pods(self, owner: str) -> list[Object]:
        """The pods at the bottom of a workload's chain."""
        return self._pods.get(owner, [])

    @cached_property
    def _pods(self) -> Mapping[str, list[Object]]:
        pods: dict[str, list[Object]] = {}
        for pod in self.of_kind("Pod"):
            pods.setdefault(self.top(reference(pod)), []).append(pod)
        return pods

    def revisions(self, deployment: str) -> list[Object]:
        """The ReplicaSets of a Deployment, oldest revision first."""
        owned = [r for r in self.of_kind("ReplicaSet", split(deployment)[1]) if self.owner(reference(r)) == deployment]
        return sorted(owned, key=revision)

    def events(self, ref: str) -> Sequence[Object]:
        """The events about an object, oldest first."""
        return self._events.get(ref, ())

    @cached_property
    def _events(self) -> Mapping[str, list[Object]]:
        events: dict[str, list[Object]] = {}
        for event in sorted(self.of_kind("Event"), key=event_time):
            events.setdefault(involved(event), []).append(event)
        return events

    def logs_of(self, namespace: str, pod: str, container: str) -> list[Log]:
        """The logs of a container that are logs, the previous life first: what ended it stands there."""
        return self._logs.get((namespace, pod, container), [])

    @cached_property
    def _logs(self) -> Mapping[tuple[str, str, str], list[Log]]:
        logs: dict[tuple[str, str, str], list[Log]] = {}
        for log in sorted(self.logs, key=lambda log: not log.previous):
            if not log.lost:
                logs.setdefault((log.namespace, log.pod, log.container), []).append(log)
        return logs

    def source(self, ref: str) -> bytes | None:
        """The bytes of the log or note called `ref`."""
        return self._sources.get(ref)

    @cached_property
    def _sources(self) -> Mapping[str, bytes]:
        return {log.ref: log.content for log in self.logs} | {note.ref: note.content for note in self.notes}

    # Rows

    def to_items(self) -> Iterator[Item]:
        """The evidence as rows, in a stable order."""
        for ref, document in self._index.items():
            yield Item("object", ref, _canonical(document))
        for log in self.logs:
            yield Item("log", log.ref, log.content)
        for note in self.notes:
            yield Item("note", note.ref, note.content)

    @classmethod
    def from_items(cls, items: Iterable[tuple[str, str, bytes]]) -> Self:
        """The evidence whose rows these are."""
        objects: list[Object] = []
        logs: list[Log] = []
        notes: list[Note] = []
        for kind, ref, content in items:
            if kind == "object":
                objects.append(json.loads(content))
            elif kind == "log":
                _, namespace, pod, container, life = ref.split("/", 4)
                logs.append(Log(namespace, pod, container, life == "previous", content))
            else:
                notes.append(Note(ref.removeprefix("note/"), content))
        return cls(tuple(objects), tuple(logs), tuple(notes))

    @cached_property
    def digest(self) -> str:
        """SHA-256, hex, over all rows."""
        total = hashlib.sha256()
        for item in self.to_items():
            for part in (item.kind.encode(), item.ref.encode("utf-8", "surrogatepass"), item.content):
                total.update(len(part).to_bytes(8, "big") + part)
        return total.hexdigest()


_GENERATED = re.compile(r"(.+)-[bcdfghkmt2456789]{10}")
"""The hash that kustomize appends to a generated ConfigMap or Secret; its letters are no others."""


def written_name(ref: str) -> str:
    """The name that a person wrote for a ConfigMap or Secret whose name kustomize completed."""
    kind, namespace, name = split(ref)
    found = _GENERATED.fullmatch(name) if kind in ("ConfigMap", "Secret") else None
    return f"{kind}/{namespace}/{found[1]}" if found else ref


def involved(event: Object) -> str:
    """The reference of what an event is about."""
    about = mapping(event, "involvedObject") or mapping(event, "regarding")
    namespace = text(about, "namespace")
    if not namespace and text(about, "kind") not in CLUSTER_SCOPED:
        namespace = text(event, "metadata", "namespace")
    return f"{text(about, 'kind')}/{namespace}/{text(about, 'name')}"


def event_message(event: Object) -> str:
    """What an event says, as far as the API server itself would keep it."""
    return (text(event, "message") or text(event, "note"))[:LONGEST_MESSAGE]


def event_time(event: Object) -> str:
    """When an event was seen last, as its RFC 3339 text: it sorts as time does."""
    names = ("lastTimestamp", "deprecatedLastTimestamp", "eventTime", "firstTimestamp")
    found = next((text(event, name) for name in names if text(event, name)), "")
    return text(event, "series", "lastObservedTime") or found or text(event, "metadata", "creationTimestamp")


def event_count(event: Object) -> int:
    return whole(event, "count") or whole(event, "series", "count") or whole(event, "deprecatedCount") or 1


def revision(replica_set: Object) -> int:
    """The number of the revision that a ReplicaSet stands for."""
    number = text(replica_set, "metadata", "annotations", "deployment.kubernetes.io/revision")
    return int(number) if number.isascii() and number.isdigit() and len(number) < 19 else 0


def template_path(ref: str) -> str:
    """Where the pod template stands in the object called `ref`; empty for a pod, which is its own template."""
    return TEMPLATES.get(split(ref)[0], "spec.template")


def _version(document: Object) -> int:
    version = text(document, "metadata", "resourceVersion")
    return int(version) if version.isascii() and version.isdigit() and len(version) < 19 else 0


def _clean(content: bytes) -> bytes:
    """Text without its secrets, and without its middle where it is long."""
    if len(content) <= LOG_HEAD + LOG_TAIL:
        return redact_bytes(content)
    marker = f"\n[{len(content) - LOG_HEAD - LOG_TAIL:,} bytes or more are left out here]\n".encode()
    head = redact_bytes(content[: LOG_HEAD + _MARGIN])[:LOG_HEAD]
    tail = redact_bytes(content[-LOG_TAIL - _MARGIN :])[-LOG_TAIL:]
    return head + marker + tail[len(marker) :]


Part = TypeVar("Part", Log, Note)


def _unique(parts: Iterable[Part]) -> tuple[Part, ...]:
    return tuple(part for _, part in sorted({part.ref: part for part in parts}.items()))


def _canonical(document: Any) -> bytes:
    return json.dumps(document, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode("utf-8", "replace")
