"""An address that cannot be used refuses to start, in words that name it."""

import socket

import pytest

from suture.api.main import listen
from suture.errors import ConfigError


@pytest.mark.parametrize(
    "address", ["", "8080", ":8080", "localhost", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:70000", "no.such.host.invalid:80"]
)
def test_a_wrong_address_is_named(address):
    with pytest.raises(ConfigError, match=r"SUTURE_API_ADDRESS is "):
        listen(address)


def test_a_port_that_is_taken_is_named():
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(ConfigError, match="where nobody can listen"):
        listen(f"127.0.0.1:{taken.getsockname()[1]}")


@pytest.mark.parametrize(("address", "family"), [("127.0.0.1:0", socket.AF_INET), ("[::1]:0", socket.AF_INET6)])
def test_port_zero_takes_a_free_one(address, family):
    try:
        listener = listen(address)
    except ConfigError:
        if family is not socket.AF_INET6:
            raise
        pytest.skip("this machine has no IPv6")
    with listener:
        assert listener.family == family
        assert listener.getsockname()[1] > 0
