"""The address of Postgres: checked before it is used, and what to look at when nobody lets us in there.

Names the setting that holds the address and where it leads, never the password. Pure: `database` connects, and translates all other errors.
"""

import re
import socket
import ssl
from urllib.parse import parse_qs, unquote, urlsplit

from suture.errors import ConfigError, DatabaseUnavailable

URL, DIRECT = "SUTURE_DATABASE_URL", "SUTURE_DATABASE_DIRECT"

_OF_THE_SERVER = {
    "57P03": "Postgres at {place} is not ready ({said}): {setting} leads to it, so wait and try again.",
    "28": "Postgres at {place} refuses the login ({said}): correct the user and the password in {setting}, or let that role in "
    "(`alter role`, pg_hba.conf).",
    "3D000": "Postgres at {place} lacks the database ({said}): create it and run `suture migrate`, or correct its name in {setting}.",
    "53300": "Postgres at {place} has no connection left ({said}): lower SUTURE_DATABASE_POOL, raise `max_connections`, or put a "
    "pooler in between.",
}
"""By the beginning of SQLSTATE."""

_OF_THE_SYSTEM: tuple[tuple[type[BaseException] | tuple[type[BaseException], ...], str], ...] = (
    (socket.gaierror, "Postgres at {place} is not known ({said}): correct the host in {setting}, or the name service."),
    (
        (ConnectionRefusedError, FileNotFoundError),
        "Postgres at {place} takes no connections, nobody listens there ({said}): start it, or set {setting} to where it listens.",
    ),
    (
        TimeoutError,
        "Postgres at {place} gives no answer in time: see whether {setting} names the right host and port, and whether a firewall or a "
        "network policy is between.",
    ),
    (ssl.SSLError, "Postgres at {place} cannot be spoken to by TLS ({said}): see `sslmode` and the certificates in {setting}."),
)
_OF_ANYTHING = "Postgres at {place} cannot be connected to ({kind}: {said}): see {setting}, and the server's log."

_FORM = "postgresql://USER:PASSWORD@HOST:PORT/DATABASE"


def check(url: str, setting: str = URL) -> None:
    """Raises: ConfigError for what is no address; its text is not repeated, since a password may have been taken for another part of it."""
    try:
        parts = urlsplit(url)
        query = parse_qs(parts.query, strict_parsing=True) if parts.query else {}
    except ValueError:
        raise _unreadable(setting, "it cannot be parsed") from None
    if parts.scheme not in {"postgresql", "postgres"}:
        raise _unreadable(setting, "it does not start with postgresql://")
    if parts.fragment or parts.netloc.count("@") > 1 or ("@" in parts.path and "@" not in parts.netloc):
        raise _unreadable(setting, "its parts cannot be told apart")
    ports = [_port(one) for one in _hosts(parts.netloc)] + [one for value in query.get("port", []) for one in value.split(",")]
    if not all(re.fullmatch(r"\d{0,5}", port) and int(port or 1) in range(1, 65536) for port in ports):
        raise _unreadable(setting, "its port is no number from 1 to 65535")


def refused(error: BaseException, url: str, setting: str = URL) -> DatabaseUnavailable:
    """What it means to a person that no connection to `url` was made, and the way out."""
    code = getattr(error, "sqlstate", None) or ""
    of_server = (text for start, text in _OF_THE_SERVER.items() if code.startswith(start))
    of_system = (text for kinds, text in _OF_THE_SYSTEM if isinstance(error, kinds))
    text = next(of_server, None) or next(of_system, _OF_ANYTHING)
    return DatabaseUnavailable(text.format(place=where(url), said=_first_line(error), kind=type(error).__name__, setting=setting))


def where(url: str) -> str:
    """Host and port alone.

    >>> where("postgresql://me:secret@db.example:5433/orders"), where("postgresql:///orders?host=/run/pg&port=5433&password=secret")
    ('db.example:5433', '/run/pg:5433')
    >>> where("postgresql:///orders")
    'its usual place on this machine'
    """
    parts = urlsplit(url)
    query = parse_qs(parts.query)
    host, port = parts.netloc.rpartition("@")[2] or query.get("host", [""])[-1], query.get("port", [""])[-1]
    return unquote(host) + (f":{port}" if port and host else "") or "its usual place on this machine"


def _hosts(netloc: str) -> list[str]:
    return netloc.rpartition("@")[2].split(",")


def _port(host: str) -> str:
    return host.rpartition("]")[2].partition(":")[2]


def _unreadable(setting: str, why: str) -> ConfigError:
    return ConfigError(
        f"{setting} is no address of Postgres: {why}. Write {_FORM}, with each of @ : / ? # [ ] % in the password as %XX (@ is %40). "
        "The value is not shown, since it may hold the password."
    )


def _first_line(error: BaseException) -> str:
    # What the server and the driver say names hosts and roles, never the password; what Python says of a text it cannot read repeats that.
    if type(error) in {ValueError, OverflowError}:
        return "the address cannot be read"
    return str(error).splitlines()[0] if str(error) else "no details"
