"""Citations: quoted pieces of evidence, made by looking up and checked by looking up again.

A cause never writes a quoted value by hand: `quote`, `quote_log` and `quote_event` read it. `check` is the judge of every citation, whoever
made it, and looks at the frozen evidence alone.
"""

import json
import re

from suture.remediation.evidence import Evidence, Log, Note, reference
from suture.remediation.incident import Citation, Finding
from suture.remediation.paths import ABSENT, Object, lookup

_BYTES = re.compile(r"bytes (\d{1,12})-(\d{1,12})")
LONGEST_QUOTE = 600
"""Bytes of a log that one citation quotes at most: enough for a sentence, no more than a person reads."""


def check(evidence: Evidence, citation: Citation) -> bool:
    """Whether the quoted value stands where the citation says, exactly: true is not 1, and 1 is not "1"."""
    if citation.object.startswith(("log/", "note/")):
        return _check_bytes(evidence, citation)
    document = evidence.get(citation.object)
    try:
        found = ABSENT if document is None else lookup(document, citation.path)
    except ValueError:
        return False
    return found is not ABSENT and _printed(found) == _printed(citation.value)


def _check_bytes(evidence: Evidence, citation: Citation) -> bool:
    content, place = evidence.source(citation.object), _BYTES.fullmatch(citation.path)
    if content is None or place is None:
        return False
    start, end = int(place[1]), int(place[2])
    return start < end <= len(content) and content[start:end].decode("utf-8", "replace") == citation.value


def _printed(value: object) -> str:
    return json.dumps(value, sort_keys=True)


def proven(evidence: Evidence, finding: Finding) -> bool:
    """Whether a finding quotes anything, and all of it is true."""
    return bool(finding.citations) and all(check(evidence, citation) for citation in finding.citations)


def quote(document: Object, path: str, why: str) -> tuple[Citation, ...]:
    """The citation of what stands at `path`; none where nothing does."""
    value = lookup(document, path)
    return () if value is ABSENT else (Citation(object=reference(document), path=path, value=value, why=why),)


def quote_event(event: Object, why: str) -> tuple[Citation, ...]:
    """The citation of an event's message."""
    return quote(event, "message" if isinstance(event.get("message"), str) else "note", why)


def quote_bytes(source: Log | Note, start: int, end: int, why: str) -> tuple[Citation, ...]:
    """The citation of a range of a log or a note, cut where it is longer than a person reads."""
    end = min(end, start + LONGEST_QUOTE)
    value = source.content[start:end].decode("utf-8", "replace")
    return (Citation(object=source.ref, path=f"bytes {start}-{end}", value=value, why=why),)
