"""MissingServiceAccount: the pods shall run as an account that is not in their namespace."""

import re
from collections.abc import Iterator

from suture.remediation.admission import Refusal, refusals
from suture.remediation.citations import quote
from suture.remediation.evidence import reference, template_path
from suture.remediation.incident import Change, Citation, Finding
from suture.remediation.paths import join, text
from suture.remediation.references import nearest
from suture.remediation.sightings import Scene

CODES = ("MissingServiceAccount",)

_ABSENT = re.compile(r'service account (?P<ns>[^/\s]+)/(?P<name>[^:\s]+): serviceaccount "[^"]+" not found')


def findings(scene: Scene) -> Iterator[Finding]:
    for refusal in refusals(scene, _ABSENT):
        yield _finding(refusal)


def _finding(refusal: Refusal) -> Finding:
    namespace, name = refusal.found["ns"], refusal.found["name"]
    changes, proof = _fixes(refusal, namespace, name)
    place = quote(refusal.evidence.get(refusal.owner) or {}, _place(refusal), "the account that is named")
    return Finding(
        code="MissingServiceAccount", object=refusal.owner,
        sentence=f"{refusal.owner} has no pod: there is no ServiceAccount {namespace}/{name}.",
        confidence=0.97, citations=(*refusal.cite("the API server refuses the pod"), *place, *proof), changes=changes,
        advice="" if changes else f"Create ServiceAccount {name} in namespace {namespace}, or name the one that is meant.",
    )  # fmt: skip


def _place(refusal: Refusal) -> str:
    return join(template_path(refusal.owner), "spec.serviceAccountName")


def _fixes(refusal: Refusal, namespace: str, name: str) -> tuple[tuple[Change, ...], tuple[Citation, ...]]:
    """The account landed in the default namespace, which is where an object without a namespace goes; or its name is misspelt."""
    astray = refusal.evidence.get(f"ServiceAccount/default/{name}")
    if astray is not None and namespace != "default":
        change = Change(object=reference(astray), operation="set", path="metadata.namespace", value=namespace, before=None)
        return (change,), quote(astray, "metadata.namespace", "an account of this name is here, where objects without a namespace land")
    present = [text(a, "metadata", "name") for a in refusal.evidence.of_kind("ServiceAccount", namespace)]
    meant = nearest(name, [p for p in present if p != "default"], cutoff=0.85)
    if meant is None:
        return (), ()
    account = refusal.evidence.get(f"ServiceAccount/{namespace}/{meant}") or {}
    return (Change(object=refusal.owner, operation="set", path=_place(refusal), value=meant, before=name),), quote(
        account, "metadata.name", "this one is there"
    )
