"""The browser tier: a real chromium, driven by playwright, at a real gateway on a real Postgres."""

import os
import shutil
from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Browser, Page, async_playwright, expect

from tests.postgres.api.gateway import Gateway, running
from tests.postgres.conftest import database_url, direct_url, postgres, server_url, template

__all__ = ["database_url", "direct_url", "postgres", "server_url", "template"]

expect.set_options(timeout=30_000)  # of a machine that is busy

CHROMIUM = os.environ.get("SUTURE_TEST_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")


@pytest.fixture
async def gateway(database_url: str) -> AsyncIterator[Gateway]:
    async with running(database_url) as found:
        yield found


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("no chromium: install it (apt-get install chromium), or name it in SUTURE_TEST_CHROMIUM")
    async with async_playwright() as playwright:
        # Without its sandbox: the tests may run as root, where chromium has none.
        found = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield found
        await found.close()


@pytest.fixture
async def page(browser: Browser, gateway: Gateway) -> AsyncIterator[Page]:
    """A page of somebody signed in as anna, an approver; a complaint in its console fails the test."""
    context = await browser.new_context(base_url=gateway.url)
    found = await context.new_page()
    complaints: list[str] = []
    found.on("pageerror", lambda error: complaints.append(str(error)))
    found.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    await found.goto("/")
    await found.get_by_label("Your token").fill("token-of-anna-0123456789")
    await found.get_by_role("button", name="Sign in").click()
    await found.wait_for_url("**/console")
    yield found
    assert complaints == []
    await context.close()
