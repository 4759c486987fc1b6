"""Every answer of the fake parses as githubkit's model of GitHub's published description."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from githubkit import GitHub, TokenAuthStrategy

from tests.fakes.github import TOKEN, FakeGitHub
from tests.unit.repository.conftest import Remote


@pytest.fixture
async def fake(remote: Remote, one_authority: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeGitHub]:
    monkeypatch.setenv("SSL_CERT_FILE", str(one_authority))
    async with FakeGitHub(remote.path).serving() as served:
        yield served


async def test_its_answers_are_github_s(fake: FakeGitHub) -> None:
    github = GitHub(TokenAuthStrategy(TOKEN), base_url=fake.url, auto_retry=False, http_cache=False)
    rest = github.rest
    place = ("acme", "manifests")

    ref = (await rest.git.async_get_ref(*place, "heads/main")).parsed_data
    commit = (await rest.git.async_get_commit(*place, ref.object_.sha)).parsed_data
    tree = (await rest.git.async_get_tree(*place, commit.tree.sha, recursive="1")).parsed_data
    first = next(entry for entry in tree.tree if entry.type == "blob")
    assert (await rest.git.async_get_blob(*place, str(first.sha))).parsed_data.encoding == "base64"

    blob = (await rest.git.async_create_blob(*place, content="eA==", encoding="base64")).parsed_data
    entry = {"path": "x.yaml", "mode": "100644", "type": "blob", "sha": blob.sha}
    grown = (await rest.git.async_create_tree(*place, data={"base_tree": tree.sha, "tree": [entry]})).parsed_data
    who = {"name": "Ann", "email": "ann@example.com", "date": "2026-01-02T03:04:05Z"}
    made = await rest.git.async_create_commit(
        *place, data={"message": "x", "tree": grown.sha, "parents": [commit.sha], "author": who, "committer": who}
    )
    assert made.parsed_data.parents[0].sha == commit.sha
    assert (await rest.git.async_create_ref(*place, ref="refs/heads/x", sha=made.parsed_data.sha)).parsed_data.ref == "refs/heads/x"

    pull = (await rest.pulls.async_create(*place, title="x", head="x", base="main", body="y")).parsed_data
    assert (await rest.pulls.async_get(*place, pull.number)).parsed_data.head.sha == made.parsed_data.sha
    listed = (await rest.pulls.async_list(*place, state="all", head="acme:x", base="main")).parsed_data
    assert [each.number for each in listed] == [pull.number]
    assert (await rest.issues.async_create_comment(*place, pull.number, body="z")).parsed_data.body == "z"
    assert len((await rest.issues.async_list_comments(*place, pull.number)).parsed_data) == 1
    assert (await rest.pulls.async_update(*place, pull.number, state="closed")).parsed_data.state == "closed"
    assert (await rest.git.async_delete_ref(*place, "heads/x")).status_code == 204
