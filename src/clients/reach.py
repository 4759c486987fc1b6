"""Reach: which addresses a request of somebody else's may go to. Pure; asks no name server and opens nothing (see `http`).

Whoever may hand in a request must not read, through us, what only this process can reach: metadata services, the API server, databases,
neighbours. So public addresses are open, all others are closed until a setting allows them.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Self

from suture.errors import AccessDenied, ConfigError

Address = IPv4Address | IPv6Address

_NAME = re.compile(r"(?:\*\.)?[a-z0-9_](?:[a-z0-9_.-]{0,252}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9.]+")
_CLOSED = tuple(map(ip_network, ("192.0.0.0/24", "2001::/23", "2002::/16", "64:ff9b:1::/48", "fec0::/10")))
"""What Python calls global, or older ones do: protocol assignments a metadata service among them, IPv6 that carries an IPv4 address."""


@dataclass(frozen=True, slots=True)
class Reach:
    networks: tuple[IPv4Network | IPv6Network, ...] = ()
    names: tuple[str, ...] = ()

    @classmethod
    def read(cls, entries: Iterable[str]) -> Self:
        """Addresses, CIDRs, host names, and `*.domain` for all names below one.

        Raises: ConfigError that names the entry.
        """
        networks: list[IPv4Network | IPv6Network] = []
        names: list[str] = []
        for entry in entries:
            try:
                networks.append(ip_network(entry.strip("[]")))
            except ValueError:
                names.append(_name(entry))
        return cls(tuple(networks), tuple(names))

    def check(self, host: str, addresses: Iterable[str]) -> None:
        """Every address that `host` has must be open: which one is taken is nobody's choice.

        Raises: AccessDenied that names the first that is not.
        """
        for text in addresses:
            if not self._is_open(host.lower().rstrip("."), _plain(text)):
                raise AccessDenied(
                    f"The host {host} has the address {text}, which is no public one: the setting SUTURE_HTTP_ALLOW does not allow it."
                )

    def _is_open(self, host: str, address: Address) -> bool:
        if is_public(address) or any(address in network for network in self.networks):
            return True
        # A name is somebody else's word: it never opens the link, where clouds keep their credentials.
        return not address.is_link_local and any(_covers(name, host) for name in self.names)


def is_public(address: Address) -> bool:
    """Whether anybody on the Internet could reach it.

    >>> [is_public(ip_address(a)) for a in ("8.8.8.8", "10.0.0.1", "169.254.169.254", "224.0.0.1")]
    [True, False, False, False]
    """
    closed = address.is_multicast or address.is_reserved or any(address in network for network in _CLOSED)
    return address.is_global and not closed


def _plain(text: str) -> Address:
    """The address itself: not its form for sockets of the other family, and without a zone."""
    address = ip_address(text.partition("%")[0])
    return address.ipv4_mapped or address if isinstance(address, IPv6Address) else address


def _covers(name: str, host: str) -> bool:
    return host.endswith(name[1:]) if name.startswith("*.") else host == name


def _name(entry: str) -> str:
    name = entry.lower().rstrip(".")
    if not _NAME.fullmatch(name) or _NUMBER.fullmatch(name):
        raise ConfigError(
            f"SUTURE_HTTP_ALLOW has {entry!r}: write addresses, CIDRs (10.1.0.0/16), hosts, or *.domain, separated by commas."
        )
    return name
