"""The kopf side: which objects are watched, how, and whom they are handed to. The handlers are of a few lines and hold no state.

Low-level handlers on purpose: kopf's handlers of changes keep their progress and the last seen spec in annotations of the object, and
act on differences, which a missed event loses. Here an event only says that the Task deserves a look (see `keeper`).
"""

import itertools
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import kopf

from suture.operator.keeper import Keeper
from suture.operator.resource import GROUP, PLURAL, VERSION, Task
from suture.operator.signs import Sign


class Endless:
    """Pauses between two tries of a request, in seconds, without end: by default kopf gives up after a minute, and the process with it."""

    def __iter__(self) -> Iterator[float]:
        return itertools.chain((1, 1, 2, 3, 5, 8), itertools.repeat(10))


def registry(keeper: Keeper, *, sign: Callable[[str], Sign]) -> kopf.OperatorRegistry:
    """The handlers: one logs in, one watches. `sign` gives that of the watch over a namespace."""
    handlers = kopf.OperatorRegistry()

    @kopf.on.login(id="login", registry=handlers)
    def login(**context: Any) -> kopf.ConnectionInfo | None:
        return kopf.login_via_client(**context)

    @kopf.on.event(GROUP, VERSION, PLURAL, id="task", registry=handlers)
    async def task(event: Mapping[str, Any], **_: Any) -> None:
        seen = Task.read(event["object"])
        if event["type"] == "DELETED":
            sign(seen.meta.namespace).saw_end(seen.meta.uid)
            keeper.forget(seen.meta.uid)
        else:
            sign(seen.meta.namespace).saw_one(seen.meta.uid, seen.meta.resource_version)
            await keeper.heed(seen)

    return handlers


def settings(*, namespaces: tuple[str, ...]) -> kopf.OperatorSettings:
    """How kopf watches."""
    chosen = kopf.OperatorSettings()
    # A connection that died without a word is noticed: bookmarks come each minute, a silent watch is opened anew.
    chosen.watching.server_timeout = 240
    chosen.watching.client_timeout = 300
    chosen.watching.connect_timeout = 10
    chosen.watching.inactivity_timeout = 90
    chosen.networking.request_timeout = 30
    chosen.networking.connect_timeout = 10
    chosen.networking.error_backoffs = Endless()
    chosen.queueing.worker_limit = 16  # Tasks that are settled at the same time on their first listing
    chosen.queueing.exit_timeout = 2
    chosen.process.ultimate_exiting_timeout = 15  # seconds after SIGTERM; a pod has 30
    # Replicas act side by side: every write of theirs is idempotent. Peering would freeze all but one, and all of equal priority.
    chosen.peering.standalone = True
    # Each log line of kopf would be an Event on the object; the few that tell the story are written by the keeper.
    chosen.posting.enabled = False
    # With namespaces named, nothing outside of them is asked for: a Role is enough.
    chosen.scanning.disabled = bool(namespaces)
    # Kopf removes its own finalizer wherever no handler of its kind needs it: it must never think that ours is its own.
    chosen.persistence.finalizer = f"{GROUP}/not-in-use"
    return chosen


def quiet() -> None:
    """Keep kopf's line for each event out of the logs, and its settings, which it hangs on every line, too."""
    objects = logging.getLogger("kopf.objects")
    objects.setLevel(logging.WARNING)
    objects.addFilter(_plain)


def _plain(record: logging.LogRecord) -> bool:
    for name in ("settings", "k8s_skip"):
        record.__dict__.pop(name, None)
    return True
