"""Without a signature that fits, a webhook is refused and nothing is stored."""

import httpx
import pytest

from tests.postgres.api.gateway import SECRET, Envelope, Gateway, is_problem, post, running, triggered

GOOD = triggered("Deployment/shop/web")


def bearing(signature: bytes | None) -> list[tuple[bytes, bytes]]:
    return [(b"x-webhook-id", b"1"), *([(b"x-pagerduty-signature", signature)] if signature is not None else [])]


async def nothing_is_stored(gateway: Gateway) -> bool:
    return await gateway.records.deliveries() == [] and await gateway.engine.page() == []


@pytest.mark.parametrize(
    "signature",
    [
        None,
        b"",
        b"v1=",
        b"v1=" + b"0" * 64,
        GOOD.headers["X-PagerDuty-Signature"].removeprefix("v1=").encode(),
        b"v2=" + GOOD.headers["X-PagerDuty-Signature"].removeprefix("v1=").encode(),
        "v1=é✓".encode(),
        b"v1=\xff\xfe\x80",
        b"," * 5000,
    ],
    ids=["absent", "empty", "no digest", "zeros", "no version", "another version", "not ascii", "no text", "commas"],
)
async def test_a_wrong_signature_is_401(gateway, signature):
    async with httpx.AsyncClient(base_url=gateway.url, trust_env=False) as client:
        answer = await client.post("/webhooks/pagerduty", content=GOOD.body, headers=bearing(signature))

    is_problem(answer, 401, "Unauthenticated")
    assert await nothing_is_stored(gateway)


async def test_a_changed_body_is_401(gateway):
    is_problem(await post(gateway.by(None), Envelope(GOOD.headers, GOOD.body + b" ")), 401, "Unauthenticated")
    assert await nothing_is_stored(gateway)


async def test_a_stale_secret_is_401_and_an_older_one_under_rotation_is_not(database_url):
    stale = triggered("Deployment/shop/web", secret="a-secret-of-last-year")
    async with running(database_url) as gateway:
        is_problem(await post(gateway.by(None), stale), 401, "Unauthenticated")
        assert await nothing_is_stored(gateway)
    async with running(database_url, secret=f"{SECRET}, a-secret-of-last-year") as gateway:
        assert (await post(gateway.by(None), stale)).status_code == 202


async def test_a_token_is_no_signature(gateway):
    is_problem(await post(gateway.by("anna"), Envelope({}, GOOD.body)), 401, "Unauthenticated")


async def test_without_a_configured_secret_the_sender_is_asked_to_come_again(database_url):
    async with running(database_url, secret=None) as gateway:
        answer = await post(gateway.by(None), GOOD)

        is_problem(answer, 503, "ServiceUnavailable")
        assert int(answer.headers["Retry-After"]) > 0
        assert await nothing_is_stored(gateway)
