"""A watch beside kopf's: the objects of one list, first all of them, then each change, for as long as anybody asks.

Kopf watches a kind in all namespaces that the operator serves, or in the whole cluster; this one looks at one list with one selector, which
the API server narrows. Knows nothing of what the objects are.
"""

import asyncio
import logging
import random
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

from suture.errors import AccessDenied, NotFound, ServiceUnavailable, TemporaryError
from suture.operator.objects import Objects
from suture.operator.signs import Sign

log = logging.getLogger(__name__)

Object = dict[str, Any]

_PAGE = 250
_OPEN = 240  # seconds after which the server ends a watch; it is opened again where it stood
_PAUSES = (0.5, 1.0, 2.0, 5.0, 10.0)  # seconds after a failure; the last one stays
_GONE = 410  # the version that a watch stood at is no longer known


class Listed(NamedTuple):
    """All there is now: at first, and whenever changes may have been missed."""

    objects: list[Object]


class Changed(NamedTuple):
    """One object that came, changed or went."""

    object: Object
    gone: bool


async def follow(objects: Objects, path: str, *, selector: str, sign: Sign) -> AsyncIterator[Listed | Changed]:
    """Everything that `selector` chooses of the list at `path`, for ever. What fails is said and tried again; what comes is a `sign`."""
    failures = 0
    while True:
        try:
            async for seen in _follow(objects, path, selector, sign):
                failures = 0
                yield seen
        except (TemporaryError, AccessDenied, NotFound) as error:
            if failures == 0 or not isinstance(error, TemporaryError):
                log.warning("cannot watch %s: %s", path, error)
        await asyncio.sleep(_PAUSES[min(failures, len(_PAUSES) - 1)] * random.uniform(0.8, 1.2))  # noqa: S311 (no secret)
        failures += 1


async def _follow(objects: Objects, path: str, selector: str, sign: Sign) -> AsyncIterator[Listed | Changed]:
    """From a list on, until the server no longer knows where the watch stood."""
    found, version = await _list(objects, path, selector)
    sign.saw()
    yield Listed(found)
    while True:
        query = [("watch", "true"), ("allowWatchBookmarks", "true"), ("timeoutSeconds", str(_OPEN)), ("labelSelector", selector)]
        async for line in objects.stream(path, [*query, ("resourceVersion", version)]):
            kind, one = line["type"], line["object"]
            if kind == "ERROR":
                if one.get("code") == _GONE:
                    return
                raise _failure(one)
            version = one["metadata"]["resourceVersion"]
            sign.saw()
            if kind != "BOOKMARK":
                yield Changed(one, gone=kind == "DELETED")


async def _list(objects: Objects, path: str, selector: str) -> tuple[list[Object], str]:
    found: list[Object] = []
    following = ""
    while True:
        query = [("labelSelector", selector), ("limit", str(_PAGE)), *([("continue", following)] if following else [])]
        page = await objects.request("GET", path, query)
        found += page["items"]
        following = page["metadata"].get("continue", "")
        if not following:
            return found, page["metadata"]["resourceVersion"]


def _failure(status: Object) -> ServiceUnavailable:
    return ServiceUnavailable(f"The API server ends the watch: {status.get('message', 'it does not say why')}")
