"""A repository that git reaches: one branch with one commit, whenever the worker is killed; nothing of the outside runs or leaks in."""

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from suture.clients.localgit import LocalGit
from suture.clients.repository import Blob, Limit, Opened
from suture.errors import BaseMoved, Conflict, InvalidRequest, NotFound, ServiceUnavailable, SutureError, ToolMissing
from tests.unit.repository.conftest import WEB, Remote

BRANCH = "suture/3f2a9c1b7d04"
AFTER = WEB.replace(b"web:1", b"web:2")
FILES = [Blob("web.yaml", WEB, AFTER)]
COMMANDS = 15
"""Git commands of one `open`; a test below counts them."""


@pytest.fixture(autouse=True)
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary clones go: a test sees whether they are gone."""
    folder = tmp_path / "room"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", None)
    return folder


async def opened(remote: Remote, *, base: str = "", files: list[Blob] = FILES, url: str = "") -> Opened:
    return await LocalGit(url or str(remote.path)).open(
        branch=BRANCH, base=base or remote.branches()["main"], files=files, title="Fix web", body="Because.\n"
    )


def exactly_one(remote: Remote, commit: str) -> None:
    assert remote.branches() == {"main": remote.branches()["main"], BRANCH: commit}
    assert remote.git("rev-list", "--count", f"main..{BRANCH}") == "1"
    assert remote.read(commit, "web.yaml") == AFTER
    assert remote.git("diff-tree", "--no-commit-id", "--name-only", "-r", commit) == "web.yaml"


async def test_it_is_one_branch_with_one_commit(remote: Remote, room: Path) -> None:
    found = await opened(remote)

    exactly_one(remote, found.commit)
    assert found == Opened(str(remote.path), BRANCH, found.commit)
    assert (
        remote.git("show", "-s", "--format=%an <%ae> %at %ct %B", found.commit)
        == "Suture <noreply@suture.dev> 1700000000 1700000000 Fix web\n\nBecause."
    )
    assert await LocalGit(str(remote.path)).find(BRANCH) == found
    assert await opened(remote) == found
    assert list(room.iterdir()) == []


SCRIPT = """
import asyncio, sys
from suture.clients.localgit import LocalGit
from suture.clients.repository import Blob
url, branch, base, before, after = sys.argv[1:]
files = [Blob("web.yaml", bytes.fromhex(before), bytes.fromhex(after))]
print(asyncio.run(LocalGit(url).open(branch=branch, base=base, files=files, title="Fix web", body="Because.\\n")).commit)
"""


def killed(remote: Remote, tmp_path: Path, number: int, *, after: bool) -> int:
    """Run `open` in a process of its own that dies at the git command with this number; how many commands it began."""
    count, folder = tmp_path / "count", tmp_path / "bin"
    folder.mkdir()
    count.write_text("0\n")
    real = shutil.which("git")
    wrapper = folder / "git"
    wrapper.write_text(
        textwrap.dedent(f"""\
        #!/bin/sh
        [ "$1" = -c ] && exec {real} "$@"
        read -r number < {count}
        echo $((number + 1)) > {count}
        [ "$number" = {number} ] && [ {after:d} = 0 ] && kill -9 $PPID
        {real} "$@"
        code=$?
        [ "$number" = {number} ] && kill -9 $PPID
        exit $code
        """)
    )
    wrapper.chmod(0o755)
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": os.pathsep.join(sys.path)}
    arguments = [str(remote.path), BRANCH, remote.branches()["main"], WEB.hex(), AFTER.hex()]
    done = subprocess.run([sys.executable, "-c", SCRIPT, *arguments], env=environment, capture_output=True, check=False, timeout=60)
    assert done.returncode == (-9 if number < COMMANDS else 0), done.stderr.decode()
    return int(count.read_text())


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", range(COMMANDS))
async def test_a_kill_at_any_command_is_taken_over(remote: Remote, tmp_path: Path, number: int, *, after: bool) -> None:
    killed(remote, tmp_path, number, after=after)

    found = await opened(remote)

    exactly_one(remote, found.commit)
    assert await opened(remote) == found


def test_the_kills_reach_every_command(remote: Remote, tmp_path: Path) -> None:
    assert killed(remote, tmp_path, COMMANDS, after=False) == COMMANDS


async def test_two_at_once_end_with_one(remote: Remote) -> None:
    first, second = await asyncio.gather(opened(remote), opened(remote))

    assert first == second
    exactly_one(remote, first.commit)


async def test_a_branch_with_another_content_is_a_conflict(remote: Remote) -> None:
    remote.git("update-ref", f"refs/heads/{BRANCH}", remote.git("rev-parse", "main~1"))

    with pytest.raises(Conflict, match="holds something else"):
        await opened(remote)


async def test_the_base_may_move_elsewhere_but_not_in_a_touched_file(remote: Remote) -> None:
    base = remote.branches()["main"]
    remote.commit({"unrelated.yaml": b"a: 1\n"})
    found = await opened(remote, base=base)
    assert remote.git("rev-parse", f"{found.commit}^") == base
    await LocalGit(str(remote.path)).close(BRANCH, "Superseded.")
    remote.commit({"web.yaml": b"image: web:3\n"})

    with pytest.raises(BaseMoved, match=r"web\.yaml changed on main"):
        await opened(remote, base=base)
    with pytest.raises(BaseMoved, match="no part of main"):
        await opened(remote, base="0" * 40)
    assert remote.branches().keys() == {"main"}


async def test_closing_deletes_the_branch_and_may_be_repeated(remote: Remote) -> None:
    await opened(remote)
    git = LocalGit(str(remote.path))

    await git.close(BRANCH, "It recovered by itself.")
    await git.close(BRANCH, "It recovered by itself.")

    assert await git.find(BRANCH) is None
    with pytest.raises(InvalidRequest, match="deployed branch"):
        await git.close("main", "")


async def test_files_are_the_regular_yaml_and_json_of_the_commit(remote: Remote) -> None:
    head = remote.commit({"big.yaml": b"x" * 2000, "a/Kustomization": b"{}"}, links={"link.yaml": "/etc/passwd", "dir": "/etc"})
    remote.git("update-index", "--add", "--cacheinfo", f"160000,{head},sub.yaml", where=remote.path.parent / "work")
    git = LocalGit(str(remote.path))

    found = await git.files(await git.base(), limit=Limit(size=1000))

    assert found == {"web.yaml": WEB, "other.yml": b"kind: Service\n", "data/größe.json": b"{}", "a/Kustomization": b"{}"}
    with pytest.raises(InvalidRequest, match="the limit is 2 files"):
        await git.files(head, limit=Limit(files=2))
    with pytest.raises(InvalidRequest, match="no regular file"):
        await opened(remote, files=[Blob("link.yaml", b"/etc/passwd", b"x")])


@pytest.mark.parametrize("path", ["../x.yaml", "/etc/x.yaml", "a/../x.yaml", ".git/config", "a//b.yaml", "x\n.yaml", "", "a/.GIT/x.yaml"])
async def test_a_path_out_of_the_repository_is_refused(remote: Remote, path: str) -> None:
    with pytest.raises(InvalidRequest, match="no path in a repository"):
        await opened(remote, files=[Blob(path, b"", b"x")])


async def test_no_hook_runs_and_no_configuration_of_the_user_is_read(
    remote: Remote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace, hooks, home = tmp_path / "trace", tmp_path / "hooks", tmp_path / "home"
    for folder in (remote.path / "hooks", hooks, home):
        folder.mkdir(exist_ok=True)
    for name in ("pre-receive", "update", "post-receive", "post-update", "reference-transaction", "pre-push"):
        for folder in (remote.path / "hooks", hooks):
            (folder / name).write_text(f"#!/bin/sh\necho {name} >> {trace}\nexit 1\n")
            (folder / name).chmod(0o755)
    remote.git("config", "core.hooksPath", str(hooks))
    (home / ".gitconfig").write_text(f"[core]\nhooksPath = {hooks}\n[user]\nname = Somebody\n")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    monkeypatch.setenv("GIT_AUTHOR_NAME", "Somebody")

    found = await opened(remote)

    assert not trace.exists()
    assert remote.git("show", "-s", "--format=%an %cn", found.commit) == "Suture Suture"


async def test_the_work_tree_of_a_repository_is_not_touched(remote: Remote) -> None:
    work = remote.path.parent / "work"
    (work / "web.yaml").write_bytes(b"being edited")
    before = (work / ".git" / "index").read_bytes()

    found = await opened(remote, url=str(work), base=remote.branches()["main"])

    assert remote.git("rev-parse", BRANCH, where=work) == found.commit
    assert (work / "web.yaml").read_bytes() == b"being edited"
    assert (work / ".git" / "index").read_bytes() == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
async def test_a_repository_of_another_owner_is_trusted_by_its_address_alone(remote: Remote) -> None:
    for path in (remote.path, *remote.path.rglob("*")):
        os.chown(path, 12345, 12345)

    assert await LocalGit(str(remote.path)).base()
    assert await LocalGit(f"file://{remote.path}").base()


@pytest.fixture
def daemon(remote: Remote) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = ["--listen=127.0.0.1", f"--port={port}", f"--base-path={remote.path.parent}", "--export-all", "--enable=receive-pack"]
    process = subprocess.Popen(["git", "daemon", "--reuseaddr", *options], stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        yield f"git://127.0.0.1:{port}/remote.git"
    finally:
        for child in psutil.Process(process.pid).children(recursive=True):
            child.kill()
        process.kill()
        process.wait()


async def answering(url: str) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                await LocalGit(url).base()
            except ServiceUnavailable:
                continue
            return


async def test_a_git_server_takes_it_too(remote: Remote, daemon: str) -> None:
    await answering(daemon)

    found = await opened(remote, url=daemon)

    exactly_one(remote, found.commit)
    assert found.repository == daemon


ODD = [
    "--upload-pack=touch pwned",
    "-x",
    "ext::sh -c touch% pwned",
    "git@example.com:a/b.git",
    "ssh://example.com/a.git",
    "ftp://example.com/a.git",
    "",
    "a\nb",
]


@pytest.mark.parametrize("url", ODD)
def test_an_address_that_could_run_something_is_refused(url: str) -> None:
    with pytest.raises(InvalidRequest):
        LocalGit(url)


@pytest.mark.parametrize("branch", ["-x", "--mirror", "a..b", "a b", "/a", "a/", "a.lock", "a/.b", "a@{1}", "", "a:b", "a^", "x" * 300])
async def test_a_branch_that_is_no_branch_is_refused(remote: Remote, branch: str) -> None:
    with pytest.raises(InvalidRequest, match="no branch name"):
        await LocalGit(str(remote.path)).find(branch)
    with pytest.raises(InvalidRequest, match="no branch name"):
        LocalGit(str(remote.path), branch=branch)


@pytest.mark.parametrize("commit", ["--output=x", "HEAD", "main", "0" * 39])
async def test_a_commit_is_named_by_its_id_alone(remote: Remote, commit: str) -> None:
    with pytest.raises(InvalidRequest, match="no commit id"):
        await LocalGit(str(remote.path)).files(commit)


async def test_what_is_no_repository_is_said_so_with_its_address(tmp_path: Path, remote: Remote) -> None:
    with pytest.raises(InvalidRequest, match=f"{tmp_path}/nothing is no git repository"):
        await LocalGit(str(tmp_path / "nothing")).base()
    with pytest.raises(NotFound, match="no branch live"):
        await LocalGit(str(remote.path), branch="live").base()


async def test_a_password_in_the_address_is_never_said() -> None:
    with pytest.raises(SutureError) as refused:
        await LocalGit("http://me:hunter2@127.0.0.1:1/x.git").base()

    assert "hunter2" not in str(refused.value)
    assert "http://***@127.0.0.1:1/x.git" in str(refused.value)


async def test_a_server_that_never_answers_is_given_up_and_nothing_is_left_running(room: Path) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        with pytest.raises(ServiceUnavailable, match=r"longer than 0\.5 s"):
            await LocalGit(f"git://127.0.0.1:{silent.getsockname()[1]}/x.git", timeout=0.5).base()

    left = [process for process in psutil.process_iter(["cwd"]) if (process.info["cwd"] or "").startswith(str(room))]
    assert left == []
    assert list(room.iterdir()) == []


async def test_without_git_the_message_says_how_to_get_it(remote: Remote, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(ToolMissing, match=r"git is not installed.*apt-get install git"):
        await LocalGit(str(remote.path)).base()
