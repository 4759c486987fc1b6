"""An address that cannot be used refuses to start, in words that name it."""

import socket
from pathlib import Path

import pytest

from suture.api.main import listen
from suture.errors import ConfigError

SIX = Path("/proc/net/if_inet6")
HERE = ["127.0.0.1:0", *(["[::1]:0"] if SIX.exists() and f"{1:032x}" in SIX.read_text() else [])]


@pytest.mark.parametrize(
    "address", ["", "8080", ":8080", "localhost", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:70000", "no.such.host.invalid:80"]
)
def test_a_wrong_address_is_named(address):
    with pytest.raises(ConfigError, match=r"SUTURE_API_ADDRESS is "):
        listen(address)


def test_a_port_that_is_taken_is_named():
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(ConfigError, match="where nobody can listen"):
        listen(f"127.0.0.1:{taken.getsockname()[1]}")


@pytest.mark.parametrize("address", HERE)
def test_port_zero_takes_a_free_one(address):
    with listen(address) as listener:
        assert listener.getsockname()[1] > 0
