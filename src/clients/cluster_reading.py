"""What `cluster` reads for one workload, and what it keeps of it: the table of kinds, ownership, trimming. Pure; asks nobody.

Neighbours: `cluster` fetches; who freezes evidence turns `Collected` into rows.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Object = dict[str, Any]
"""A Kubernetes object as the API printed it."""

OBJECTS = 5_000
"""Objects of one list at most: what a namespace of usual size never reaches, and memory always holds."""

EVENTS_KEPT = 1_000
"""Events that are kept, those about the workload first, then the newest."""

PODS_WITH_LOGS = 8
"""Pods whose logs are read, the least healthy first: replicas of one failure tell the same."""


Life = tuple[str, str, str, bool]
"""One life of a container: namespace, pod, container, and whether it is the previous one."""

_CLEARED = b"unable to retrieve container logs for "
"""Begins what a kubelet answers, with 200, for a container that it has cleared away."""


class Source(NamedTuple):
    """A list of the API: the kind of its items, their API version and the plural in the address."""

    kind: str
    version: str
    plural: str
    namespace: str = ""
    """Empty: the whole cluster."""
    slim: bool = False
    """Keep of a pod only what says how much room it takes."""

    @property
    def path(self) -> str:
        root = f"/apis/{self.version}" if "/" in self.version else f"/api/{self.version}"
        return f"{root}/namespaces/{self.namespace}/{self.plural}" if self.namespace else f"{root}/{self.plural}"

    @property
    def title(self) -> str:
        return f"list/{self.namespace}/{self.plural}"


NAMESPACED = tuple(
    Source(*row)
    for row in (
        ("Pod", "v1", "pods"),
        ("ReplicationController", "v1", "replicationcontrollers"),
        ("ConfigMap", "v1", "configmaps"),
        ("Secret", "v1", "secrets"),
        ("ServiceAccount", "v1", "serviceaccounts"),
        ("Service", "v1", "services"),
        ("PersistentVolumeClaim", "v1", "persistentvolumeclaims"),
        ("ResourceQuota", "v1", "resourcequotas"),
        ("LimitRange", "v1", "limitranges"),
        ("Deployment", "apps/v1", "deployments"),
        ("ReplicaSet", "apps/v1", "replicasets"),
        ("StatefulSet", "apps/v1", "statefulsets"),
        ("DaemonSet", "apps/v1", "daemonsets"),
        ("Job", "batch/v1", "jobs"),
        ("CronJob", "batch/v1", "cronjobs"),
        ("HorizontalPodAutoscaler", "autoscaling/v2", "horizontalpodautoscalers"),
        ("PodDisruptionBudget", "policy/v1", "poddisruptionbudgets"),
        ("EndpointSlice", "discovery.k8s.io/v1", "endpointslices"),
    )
)
EVENTS = Source("Event", "v1", "events")
CLUSTER = tuple(
    Source(*row)
    for row in (
        ("Node", "v1", "nodes"),
        ("PersistentVolume", "v1", "persistentvolumes"),
        ("StorageClass", "storage.k8s.io/v1", "storageclasses"),
        ("ValidatingWebhookConfiguration", "admissionregistration.k8s.io/v1", "validatingwebhookconfigurations"),
        ("MutatingWebhookConfiguration", "admissionregistration.k8s.io/v1", "mutatingwebhookconfigurations"),
    )
)


class Log(NamedTuple):
    """What one container wrote, in its current or its previous life: the last bytes of it."""

    namespace: str
    pod: str
    container: str
    previous: bool
    content: bytes


@dataclass(frozen=True)
class Collected:
    """What was read. `notes` maps what could not be read (a list, an object, a log) to what the API said in its place."""

    objects: tuple[Object, ...]
    logs: tuple[Log, ...]
    notes: Mapping[str, str]


@dataclass
class Reading:
    """What has been read so far."""

    objects: list[Object] = field(default_factory=list)
    logs: dict[Life, Log] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    _counts: dict[Source, int] = field(default_factory=dict)

    def add(self, source: Source, page: Sequence[Object]) -> bool:
        """Take a page of a list; False when that is all that may be taken of it."""
        self._counts[source] = self._counts.get(source, 0) + len(page)
        self.objects += page
        if self._counts[source] < OBJECTS:
            return True
        self.note(source.title, f"only the first {self._counts[source]:,} were read")
        return False

    def note(self, title: str, message: str) -> None:
        self.notes[title] = message

    def collected(self, members: Sequence[Object]) -> Collected:
        """The members of the workload whole; of the rest what surrounds them."""
        mine = {_uid(member) for member in members}
        events = [o for o in self.objects if o["kind"] == "Event"]
        others = [o for o in self.objects if o["kind"] != "Event" and _uid(o) not in mine]
        kept = (*members, *(_slim(o) if o["kind"] == "Pod" else o for o in others if not _is_retired(o)), *_newest(events, mine))
        first = {(o["kind"], _uid(o)): o for o in reversed(kept)}  # a pod that two lists hold: the fuller one stands first
        return Collected(tuple(reversed(first.values())), tuple(self.logs.values()), dict(self.notes))


def family(objects: Iterable[Object], workload: tuple[str, str, str]) -> list[Object]:
    """All that hangs on a workload: from the top of its owners down to the pods. Empty when the workload is not there."""
    by_uid = {_uid(o): o for o in objects if o["kind"] != "Event"}
    named = next((o for o in by_uid.values() if (o["kind"], _place(o), o["metadata"]["name"]) == workload), None)
    if named is None:
        return []
    top = _top(named, by_uid)
    return [o for o in by_uid.values() if _top(o, by_uid) is top]


def needs_room(member: Object) -> bool:
    """Whether it is a pod that found no node: then what the other pods take is evidence."""
    conditions = member.get("status", {}).get("conditions") or () if member["kind"] == "Pod" else ()
    return any(c.get("type") == "PodScheduled" and c.get("status") == "False" for c in conditions)


def lives(members: Iterable[Object]) -> Iterator[Life]:
    """The logs worth reading: of every container, and of the life before if there was one."""
    pods = sorted((m for m in members if m["kind"] == "Pod" and m["spec"].get("nodeName")), key=_health)
    for pod in pods[:PODS_WITH_LOGS]:
        for status in (*(pod["status"].get("initContainerStatuses") or ()), *(pod["status"].get("containerStatuses") or ())):
            place = (pod["metadata"]["namespace"], pod["metadata"]["name"], status["name"])
            yield (*place, False)
            if status.get("restartCount", 0) > 0:
                yield (*place, True)


def is_unheard(life: Life, members: Iterable[Object], logs: Mapping[Life, Log]) -> bool:
    """Whether it belongs to a container that had a life before, and no word of either was to be had."""
    container = life[:3]
    if (*container, True) not in lives(members):
        return False
    heard = (log.content for log in logs.values() if log[:3] == container)
    return not any(content.strip() and not content.startswith(_CLEARED) for content in heard)


def trimmed(document: Object, *, slim: bool = False) -> Object:
    """The object without what is noise or secret: managed fields, and every value of a ConfigMap or Secret (their keys stay)."""
    metadata = {key: value for key, value in document["metadata"].items() if key != "managedFields"}
    if document["kind"] in ("ConfigMap", "Secret"):
        metadata.pop("annotations", None)  # tools keep a copy of the object there, values and all
        document = document | {part: dict.fromkeys(document[part], "") for part in ("data", "binaryData") if document.get(part)}
    kept = document | {"metadata": metadata}
    return _slim(kept) if slim else kept


def _slim(pod: Object) -> Object:
    """Of a pod that is not the workload's: where it runs, what it takes, how it is."""
    spec, status = pod["spec"], pod.get("status", {})
    places = ("nodeName", "overhead", "hostNetwork", "priority", "priorityClassName", "affinity", "topologySpreadConstraints")
    taken: Object = {key: spec[key] for key in places if key in spec}
    for part in ("containers", "initContainers"):
        if spec.get(part):
            taken[part] = [_only(c, "name", "resources", "ports", "restartPolicy") for c in spec[part]]
    metadata = _only(pod["metadata"], "name", "namespace", "uid", "resourceVersion", "labels", "ownerReferences", "creationTimestamp")
    state = _only(status, "phase", "conditions", "qosClass", "reason")
    return {"kind": "Pod", "apiVersion": pod["apiVersion"], "metadata": metadata, "spec": taken, "status": state}


