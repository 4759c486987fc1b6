"""A room is private, and a dead one does not stay."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from suture.cli.room import room, seize, sweep

OCCUPANT = """
import sys, time
from pathlib import Path
from suture.cli.room import room
with room(Path(sys.argv[1]), "mine-") as own:
    (own.path / "data").mkdir()
    (own.path / "data" / "row").write_text("1")
    print(own.path, flush=True)
    time.sleep(60)
"""


def occupied(root: Path) -> tuple[subprocess.Popen[str], Path]:
    owner = subprocess.Popen([sys.executable, "-c", OCCUPANT, str(root)], stdout=subprocess.PIPE, text=True)
    with owner.stdout:
        return owner, Path(owner.stdout.readline().strip())


def test_a_room_is_closed_to_others_and_goes_at_the_end(tmp_path: Path):
    with room(tmp_path, "mine-") as own:
        (own.path / "file").write_text("x")
        assert own.path.stat().st_mode & 0o777 == 0o700
    assert list(tmp_path.iterdir()) == []


def test_the_room_of_a_killed_process_is_removed_by_the_next(tmp_path: Path):
    owner, left = occupied(tmp_path)
    owner.send_signal(signal.SIGKILL)
    owner.wait(10)
    assert (left / "data" / "row").exists()
    with room(tmp_path, "mine-"):
        assert not left.exists()


def test_the_room_of_a_living_process_stays(tmp_path: Path):
    owner, theirs = occupied(tmp_path)
    try:
        with room(tmp_path, "mine-"):
            pass
        assert (theirs / "data" / "row").exists()
    finally:
        owner.kill()
        owner.wait(10)


def test_a_child_that_inherits_the_lock_keeps_the_room_in_use(tmp_path: Path):
    left = tmp_path / "mine-1"
    left.mkdir()
    lock = seize(left)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=[lock]) as child:
        os.close(lock)
        sweep(tmp_path, "mine-")
        assert left.exists()
        child.communicate(b"\n", timeout=10)
    sweep(tmp_path, "mine-")
    assert not left.exists()


def test_a_sweep_follows_no_link_and_takes_no_file(tmp_path: Path):
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").write_text("x")
    (tmp_path / "mine-link").symlink_to(tmp_path / "precious")
    (tmp_path / "mine-file").write_text("x")
    (tmp_path / "mine-dead").mkdir()
    (tmp_path / "mine-dead" / "inside").symlink_to(tmp_path / "precious")
    sweep(tmp_path, "mine-")
    assert (tmp_path / "precious" / "file").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine-file", "mine-link", "precious"]
