"""The session of a person at the console: a signed cookie and nothing on the server. Forms carry a second token, bound to the cookie.

A session ends after half a day, when the token is taken away, or when any token changes. Pure.
"""

import hmac
from dataclasses import dataclass
from urllib.parse import urlsplit

from suture.api.authentication import Principal, Tokens

COOKIE = "suture_session"
LIFETIME = 12 * 3600  # seconds: a shift, and a handover


@dataclass(frozen=True, slots=True)
class Visitor:
    principal: Principal
    form: str
    """The token that each form of this session carries."""


def seal(tokens: Tokens, principal: Principal, *, now: int) -> str:
    """The cookie's value."""
    return f"{now}.{_sign(tokens.key, f'session {now} {principal.name}')}.{principal.name}"


def unseal(tokens: Tokens, cookie: str, *, now: int) -> Visitor | None:
    """Who holds this cookie; None when it is forged, too old, or its token was taken away."""
    issued, _, rest = cookie.partition(".")
    mac, _, name = rest.partition(".")
    principal = tokens.named(name)
    if not issued.isascii() or not issued.isdigit() or len(issued) > 12 or principal is None:
        return None
    genuine = hmac.compare_digest(mac.encode(), _sign(tokens.key, f"session {issued} {name}").encode())
    if not genuine or not 0 <= now - int(issued) <= LIFETIME:
        return None
    return Visitor(principal, form_token(tokens, cookie))


def form_token(tokens: Tokens, cookie: str) -> str:
    return _sign(tokens.key, f"form {cookie}")


def is_form_of(visitor: Visitor, presented: str) -> bool:
    return hmac.compare_digest(visitor.form.encode(), presented.encode())


def is_same_origin(origin: str | None, fetch_site: str | None, host: str | None) -> bool:
    """Whether a page of ours sent the form. Browsers always tell; who tells neither is refused.

    >>> is_same_origin("https://a.example", None, "a.example"), is_same_origin("null", None, "a.example")
    (True, False)
    """
    if origin is None:
        return fetch_site == "same-origin"
    return host is not None and urlsplit(origin).netloc == host


def _sign(key: bytes, text: str) -> str:
    return hmac.digest(key, text.encode("utf-8", "surrogateescape"), "sha256").hex()
