"""HTTP: one request to an address that may be reached, and the first bytes of its answer. Retries nothing, follows nothing.

The name is resolved once, every address is checked (see `reach`), and the connection goes to what was checked: a name server that changes
its mind in between changes nothing. What an answer means is the caller's to say.
"""

import asyncio
import json
import socket
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from suture.clients.mounted import Mounted
from suture.clients.reach import Reach
from suture.errors import InvalidRequest, ServiceUnavailable

_CONNECT = 10.0  # seconds: a host that takes no connection by then is away
_CHUNK = 16 << 10


@dataclass(frozen=True, slots=True)
class Secret:
    """A header's value that is named and not told: `prefix` and the mounted secret."""

    name: str
    prefix: str = ""


@dataclass(frozen=True, slots=True)
class Call:
    method: str
    url: str
    headers: Mapping[str, str | Secret]
    body: bytes | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    """By lower-case name; of a repeated one the last."""
    body: bytes
    cut: bool
    """Whether there was more than was wanted."""


class Outbound:
    """The way out: `reach` says where to, `secrets` what may be carried there."""

    def __init__(self, reach: Reach, secrets: Mounted) -> None:
        self._reach, self._secrets = reach, secrets

    async def send(self, call: Call, *, within: timedelta, keep: int) -> Reply:
        """Send once; at most `keep` bytes of the body are read, and the revealed secrets are hidden in what came back.

        Raises: AccessDenied, NotFound and InvalidRequest before anything is sent. ServiceUnavailable when no answer came in time.
        """
        url = _address(call.url)
        origin = str(url.origin())
        secrets = {name: self._secrets.reveal(value.name, to=origin) for name, value in call.headers.items() if isinstance(value, Secret)}
        headers = {name: value.prefix + secrets[name] if isinstance(value, Secret) else value for name, value in call.headers.items()}
        try:
            async with asyncio.timeout(within.total_seconds()):
                return await self._send(call, url, headers, keep, list(secrets.values()))
        except TimeoutError:
            raise ServiceUnavailable(f"{origin} has not answered within {within.total_seconds():g} s.") from None
        except aiohttp.InvalidURL:
            raise InvalidRequest(f"{origin} is no address: write an IPv4 address as four numbers.") from None
        except (aiohttp.ClientError, OSError) as error:
            raise ServiceUnavailable(f"{origin} does not answer as it should: {_said(error)}.") from None

    async def _send(self, call: Call, url: URL, headers: Mapping[str, str], keep: int, secrets: Sequence[str]) -> Reply:
        pinned = Pinned(await self._resolve(url))
        connector = aiohttp.TCPConnector(resolver=pinned, ssl=self._trust, use_dns_cache=False, force_close=True)
        async with (
            aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT),
                auto_decompress=False,  # a small body may unpack to gigabytes
                skip_auto_headers=("Content-Type",),
                trust_env=False,  # neither a proxy, which would resolve the name anew, nor a .netrc
            ) as session,
            session.request(
                call.method, url, headers={"Accept-Encoding": "identity", **headers}, data=call.body, allow_redirects=False
            ) as response,
        ):
            body = await _first(response, keep + max(map(len, secrets), default=0))
            hidden = _hidden(body, secrets)
            told = {name.lower(): _hidden(value.encode("utf-8", "replace"), secrets).decode() for name, value in response.headers.items()}
            return Reply(response.status, told, hidden[:keep], cut=len(hidden) > keep)

    async def _resolve(self, url: URL) -> list[ResolveResult]:
        host, port = url.raw_host or "", url.port or 0
        try:
            found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise ServiceUnavailable(f"The host {host} is not found: {_said(error)}.") from None
        self._reach.check(host, (str(place[0]) for *_, place in found))
        return [
            ResolveResult(hostname=host, host=str(place[0]), port=port, family=family, proto=0, flags=socket.AI_NUMERICHOST)
            for family, *_, place in found
        ]

    @cached_property
    def _trust(self) -> ssl.SSLContext:
        return ssl.create_default_context()


class Pinned(AbstractResolver):
    """Knows one host, by the addresses that were checked."""

    def __init__(self, known: list[ResolveResult]) -> None:
        self._known = known

    async def resolve(self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET) -> list[ResolveResult]:
        """Raises: OSError for any other host."""
        chosen = [one for one in self._known if one["hostname"] == host and family in (socket.AF_UNSPEC, one["family"])]
        if not chosen:
            raise OSError(f"{host} was not checked")
        return chosen

    async def close(self) -> None:
        """Nothing is held."""


async def _first(response: aiohttp.ClientResponse, limit: int) -> bytes:
    """The first `limit` bytes and one more where there is one; hardly more than that is ever held."""
    body = bytearray()
    async for chunk in response.content.iter_chunked(_CHUNK):
        body += chunk
        if len(body) > limit:
            break
    return bytes(body[: limit + 1])


def _hidden(text: bytes, secrets: Sequence[str]) -> bytes:
    """`text` with each secret masked, also where a server repeats it inside of JSON; its length stays."""
    for secret in secrets:
        for form in {secret, json.dumps(secret)[1:-1]}:
            text = text.replace(form.encode(), b"*" * len(form))
    return text


def _address(text: str) -> URL:
    try:
        url = URL(text)
        port = url.port
    except ValueError as error:
        raise InvalidRequest(f"The address of the request cannot be read: {_said(error)}.") from None
    if url.scheme not in ("http", "https") or not url.raw_host or port is None or url.raw_user is not None or url.raw_password is not None:
        raise InvalidRequest("The address of the request must be http(s)://host/…, without a user or password.")
    return url


def _said(error: Exception) -> str:
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__).rstrip(".")
