"""Whatever step the connection or the worker dies at, a second call ends with one branch, one commit and one pull request."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from suture.clients.github import GitHub
from suture.clients.repository import Blob, Limit, Opened
from suture.errors import AccessDenied, BaseMoved, Conflict, InvalidRequest, NotFound, RateLimited, ServiceUnavailable, SutureError
from tests.fakes.github import TOKEN, FakeGitHub
from tests.unit.repository.conftest import WEB, Remote

BRANCH = "suture/3f2a9c1b7d04"
AFTER = WEB.replace(b"web:1", b"web:2")
FILES = [Blob("web.yaml", WEB, AFTER), Blob("other.yml", b"kind: Service\n", b"kind: Service # two\n")]
STEPS = ["POST git/blobs", "POST git/blobs", "POST git/trees", "POST git/commits", "POST git/refs", "POST pulls"]


@pytest.fixture
async def fake(remote: Remote, one_authority: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeGitHub]:
    monkeypatch.setenv("SSL_CERT_FILE", str(one_authority))
    async with FakeGitHub(remote.path).serving() as served:
        yield served


def client(fake: FakeGitHub, *, token: str = TOKEN, pace: float = 0, timeout: float = 10) -> GitHub:
    return GitHub(fake.name, token=token, api=fake.url, pace=pace, timeout=timeout)


async def opened(fake: FakeGitHub, *, base: str = "", files: list[Blob] = FILES) -> Opened:
    return await client(fake).open(branch=BRANCH, base=base or fake.branches()["main"], files=files, title="Fix web", body="Because.\n")


def exactly_one(fake: FakeGitHub, remote: Remote, found: Opened) -> None:
    assert [pull["head"]["sha"] for pull in fake.pulls] == [found.commit]
    assert fake.branches().keys() == {"main", BRANCH}
    assert fake.branches()[BRANCH] == found.commit
    assert remote.git("rev-list", "--count", f"main..{BRANCH}") == "1"
    assert remote.read(found.commit, "web.yaml") == AFTER
    assert remote.git("diff-tree", "--no-commit-id", "--name-only", "-r", found.commit).split() == ["other.yml", "web.yaml"]


async def test_it_is_one_branch_one_commit_one_pull_request(fake: FakeGitHub, remote: Remote) -> None:
    found = await opened(fake)

    exactly_one(fake, remote, found)
    assert [f"{method} {path}" for method, path in fake.changes] == STEPS
    assert found.number == 1
    assert found.url.endswith("/pull/1")
    assert (fake.pulls[0]["title"], fake.pulls[0]["body"], fake.pulls[0]["base"]["ref"]) == ("Fix web", "Because.\n", "main")
    assert (
        remote.git("show", "-s", "--format=%an <%ae> %at %B", found.commit) == "Suture <noreply@suture.dev> 1700000000 Fix web\n\nBecause."
    )


@pytest.mark.parametrize("after", [False, True], ids=["before its effect", "after its effect"])
@pytest.mark.parametrize("number", range(len(STEPS)), ids=[f"{at} {step}" for at, step in enumerate(STEPS)])
async def test_a_cut_at_any_step_is_taken_over(fake: FakeGitHub, remote: Remote, number: int, *, after: bool) -> None:
    fake.cut(number, after=after)
    with pytest.raises(ServiceUnavailable):
        await opened(fake)

    found = await opened(fake)

    exactly_one(fake, remote, found)
    assert await client(fake).find(BRANCH) == found
    assert await opened(fake) == found


async def test_a_change_that_is_there_is_only_looked_up(fake: FakeGitHub) -> None:
    first = await opened(fake)
    fake.requests.clear()

    assert await opened(fake) == first
    assert fake.changes == []


async def test_two_at_once_end_with_one(fake: FakeGitHub, remote: Remote) -> None:
    first, second = await asyncio.gather(opened(fake), opened(fake))

    assert first == second
    exactly_one(fake, remote, first)


async def test_a_branch_without_a_pull_request_is_no_change_yet(fake: FakeGitHub) -> None:
    fake.cut(5, after=False)
    with pytest.raises(ServiceUnavailable):
        await opened(fake)

    assert BRANCH in fake.branches()
    assert await client(fake).find(BRANCH) is None


async def test_a_merged_change_is_not_opened_again(fake: FakeGitHub, remote: Remote) -> None:
    base = fake.branches()["main"]
    first = await opened(fake)
    fake.pulls[0].update(state="closed", merged_at="2026-01-02T03:04:05Z")
    remote.git("update-ref", "-d", f"refs/heads/{BRANCH}")

    assert await opened(fake, base=base) == first
    assert len(fake.pulls) == 1


async def test_a_branch_with_another_content_is_a_conflict(fake: FakeGitHub, remote: Remote) -> None:
    remote.git("update-ref", f"refs/heads/{BRANCH}", remote.git("rev-parse", "main~1"))

    with pytest.raises(Conflict, match="holds something else"):
        await opened(fake)
    assert fake.pulls == []


async def test_the_base_may_move_elsewhere_but_not_in_a_touched_file(fake: FakeGitHub, remote: Remote) -> None:
    base = fake.branches()["main"]
    remote.commit({"unrelated.yaml": b"a: 1\n"})
    found = await opened(fake, base=base)
    assert remote.git("rev-parse", f"{found.commit}^") == base
    await client(fake).close(BRANCH, "Superseded.")
    remote.commit({"web.yaml": b"image: web:3\n"})

    with pytest.raises(BaseMoved, match=r"web\.yaml changed on main"):
        await client(fake).open(branch="suture/other", base=base, files=FILES, title="Fix", body="")
    assert fake.branches().keys() == {"main"}


async def test_a_branch_that_a_dead_try_left_goes_when_the_base_has_moved(fake: FakeGitHub, remote: Remote) -> None:
    base = fake.branches()["main"]
    fake.cut(5, after=False)
    with pytest.raises(ServiceUnavailable):
        await opened(fake)
    remote.commit({"web.yaml": b"image: web:3\n"})

    with pytest.raises(BaseMoved):
        await opened(fake, base=base)

    assert fake.branches().keys() == {"main"}
    await opened(fake, files=[Blob("web.yaml", b"image: web:3\n", AFTER)])


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("after", [False, True])
async def test_closing_says_why_once_however_often_it_is_tried(fake: FakeGitHub, number: int, *, after: bool) -> None:
    await opened(fake)
    fake.cut(number, after=after)
    with pytest.raises(ServiceUnavailable):
        await client(fake).close(BRANCH, "It recovered by itself.")

    await client(fake).close(BRANCH, "It recovered by itself.")
    await client(fake).close(BRANCH, "It recovered by itself.")

    assert fake.comments == {1: ["It recovered by itself."]}
    assert fake.pulls[0]["state"] == "closed"
    assert fake.branches().keys() == {"main"}


async def test_files_are_the_yaml_and_json_of_the_commit(fake: FakeGitHub, remote: Remote) -> None:
    remote.commit({"big.yaml": b"x" * 2000, "a/Kustomization": b"resources: []\n"}, links={"link.yaml": "web.yaml"})
    github = client(fake)

    found = await github.files(await github.base(), limit=Limit(size=1000))

    assert found == {"web.yaml": WEB, "other.yml": b"kind: Service\n", "data/größe.json": b"{}", "a/Kustomization": b"resources: []\n"}
    fake.requests.clear()
    assert await github.files(await github.base(), limit=Limit(size=1000)) == found
    assert not any("blobs" in path for _, path in fake.requests)
    with pytest.raises(InvalidRequest, match="the limit is 2 files"):
        await github.files(await github.base(), limit=Limit(files=2))


async def test_changes_keep_a_second_apart(fake: FakeGitHub) -> None:
    await client(fake, pace=0.1).open(branch=BRANCH, base=fake.branches()["main"], files=FILES, title="Fix", body="")

    times = [at for at, (method, _) in zip(fake.times, fake.requests, strict=True) if method != "GET"]
    assert min(late - early for early, late in itertools.pairwise(times)) >= 0.1
    assert GitHub.__init__.__kwdefaults__["pace"] >= 1


PATIENCE = {
    "429 with a time": (429, {"retry_after": "17"}, {}, 17),
    "403 with a time": (403, {"retry_after": "3"}, {}, 3),
    "403 in words": (403, {}, {"message": "You have exceeded a secondary rate limit."}, 60),
    "a time that is no number": (429, {"retry_after": "soon"}, {}, 60),
}


@pytest.mark.parametrize(("status", "headers", "body", "seconds"), PATIENCE.values(), ids=PATIENCE.keys())
async def test_a_rate_limit_says_how_long_to_wait(
    fake: FakeGitHub, status: int, headers: dict[str, str], body: dict[str, str], seconds: int
) -> None:
    fake.answer(status, body=body, on="POST pulls", **headers)

    with pytest.raises(RateLimited) as refused:
        await opened(fake)

    assert refused.value.delay == timedelta(seconds=seconds)
    await opened(fake)
    assert len(fake.pulls) == 1


FAILURES: dict[str, tuple[int, type[SutureError], str]] = {
    "a server error": (502, ServiceUnavailable, "502"),
    "no permission": (403, AccessDenied, "pull-request write"),
    "no such thing": (404, NotFound, "may not see it"),
    "a state": (409, Conflict, "state"),
    "a refusal": (422, InvalidRequest, "words of GitHub"),
}


@pytest.mark.parametrize(("status", "error", "words"), FAILURES.values(), ids=FAILURES.keys())
async def test_an_answer_becomes_an_error_of_ours(fake: FakeGitHub, status: int, error: type[SutureError], words: str) -> None:
    fake.answer(status, body={"message": "words of GitHub"}, on="POST git/trees")

    with pytest.raises(error, match=words):
        await opened(fake)


async def test_no_error_carries_the_token(fake: FakeGitHub) -> None:
    secret = "ghp_anotherSecretToken"
    with pytest.raises(AccessDenied, match="does not know the token") as refused:
        await client(fake, token=secret).base()

    seen: BaseException | None = refused.value
    while seen is not None:
        assert secret not in repr(seen) + str(seen)
        assert seen.__suppress_context__ or seen.__context__ is None
        seen = seen.__cause__


async def test_a_server_that_is_not_there_is_unavailable(fake: FakeGitHub) -> None:
    with pytest.raises(ServiceUnavailable, match="can not be reached"):
        await GitHub(fake.name, token=TOKEN, api="http://127.0.0.1:1", pace=0).base()


async def test_names_that_github_could_misread_are_refused() -> None:
    for name in ("", "acme", "acme/x/y", "acme/..%2f", "https://github.com/acme/x"):
        with pytest.raises(InvalidRequest):
            GitHub(name, token=TOKEN)
