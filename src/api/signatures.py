"""Signatures: whether the bytes of a webhook come from who holds the secret. Pure; never raises, whatever the header holds."""

import hmac
from collections.abc import Sequence

from suture.errors import ConfigError


def read_secrets(text: str | None) -> tuple[bytes, ...]:
    """Signing secrets, separated by commas; none when nothing is configured.

    Raises: ConfigError for an empty one: everybody could sign with it.
    """
    if text is None:
        return ()
    secrets = [part.strip() for part in text.split(",")]
    if not all(secrets):
        raise ConfigError("SUTURE_API_PAGERDUTY_SECRET holds an empty secret, with which anybody could sign: remove it, or the stray comma")
    return tuple(secret.encode() for secret in secrets)


def is_signed(body: bytes, header: bytes, secrets: Sequence[bytes]) -> bool:
    """Whether one of the `v1=` signatures in `header` is of `body` with one of `secrets`.

    Source: PagerDuty, "Verifying Signatures": hex HMAC-SHA256 of the raw body; several while a secret is rotated, one match is enough.
    Bytes are compared: on text, compare_digest refuses what is not ASCII. Each pair is compared, so that time tells nothing.
    """
    given = [entry.strip() for entry in header.split(b",")]
    wanted = [b"v1=" + hmac.digest(secret, body, "sha256").hex().encode() for secret in secrets]
    matches = [hmac.compare_digest(one, other) for one in given for other in wanted]
    return any(matches)