def _only(document: Object, *keys: str) -> Object:
    return {key: document[key] for key in keys if key in document}


def _newest(events: Sequence[Object], mine: set[str]) -> list[Object]:
    def rank(event: Object) -> tuple[bool, str]:
        about = event.get("involvedObject", {}).get("uid") in mine
        return about, event.get("lastTimestamp") or event.get("eventTime") or event["metadata"]["creationTimestamp"]

    return sorted(events, key=rank, reverse=True)[:EVENTS_KEPT]


def _is_retired(document: Object) -> bool:
    """A ReplicaSet that another workload left behind."""
    return document["kind"] == "ReplicaSet" and not document["spec"].get("replicas")


def _health(pod: Object) -> tuple[bool, int, str]:
    """Sorts the least healthy first: not ready, then most restarts."""
    statuses = pod["status"].get("containerStatuses") or ()
    ready = bool(statuses) and all(s.get("ready") for s in statuses)
    return ready, -sum(s.get("restartCount", 0) for s in statuses), pod["metadata"]["name"]


def _top(document: Object, by_uid: Mapping[str, Object]) -> Object:
    """The end of the owner chain within what was read; a pod of a node's own manifests belongs to itself."""
    seen: set[str] = set()
    while (uid := _uid(document)) not in seen:
        seen.add(uid)
        owners = document["metadata"].get("ownerReferences") or ()
        owner = next((o for o in owners if o.get("controller")), None)
        if owner is None or owner["kind"] == "Node" or owner["uid"] not in by_uid:
            break
        document = by_uid[owner["uid"]]
    return document


def _uid(document: Object) -> str:
    return str(document["metadata"].get("uid", ""))


def _place(document: Object) -> str:
    return str(document["metadata"].get("namespace", ""))
