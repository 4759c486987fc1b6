"""WebhookUnavailable: an admission webhook does not answer, and its policy is to fail. The workload is innocent."""

import re
from collections.abc import Iterator

from suture.remediation.admission import Refusal, refusals
from suture.remediation.citations import quote
from suture.remediation.evidence import reference
from suture.remediation.incident import Citation, Finding
from suture.remediation.paths import Pick, join, maps, text
from suture.remediation.sightings import Scene

CODES = ("WebhookUnavailable",)

_CALL = re.compile(r'failed calling webhook "(?P<name>[^"]+)"(?::.*?https?://(?P<service>[^/\s:"?]+))?', re.DOTALL)
_KINDS = ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration")


def findings(scene: Scene) -> Iterator[Finding]:
    for refusal in refusals(scene, _CALL):
        service = (refusal.found["service"] or "").removesuffix(".svc")
        yield Finding(
            code="WebhookUnavailable", object=refusal.owner,
            sentence=f"{refusal.owner} has no pod: admission webhook {refusal.found['name']} does not answer, and nothing passes without it.",
            confidence=0.95, citations=(*refusal.cite("the API server could not ask the webhook"), *_policy(refusal)),
            advice=f"Repair the service behind the webhook{' (' + service + ')' if service else ''}; the pods are then created by themselves.",
        )  # fmt: skip


def _policy(refusal: Refusal) -> tuple[Citation, ...]:
    for kind in _KINDS:
        for configuration in refusal.evidence.of_kind(kind):
            for webhook in maps(configuration, "webhooks"):
                if text(webhook, "name") == refusal.found["name"]:
                    path = join("webhooks", Pick("name", text(webhook, "name")), "failurePolicy")
                    return quote(configuration, path, f"{reference(configuration)} fails what it cannot check")
    return ()
