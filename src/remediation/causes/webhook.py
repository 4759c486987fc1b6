"""WebhookUnavailable: an admission webhook does not answer, and its policy is to fail. The workload is innocent."""

import re
from collections.abc import Iterator

from suture.remediation.admission import refusals
from suture.remediation.citations import quote, quote_bytes
from suture.remediation.evidence import Evidence, reference
from suture.remediation.incident import Citation, Finding
from suture.remediation.paths import Pick, join, maps, text
from suture.remediation.sightings import Scene

CODES = ("WebhookUnavailable",)

_CALL = re.compile(r'failed calling webhook "(?P<name>[^"]+)"(?:[^\n]*?https?://(?P<service>[^/\s:"?]+))?')
_PRINTED = re.compile(_CALL.pattern.encode())
_KINDS = ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration")


def findings(scene: Scene) -> Iterator[Finding]:
    found = False
    for refusal in refusals(scene, _CALL):
        found = True
        cited = refusal.cite("the API server could not ask the webhook")
        yield _finding(scene.evidence, refusal.owner, refusal.found["name"], refusal.found["service"], cited)
    if not found:
        yield from _printed(scene.evidence)


def _printed(evidence: Evidence) -> Iterator[Finding]:
    """What the syncing tool was told: then not even the workload itself could be written."""
    for note in evidence.notes:
        if (told := _PRINTED.search(note.content)) is not None:
            name, service = told["name"].decode("utf-8", "replace"), (told["service"] or b"").decode("utf-8", "replace")
            cited = quote_bytes(note, told.start(), told.end(), "the API server could not ask the webhook")
            carrier = _configuration(evidence, name)
            yield _finding(evidence, carrier or f"ValidatingWebhookConfiguration//{name}", name, service, cited)
            return


def _finding(evidence: Evidence, carrier: str, name: str, service: str | None, cited: tuple[Citation, ...]) -> Finding:
    behind = (service or "").removesuffix(".svc")
    return Finding(
        code="WebhookUnavailable", object=carrier,
        sentence=f"{carrier} cannot go on: admission webhook {name} does not answer, and nothing passes without it.",
        confidence=0.95, citations=(*cited, *_policy(evidence, name)),
        advice=f"Repair the service behind the webhook{' (' + behind + ')' if behind else ''}; what it held up is then made by itself.",
    )  # fmt: skip


def _configuration(evidence: Evidence, name: str) -> str | None:
    for kind in _KINDS:
        for configuration in evidence.of_kind(kind):
            if any(text(webhook, "name") == name for webhook in maps(configuration, "webhooks")):
                return reference(configuration)
    return None


def _policy(evidence: Evidence, name: str) -> tuple[Citation, ...]:
    configuration = evidence.get(_configuration(evidence, name) or "")
    if configuration is None:
        return ()
    path = join("webhooks", Pick("name", name), "failurePolicy")
    return quote(configuration, path, f"{reference(configuration)} fails what it cannot check")
