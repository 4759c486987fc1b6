"""Every door asks who calls, but the probes, signed webhooks, and what one needs to sign in."""

import httpx
import pytest

from suture.api.authentication import ROLES
from tests.postgres.api.gateway import Gateway, is_problem, running

OPEN = {("GET", "/healthz"), ("GET", "/readyz"), ("POST", "/webhooks/pagerduty")}
READS = [
    "/tasks",
    "/approvals",
    "/pull-requests",
    "/deliveries",
    "/dead-letters",
    "/glance",
    "/queues",
    "/pauses",
    "/schedules",
    "/workers",
    "/health",
    "/metrics",
    "/scale/default",
    "/openapi.json",
    "/tasks/stream",
]
ID = "01930000-0000-7000-8000-000000000000"
WRITES = [
    ("/tasks", "operator"),
    (f"/tasks/{ID}/cancel", "operator"),
    (f"/tasks/{ID}/retry", "operator"),
    (f"/dead-letters/{ID}/discard", "operator"),
    ("/queues/default/pause", "operator"),
    ("/queues/default/resume", "operator"),
    ("/queues/default/limits", "operator"),
    ("/pauses", "operator"),
    ("/pauses/end", "operator"),
    (f"/tasks/{ID}/fork", "operator"),
    ("/schedules/nightly/pause", "operator"),
    ("/schedules/nightly/resume", "operator"),
    ("/schedules/nightly/run", "operator"),
    (f"/tasks/{ID}/approve", "approver"),
    (f"/tasks/{ID}/reject", "approver"),
]


async def doors(gateway: Gateway) -> list[tuple[str, str]]:
    described = (await gateway.by("vera").get("/openapi.json")).json()["paths"]
    return [(method.upper(), path) for path, operations in described.items() for method in operations]


async def test_each_described_door_refuses_a_stranger(gateway):
    found = await doors(gateway)
    assert set(OPEN) < set(found)

    for method, path in set(found) - OPEN:
        address = path.replace("{id}", ID).replace("{name}", "x").replace("{queue}", "x")
        answer = await gateway.by(None).request(method, address, content=b"{")  # who is refused learns nothing of the body
        is_problem(answer, 401, "Unauthenticated")
        assert answer.headers["www-authenticate"].startswith("Bearer")


async def test_no_door_stands_beside_the_description(gateway):
    """The framework's own pages would be open, and would load scripts from elsewhere."""
    for path in ("/docs", "/redoc", "/docs/oauth2-redirect"):
        is_problem(await gateway.by("anna").get(path), 404, "NotFound")


@pytest.mark.parametrize(
    "header", ["Bearer wrong", "Bearer", "Basic YTpi", "token-of-anna-0123456789", "Bearer token-of-anna-012345678", "Bearer \xff\xfe"]
)
async def test_a_wrong_token_is_401(gateway, header):
    async with httpx.AsyncClient(base_url=gateway.url, trust_env=False) as client:
        answer = await client.get("/tasks", headers=[(b"authorization", header.encode("latin-1"))])

    is_problem(answer, 401, "Unauthenticated")


@pytest.mark.parametrize(("path", "role"), WRITES)
async def test_a_role_that_does_not_reach_is_403_and_names_the_one_that_does(gateway, path, role):
    people = dict(zip(ROLES, ("vera", "otto", "anna"), strict=True))
    for short in ROLES[: ROLES.index(role)]:
        refusal = is_problem(await gateway.by(people[short]).post(path, json={}), 403, "AccessDenied")
        assert f"needs {role}" in refusal["detail"]

    assert (await gateway.by(people[role]).post(path, json={})).status_code not in {401, 403}


async def test_without_tokens_all_is_closed_but_the_probes(database_url):
    async with running(database_url, tokens=None) as gateway:
        for path in READS:
            assert "No token is configured" in is_problem(await gateway.by("anna").get(path), 401, "Unauthenticated")["detail"]
        assert (await gateway.by(None).get("/healthz")).status_code == 200
        assert (await gateway.by(None).get("/readyz")).status_code == 200


async def test_a_viewer_may_read_everything(gateway):
    # One after the other: a busy machine may shed one of thirty that come at once, and is right to.
    answers = {path: (await gateway.by("vera").get(path)).status_code for path in READS if path != "/tasks/stream"}

    assert {path: status for path, status in answers.items() if status != 200} == {}


async def test_the_description_is_complete(gateway):
    document = (await gateway.by("vera").get("/openapi.json")).json()
    operations = {(method, path): op for path, found in document["paths"].items() for method, op in found.items()}

    assert document["components"]["securitySchemes"]["HTTPBearer"]["scheme"] == "bearer"
    assert set(document["components"]["schemas"]["Problem"]["properties"]) == {"type", "title", "status", "detail", "reason"}
    assert "operationKey" in document["components"]["schemas"]["Task"]["properties"]
    for door, operation in operations.items():
        guarded = (door[0].upper(), door[1]) not in OPEN
        assert ("security" in operation) == guarded, door
        assert operation["summary"], door
        for status, answer in operation["responses"].items():
            if int(status) >= 400:
                assert list(answer["content"]) == ["application/problem+json"], door
        if guarded:
            assert {"401", "403"} <= set(operation["responses"]), door
    wanted = operations["post", "/tasks"]["requestBody"]["content"]["application/json"]["schema"]
    assert {"type", "input", "operationKey", "runAt", "maxAttempts"} <= set(wanted["properties"])


@pytest.mark.parametrize(
    ("method", "path", "status"), [("GET", "/nothing", 404), ("DELETE", "/tasks", 405), ("GET", "/webhooks/github", 404)]
)
async def test_what_is_no_door_is_a_problem_too(gateway, method, path, status):
    answer = await gateway.by("anna").request(method, path)

    assert answer.status_code == status
    assert answer.json()["status"] == status
    assert answer.headers["content-type"] == "application/problem+json"
