"""Authentication: who calls, and what they may. Static bearer tokens from the settings; with none, every door is closed.

The name of a token is the actor that stands in every row it causes. Pure; knows nothing of
the doors (see `gateway`), nor of the console's cookie.
"""

import hmac
import logging
import re
from dataclasses import dataclass
from hashlib import scrypt, sha256
from typing import Literal, Self, get_args

from suture.errors import AccessDenied, ConfigError, Unauthenticated

log = logging.getLogger(__name__)

Role = Literal["viewer", "operator", "approver"]
"""Each may what the ones before it may: look; hand in and steer; answer proposals."""

ROLES: tuple[Role, ...] = get_args(Role)

_ENTRY = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._@-]{0,62})(?::(?P<role>[^=]*))?=(?P<token>.*)")
_SHORT = 16  # characters: less can be guessed


@dataclass(frozen=True, slots=True)
class Principal:
    name: str
    role: Role

    def may(self, role: Role) -> bool:
        """Whether this role includes the other.

        >>> Principal("ann", "operator").may("viewer"), Principal("ann", "operator").may("approver")
        (True, False)
        """
        return ROLES.index(self.role) >= ROLES.index(role)

    def demand(self, role: Role) -> Self:
        """Raises: AccessDenied that names the role."""
        if not self.may(role):
            raise AccessDenied(f"{self.name} is {self.role}; this needs {role}. SUTURE_API_TOKENS gives roles: {self.name}:{role}=…")
        return self


@dataclass(frozen=True, slots=True)
class Tokens:
    """The configured tokens, as digests: comparing them takes the same time whatever is presented."""

    known: tuple[tuple[bytes, Principal], ...] = ()
    key: bytes = b""
    """Signs the console's cookies. Derived from all tokens: a changed token ends all sessions."""

    @classmethod
    def read(cls, text: str | None) -> Self:
        """Raises: ConfigError that names the entry, never its token."""
        entries = [entry.strip() for entry in re.split(r"[,\n]", text or "") if entry.strip()]
        known = tuple(_entry(entry, number) for number, entry in enumerate(entries, start=1))
        names = [principal.name for _, principal in known]
        if twice := {name for name in names if names.count(name) > 1}:
            raise ConfigError(f"SUTURE_API_TOKENS has more than one token for {', '.join(sorted(twice))}: the name says who acts")
        # Slow on purpose: a cookie must not be a way to guess a token.
        key = scrypt(b"\n".join(sorted(digest for digest, _ in known)), salt=b"suture console", n=1 << 14, r=8, p=1, dklen=32)
        return cls(known, key)

    def identify(self, presented: str) -> Principal | None:
        """Whose token this is; every token is compared."""
        digest = sha256(presented.encode("utf-8", "surrogateescape")).digest()
        found = [principal for known, principal in self.known if hmac.compare_digest(known, digest)]
        return found[0] if found else None

    def named(self, name: str) -> Principal | None:
        return {principal.name: principal for _, principal in self.known}.get(name)


def _entry(entry: str, number: int) -> tuple[bytes, Principal]:
    found = _ENTRY.fullmatch(entry)
    if not found or not found["token"].strip():
        raise ConfigError(f"SUTURE_API_TOKENS, entry {number}: write name=token or name:role=token")
    role = found["role"] or "operator"
    if role not in ROLES:
        raise ConfigError(f"SUTURE_API_TOKENS, entry {number}: {found['name']} has the role {role!r}; there are {', '.join(ROLES)}")
    token = found["token"].strip()
    if len(token) < _SHORT:
        log.warning("the token of %s has fewer than %d characters: it can be guessed", found["name"], _SHORT)
    return sha256(token.encode()).digest(), Principal(found["name"], role)


def identify(tokens: Tokens, presented: str | None) -> Principal:
    """Raises: Unauthenticated that says which way is out."""
    if not tokens.known:
        raise Unauthenticated("No token is configured, so nobody is let in. Set SUTURE_API_TOKENS.")
    if not presented:
        raise Unauthenticated("Send the header `Authorization: Bearer TOKEN`.")
    # Starlette reads headers as Latin-1; the bytes that came are what counts.
    principal = tokens.identify(presented.encode("latin-1", "replace").decode("utf-8", "surrogateescape"))
    if principal is None:
        raise Unauthenticated("This token is not known.")
    return principal
