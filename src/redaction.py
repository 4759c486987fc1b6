"""Redaction: what must never be kept is masked on the way in.

Values of Secrets, literal values of variables that sound secret, and in any text: private keys, JSON web tokens, bearer tokens, cloud keys,
passwords in addresses and in `password=`-like pairs. A mask in a text has the length of what it hides, so that byte offsets stay those of
the original. Applying it twice changes nothing. Knows nothing of evidence nor of diagnosis: any text of others that is kept passes here.
"""

import math
import re
from collections.abc import Mapping
from typing import Any

MASK = "********"
"""Stands for a value that is hidden as a whole, whatever its length."""

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"

_WORDS = (
    r"(?:(?:\b|_)(?:pass|pwd)|password|passwd|passphrase|secret|token|credentials?"
    r"|(?:api|access|secret|private|account|encryption)[_-]?key)"
)
_SECRET_NAME = re.compile(
    r"(?:^|[_\-.])(?:pass|pwd|passphrase|key|credentials?)$|(?:password|passwd|token|secret|apikey|accesskey|privatekey)$", re.IGNORECASE
)
_SECRET_FLAG = re.compile(rf"--?[a-z0-9_-]{{0,64}}?{_WORDS}", re.IGNORECASE)

# Each pattern hides its group `x`. They are linear: no nested repetition, so hostile text costs no more than its length.
_SHAPES = (
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----(?P<x>[^-]{1,16384})(?=-----END|\Z)",
    r"\b(?P<x>eyJ[A-Za-z0-9_-]{8,4096}\.[A-Za-z0-9_-]{4,8192}(?:\.[A-Za-z0-9_-]{0,4096})?)",
    r"(?i:authorization)[\"']?\s{0,2}[:=]\s{0,2}[\"']?(?i:bearer|basic|token)\s{1,2}(?P<x>[^\s\"']{4,8192})",
    r"(?i:\bbearer) {1,2}(?=[A-Za-z._~+/=-]{0,64}\d)(?P<x>[A-Za-z0-9._~+/=-]{8,8192})",
    r"\b(?P<x>(?:AKIA|ASIA)[A-Z0-9]{16})\b",
    r"\b(?P<x>(?:gh[opsur]_|github_pat_|glpat-|xox[abeprs]-|sk-|hf_)[A-Za-z0-9_-]{16,256})",
    r"://[^\s:/@\"'<>]{0,256}:(?P<x>[^\s/@\"'<>]{1,256})@",
)
_PAIRS = (
    rf"(?i:{_WORDS})\\?[\"']?\s{{0,2}}[=:]\s{{0,2}}\\?[\"'](?P<x>[^\"'\r\n\\]{{1,512}})(?=\\?[\"'])",
    rf"(?i:{_WORDS})=(?P<x>[^\s\"'&,;)\]}}]{{1,512}})",
    r"(?i:password|passwd|pwd|api[_-]?key|secret[_-]?key): {0,2}(?P<x>[^\s\"'&,;)\]}]{4,512})",
    r"(?<![\w-])--[a-z0-9-]{0,40}(?:password|passwd|token|secret|api-?key)\s(?P<x>[^\s-]\S{0,512})",
)
_SHAPED = tuple(re.compile(pattern.encode()) for pattern in _SHAPES)
_PAIRED = tuple(re.compile(pattern.encode()) for pattern in _PAIRS)
_STEMS = (b"pass", b"pwd", b"secret", b"token", b"credential", b"key")
"""Without one of these no pair can be there: most logs are spared the slower patterns."""


def redact_bytes(content: bytes) -> bytes:
    """`content` with every secret that can be recognised hidden; its length does not change."""
    lower = content.lower()
    for pattern in (*_SHAPED, *_PAIRED) if any(stem in lower for stem in _STEMS) else _SHAPED:
        content = pattern.sub(_hide, content)
    return content


def _hide(found: re.Match[bytes]) -> bytes:
    start, end = found.span("x")
    whole, first = found[0], found.start()
    hidden = re.sub(rb"[^\r\n]", b"*", found["x"])
    return whole[: start - first] + hidden + whole[end - first :]


def redact_text(content: str) -> str:
    """As `redact_bytes`, for text; what Postgres cannot keep (NUL, half of a surrogate pair) becomes a replacement character."""
    if len(content) < 8 and content.isascii() and content.isprintable():
        return content
    return redact_bytes(content.encode("utf-8", "replace")).decode("utf-8", "replace").replace("\0", "\ufffd")


def redact_object(document: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of a Kubernetes object that holds no secret: values of a Secret are emptied and its keys stay.

    The notes of tools about an earlier state (last-applied-configuration, managedFields) are left out: they repeat what is hidden here.
    """
    clean = {key: _clean(value, key) for key, value in document.items()}
    if clean.get("kind") == "Secret":
        for part in ("data", "stringData"):
            if isinstance(clean.get(part), Mapping):
                clean[part] = dict.fromkeys(clean[part], "")
    if clean.get("kind") == "ConfigMap" and isinstance(clean.get("data"), Mapping):
        clean["data"] = {key: MASK if value and _SECRET_NAME.search(key) else value for key, value in clean["data"].items()}
    metadata = clean.get("metadata")
    if isinstance(metadata, dict):
        metadata.pop("managedFields", None)
        if isinstance(metadata.get("annotations"), dict):
            metadata["annotations"].pop(LAST_APPLIED, None)
    return clean


def _clean(value: Any, key: str = "") -> Any:
    if isinstance(value, str):
        return MASK if value and key and _sounds_secret(key) else redact_text(value)
    if isinstance(value, list):
        return _clean_list(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if not isinstance(value, Mapping):
        return value
    if isinstance(value.get("name"), str) and isinstance(value.get("value"), str) and value["value"] and _SECRET_NAME.search(value["name"]):
        return {**{k: _clean(v, k) for k, v in value.items()}, "value": MASK}
    return {redact_text(k): _clean(v, k) for k, v in value.items()}


def _clean_list(items: list[Any]) -> list[Any]:
    """Items one by one; the word after a flag like --password is hidden."""
    cleaned = [_clean(item) for item in items]
    for place, item in enumerate(items[:-1]):
        follower = items[place + 1]
        if isinstance(item, str) and isinstance(follower, str) and _SECRET_FLAG.fullmatch(item) and not follower.startswith("-"):
            cleaned[place + 1] = MASK
    return cleaned


# Fields of the Kubernetes API that end like a secret and hold a name or a choice, never a secret.
_HARMLESS = frozenset(
    {"key", "secret", "topologyKey", "token", "tokenExpirationSeconds", "serviceAccountToken", "automountServiceAccountToken"}
)


def _sounds_secret(key: str) -> bool:
    return key not in _HARMLESS and _SECRET_NAME.search(key) is not None
