"""An address of Postgres that is none is refused before it is used; what is said of one never holds its password."""

import doctest
import re
import socket

import pytest

from suture.engine import Database, address, migrate
from suture.engine.address import DIRECT, check, refused, where
from suture.errors import ConfigError

SECRET = "sesame"


@pytest.mark.parametrize(
    "url",
    [
        "postgresql:///suture",
        "postgresql://me@db/suture",
        "postgres://me:sesame@db.example:5433/suture?sslmode=require",
        "postgresql://me:ses%40me@[::1]:5432/suture",
        "postgresql://a:1,b:2/suture?target_session_attrs=read-write",
        "postgresql:///suture?host=/run/pg&port=5433&user=me",
        "postgresql:///suture?host=%2Frun%2Fpg",
        "postgresql://db",
    ],
)
def test_what_is_an_address_is_taken(url: str):
    check(url)


@pytest.mark.parametrize(
    "url",
    [
        "mysql://me:sesame@db/suture",
        "postgresql://me:12@sesame@db/suture",
        "postgresql://me:12/sesame@db/suture",
        "postgresql://me:sesame/12@db/suture",
        "postgresql://me:sesame#12@db/suture",
        "postgresql://me:12?sesame@db/suture",
        "postgresql://me:sesame[12@db/suture",
        "postgresql://me:sesame@db:54x2/suture",
        "postgresql://me:sesame@db:99999/suture",
        "postgresql://me:sesame@db:0/suture",
        "postgresql:///suture?host=db&port=sesame",
    ],
)
async def test_what_is_none_is_refused_and_not_repeated(url: str):
    for act in (Database(url).open, Database("postgresql:///suture", direct=url).open, lambda: migrate(url)):
        with pytest.raises(ConfigError, match=r"SUTURE_DATABASE_(URL|DIRECT) is no address of Postgres: .*%40") as told:
            await act()
        assert SECRET not in str(told.value)
        assert told.value.__cause__ is None


def test_each_of_two_addresses_is_called_by_its_own_setting():
    with pytest.raises(ConfigError, match=f"^{DIRECT} is no"):
        check("nothing", DIRECT)
    assert DIRECT in str(refused(ConnectionRefusedError(), "postgresql://db/x", DIRECT))


@pytest.mark.parametrize(
    ("error", "way"),
    [
        (ConnectionRefusedError(111, "Connect call failed"), "start it, or set SUTURE_DATABASE_URL"),
        (FileNotFoundError(2, "No such file or directory"), "start it, or set SUTURE_DATABASE_URL"),
        (socket.gaierror(-2, "Name or service not known"), "is not known .*: correct the host in SUTURE_DATABASE_URL"),
        (TimeoutError(), "SUTURE_DATABASE_URL names the right host and port, and whether a firewall"),
        (PermissionError(13, "Permission denied"), "see SUTURE_DATABASE_URL, and the server's log"),
        (ValueError("invalid literal for int(): 'sesame'"), "the address cannot be read"),
    ],
)
def test_a_refusal_names_the_place_the_setting_and_a_way_out(error: Exception, way: str):
    told = refused(error, "postgresql://me:sesame@db.example/x")
    assert re.search(f"^Postgres at db\\.example .*{way}", told.message)
    assert SECRET not in told.message


def test_what_is_said_of_places_is_so():
    assert doctest.testmod(address).failed == 0
    assert where("postgresql://me:sesame@[::1]:5432/x") == "[::1]:5432"
