"""A request of somebody else's reaches public addresses, and of the others only what a setting opens."""

import pytest

from suture.clients.reach import Reach
from suture.errors import AccessDenied, ConfigError

CLOSED = (
    *("127.0.0.1", "127.9.9.9", "0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.100.100.200", "192.0.0.192"),
    *("198.18.0.1", "224.0.0.1", "255.255.255.255", "240.0.0.1", "::1", "::", "fe80::1", "fe80::1%eth0", "fd00:ec2::254", "ff02::1"),
    *("::ffff:169.254.169.254", "::ffff:10.0.0.1", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1", "2001:0:a9fe::1", "fec0::1", "::7f00:1"),
)


@pytest.mark.parametrize("address", CLOSED)
def test_an_address_that_is_not_public_is_closed_and_named(address: str):
    with pytest.raises(AccessDenied, match=rf"host anything.* has the address {address}.*SUTURE_HTTP_ALLOW"):
        Reach().check("anything.example", [address])


@pytest.mark.parametrize("address", ["8.8.8.8", "1.1.1.1", "2606:4700::1111", "::ffff:8.8.8.8"])
def test_a_public_address_is_open(address: str):
    Reach().check("anything.example", [address])


def test_one_closed_address_among_open_ones_closes_the_host():
    with pytest.raises(AccessDenied, match=r"10\.0\.0\.1"):
        Reach().check("both.example", ["8.8.8.8", "10.0.0.1"])


def test_a_network_opens_its_addresses_and_no_others():
    reach = Reach.read(["10.1.0.0/16", "192.168.7.7", "[fd00::]/64".replace("[", "").replace("]", "")])
    reach.check("db.example", ["10.1.2.3", "192.168.7.7", "fd00::5", "::ffff:10.1.9.9"])
    for closed in ("10.2.0.1", "192.168.7.8", "fd01::5"):
        with pytest.raises(AccessDenied):
            reach.check("db.example", [closed])


def test_a_host_opens_its_private_addresses_but_never_the_link():
    reach = Reach.read(["Hooks.shop.example.", "*.svc.cluster.local"])
    reach.check("hooks.shop.example", ["10.9.9.9"])
    reach.check("HOOKS.shop.example.", ["127.0.0.1"])
    reach.check("web.shop.svc.cluster.local", ["10.96.0.7"])
    for host, address in (
        ("hooks.shop.example", "169.254.169.254"),
        ("hooks.shop.example", "fe80::1"),
        ("other.shop.example", "10.9.9.9"),
        ("svc.cluster.local", "10.9.9.9"),
        ("evilsvc.cluster.local", "10.9.9.9"),
    ):
        with pytest.raises(AccessDenied):
            reach.check(host, [address])
    Reach.read(["169.254.0.0/16"]).check("metadata.example", ["169.254.169.254"])


@pytest.mark.parametrize("entry", ["10.0.0.0/33", "10.1", "http://a.example", "a b", "*", "*.", "10.0.0.1/8"])
def test_an_entry_that_means_nothing_is_named(entry: str):
    with pytest.raises(ConfigError, match="SUTURE_HTTP_ALLOW has"):
        Reach.read([entry])
