"""A running gateway for the tests of this folder."""

from collections.abc import AsyncIterator

import pytest

from tests.postgres.api.gateway import Gateway, running


@pytest.fixture
async def gateway(database_url: str) -> AsyncIterator[Gateway]:
    async with running(database_url) as found:
        yield found
