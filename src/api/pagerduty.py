"""PagerDuty's V3 envelopes: which event it is, and which workload an incident is about. Pure; the door is in `webhooks`.

Everything in an envelope is untrusted text: what Postgres cannot keep is replaced, what is too long is cut, and nothing here raises.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from suture.api.bodies import decode
from suture.errors import InvalidRequest
from suture.remediation.incident import Incident, Workload

PROVIDER = "pagerduty"
TRIGGERED, RESOLVED = "incident.triggered", "incident.resolved"

KINDS = ("Deployment", "StatefulSet", "DaemonSet", "CronJob", "Job")
"""Kinds that an incident can name; the top of an owner chain, whatever case the alert writes them in."""

_LABEL = r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?"
_NAME = rf"{_LABEL}(?:\.{_LABEL})*"
_REFERENCE = re.compile(rf"(?<![\w/.-])({'|'.join(KINDS)})/({_LABEL})/({_NAME})(?![\w/-])", re.IGNORECASE)
_UNKEEPABLE = re.compile("[\0\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Event:
    id: str
    type: str
    data: Mapping[str, Any]

    @property
    def reference(self) -> str:
        """The incident's own id."""
        return text(self.data.get("id"), 255)


def read(body: bytes) -> Event | None:
    """The event in `body`; None when it is no V3 envelope."""
    try:
        envelope = decode(body)
    except InvalidRequest:
        return None
    event = envelope.get("event") if isinstance(envelope, dict) else None
    if not isinstance(event, dict) or not isinstance(event.get("event_type"), str) or not isinstance(event.get("data"), dict):
        return None
    return Event(text(event.get("id"), 255), text(event["event_type"], 255), event["data"])


def workload(event: Event) -> Workload | None:
    """What the incident is about: as its details name it, else as `Kind/namespace/name` in its key or title."""
    named = (_detailed(details) for details in _details(event.data))
    spelled = (_spelled(text(event.data.get(field), 1024)) for field in ("incident_key", "title"))
    return next((found for source in (named, spelled) for found in source if found), None)


def incident(event: Event, about: Workload) -> Incident:
    """The input of the remediation."""
    title = text(event.data.get("title"), 1024)
    return Incident(workload=about, title=title, signal="pagerduty", reference=event.reference, url=text(event.data.get("html_url"), 2048))


def delivery_id(header: bytes | None, body: bytes) -> str:
    """The key by which a repeated delivery is known: PagerDuty's own, or a digest where there is none that can be kept."""
    given = text((header or b"").decode("latin-1").strip(), 256)
    return given if 0 < len(given) <= 255 else digest(body)


def digest(body: bytes) -> str:
    return f"sha256:{hashlib.sha256(body).hexdigest()}"


def text(value: object, limit: int) -> str:
    r"""`value` as a text that can be kept; empty when it is none.

    >>> text("a\0b", 10), text(None, 10), text("abc", 2)
    ('a\ufffdb', '', 'ab')
    """
    return _UNKEEPABLE.sub("\N{REPLACEMENT CHARACTER}", value)[:limit] if isinstance(value, str) else ""


def _details(data: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Where monitoring tools leave their fields: the incident's details first, then those of its alerts."""
    alerts = data.get("alerts")
    for holder in (data, *(alerts if isinstance(alerts, list) else ())):
        if isinstance(holder, dict):
            body = holder.get("body")
            places = (body.get("details") if isinstance(body, dict) else None, holder.get("custom_details"), holder.get("details"))
            yield from (place for place in places if isinstance(place, dict))


def _detailed(details: Mapping[str, Any]) -> Workload | None:
    fields = {str(name).lower(): text(value, 1024).strip() for name, value in details.items()}
    cluster = fields.get("cluster") or "default"
    if spelled := _spelled(fields.get("workload", "")):
        return _workload(spelled.kind, spelled.namespace, spelled.name, cluster)
    named = ((kind, fields[kind.lower()]) for kind in KINDS if fields.get(kind.lower()))
    kind, name = next(named, (fields.get("kind", ""), fields.get("workload") or fields.get("name", "")))
    return _workload(kind, fields.get("namespace", ""), name, cluster)


def _spelled(words: str) -> Workload | None:
    found = _REFERENCE.search(words)
    return _workload(*found.groups()) if found else None


def _workload(kind: str, namespace: str, name: str, cluster: str = "default") -> Workload | None:
    """None where a name cannot be one in Kubernetes: the delivery is then kept as unmatched, for a person."""
    known = next((known for known in KINDS if known.lower() == kind.lower()), None)
    fits = re.fullmatch(_LABEL, namespace) and re.fullmatch(_NAME, name) and len(name) <= 253 and len(cluster) <= 253
    return Workload(kind=known, namespace=namespace, name=name, cluster=cluster) if known and fits else None
