"""History: what a workload's template was before, and what else in the evidence uses the same image.

The only sources of a value to go back to: a revision that the cluster kept, or a neighbour that runs. Nothing is ever guessed here.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from suture.remediation.citations import quote
from suture.remediation.evidence import reference, split, template_path
from suture.remediation.incident import Change, Citation
from suture.remediation.paths import ABSENT, Object, Pick, join, lookup, maps, text, whole
from suture.remediation.sightings import GROUPS, Container


@dataclass(frozen=True)
class Earlier:
    """A container as an earlier revision of its owner had it."""

    document: Object
    path: str
    spec: Object

    def cite(self, field: str, why: str) -> tuple[Citation, ...]:
        return quote(self.document, join(self.path, field), why)


def earlier(container: Container) -> list[Earlier]:
    """The container in the revisions before the current one, newest first."""
    kind, namespace, _ = split(container.owner)
    if kind == "Deployment":
        kept = [(r, "spec.template.spec") for r in container.evidence.revisions(container.owner)]
    else:
        mine = [
            r
            for r in container.evidence.of_kind("ControllerRevision", namespace)
            if container.evidence.owner(reference(r)) == container.owner
        ]
        kept = [(r, "data.spec.template.spec") for r in sorted(mine, key=lambda r: whole(r, "revision") or 0)]
    return [found for document, path in reversed(kept[:-1]) if (found := _in(document, path, container)) is not None]


def _in(document: Object, path: str, container: Container) -> Earlier | None:
    place = join(path, container.group, Pick("name", container.name))
    spec = lookup(document, place)
    return Earlier(document, place, spec) if isinstance(spec, dict) else None


def restored(container: Container, field: str, why: str) -> tuple[tuple[Change, ...], tuple[Citation, ...]]:
    """The change that puts `field` of the container back to what the newest revision with another value had; nothing where none had."""
    path = container.source_path(field)
    now = container.source_value(path)
    for revision in earlier(container):
        was = revision.spec.get(field, ABSENT)
        if now is not ABSENT and was not in (now, ABSENT):
            return (Change(object=container.owner, operation="set", path=path, value=was, before=now),), revision.cite(field, why)
        if now is not ABSENT and was is ABSENT:
            return (Change(object=container.owner, operation="remove", path=path, before=now),), revision.cite("name", why)
    return (), ()


def changed_fields(container: Container) -> set[str]:
    """The fields of the container in which its owner's current template differs from the revision before; empty without history."""
    before = earlier(container)
    if not before:
        return set()
    now = container.source_value(container.source_path())
    current = now if isinstance(now, dict) else container.spec
    fields = current.keys() | before[0].spec.keys()
    return {field for field in fields if current.get(field) != before[0].spec.get(field)}


def repository(image: str) -> str:
    """An image reference without its tag and digest."""
    name = image.partition("@")[0]
    head, slash, last = name.rpartition("/")
    return head + slash + last.partition(":")[0]


def tag(image: str) -> str:
    """The tag of an image reference; empty where there is none."""
    return image.partition("@")[0].rpartition("/")[2].partition(":")[2]


def neighbours(container: Container) -> list[tuple[Object, str, str]]:
    """Other workloads that use another version of the same image: the object, the path and the image."""
    mine = text(container.spec, "image")
    found = []
    for document, path, image in _images(container):
        if reference(document) != container.owner and repository(image) == repository(mine) and image != mine and tag(image):
            found.append((document, path, image))
    return found


def _images(container: Container) -> Iterator[tuple[Object, str, str]]:
    for kind in ("Deployment", "StatefulSet", "DaemonSet", "CronJob", "Job"):
        for document in container.evidence.of_kind(kind):
            for group in GROUPS:
                spec = join(template_path(reference(document)), "spec")
                items = lookup(document, spec)
                for item in maps(items, group):
                    yield document, join(spec, group, Pick("name", text(item, "name")), "image"), text(item, "image")
