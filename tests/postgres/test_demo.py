"""`suture demo` ends as each case says, survives its own kill, asks before it acts, and leaves nothing behind however it ends."""

import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
import pytest

from suture.cli import cases

COMMAND = [sys.executable, "-m", "suture", "demo"]
TEMPORARY = tempfile.mkdtemp(prefix="sd-")  # of this run alone: what is left behind is ours
ENVIRONMENT = {
    **{k: v for k, v in os.environ.items() if not k.startswith("SUTURE_")},
    "COLUMNS": "200",
    "PYTHONSAFEPATH": "1",
    "TMPDIR": TEMPORARY,
}


@pytest.fixture(scope="module", autouse=True)
def temporary() -> Iterator[None]:
    yield
    shutil.rmtree(TEMPORARY)


LONG = 90  # seconds; a demo takes about six


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, timeout=LONG, check=False, env=ENVIRONMENT, stdin=subprocess.DEVNULL
    )


@pytest.mark.parametrize("name", cases.names())
def test_each_case_ends_as_it_must(name: str) -> None:
    done = run("--case", name, "--yes")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "killed with SIGKILL in the middle of step" in done.stdout
    assert "nothing repeated" in done.stdout
    assert cases.load(name).code in done.stdout
    assert "The repository is as expected." in done.stdout
    assert left_behind() == []


def test_an_unknown_case_is_named_with_the_known_ones() -> None:
    done = run("--case", "nonsense")

    assert done.returncode == 1
    assert "'nonsense'" in done.stderr
    assert "image-tag" in done.stderr


def test_a_missing_git_is_named_with_the_way_out() -> None:
    bare = {**ENVIRONMENT, "PATH": "/nonexistent"}
    done = subprocess.run([*COMMAND, "--yes"], capture_output=True, text=True, timeout=LONG, check=False, env=bare)

    assert done.returncode == 1
    assert "ToolMissing: git is not installed" in done.stderr
    assert "Traceback" not in done.stderr


def test_no_answer_means_no_pull_request() -> None:
    done = run()

    assert done.returncode == 1
    assert "rejected" in done.stdout
    assert "branches: none" in done.stdout


class Terminal:
    """A demo in a terminal of its own, as a person has it."""

    def __init__(self, master: int, process: subprocess.Popen[bytes]) -> None:
        self.master, self.process, self.seen = master, process, ""

    def until(self, words: str) -> str:
        end = time.monotonic() + LONG
        while words not in self.seen:
            assert time.monotonic() < end, self.seen
            try:
                self.seen += os.read(self.master, 65536).decode(errors="replace")
            except OSError:  # the other side has gone
                assert words in self.seen, self.seen
        return self.seen

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def end(self) -> int:
        try:
            while data := os.read(self.master, 65536):
                self.seen += data.decode(errors="replace")
        except OSError:
            pass
        return self.process.wait(LONG)


@contextmanager
def terminal(*arguments: str) -> Iterator[Terminal]:
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, *arguments], stdin=slave, stdout=slave, stderr=slave, env={**ENVIRONMENT, "TERM": "dumb"}, start_new_session=True
    )
    os.close(slave)
    try:
        yield Terminal(master, process)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(master)


def test_a_person_answers_in_the_terminal() -> None:
    with terminal() as person:
        person.until("[y/N]")
        person.type("y\n")

        assert person.end() == 0, person.seen
        assert "proposed" in person.seen


def test_a_person_answers_on_the_page_instead() -> None:
    with terminal() as person:
        seen = plain(person.until("[y/N]"))
        address = re.search(r"(http://127\.0\.0\.1:\d+)/\s+token (\S+)", seen)
        assert address, seen
        with httpx.Client(base_url=address[1], headers={"Authorization": f"Bearer {address[2]}"}, trust_env=False) as client:
            (question,) = client.get("/approvals", params={"state": "pending"}).json()["items"]
            answer = client.post(f"/tasks/{question['taskId']}/approve", json={"digest": question["proposal"]["digest"]})
            assert answer.is_success, answer.text

        assert person.end() == 0, person.seen
        assert "approved on the page by you" in plain(person.seen)


@pytest.mark.parametrize("moment", ["gateway are up", "became task", "killed with SIGKILL", "went on", "[y/N]"])
def test_ctrl_c_at_any_point_leaves_nothing_running(moment: str) -> None:
    with terminal() as person:
        person.until(moment if moment != "became task" else "it is task")
        family = psutil.Process(person.process.pid).children(recursive=True)
        person.process.send_signal(signal.SIGINT)

        assert person.end() == 130, person.seen
        assert "Traceback" not in person.seen
        assert [p for p in family if p.is_running() and p.status() != psutil.STATUS_ZOMBIE] == []
        assert left_behind() == []


def test_kill_9_of_the_demo_itself_leaves_no_process() -> None:
    with terminal() as person:
        person.until("[y/N]")
        family = psutil.Process(person.process.pid).children(recursive=True)
        assert len(family) >= 3
        person.process.kill()
        person.process.wait()

        _, alive = psutil.wait_procs(family, timeout=60)

        assert alive == []


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


def left_behind() -> list[Path]:
    return list(Path(TEMPORARY).iterdir())
