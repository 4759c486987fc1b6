"""The operator's process: reads settings, connects, watches, mirrors, compares; ends in seconds on SIGTERM.

Any number of replicas run side by side, without leader, peering or order. What each needs from Kubernetes, and why:

| group                | resource                  | verbs            | scope         | reason                                        |
|----------------------|---------------------------|------------------|---------------|-----------------------------------------------|
| suture.dev           | tasks                     | get list watch   | as configured | the Tasks                                     |
| suture.dev           | tasks                     | patch            | as configured | the finalizer                                 |
| suture.dev           | tasks/status              | patch            | as configured | the mirror                                    |
| (core)               | events                    | create           | as configured | the story for `kubectl describe`              |
| (core)               | namespaces                | get              | kube-system   | its uid tells the rows of clusters apart      |
| (core)               | pods                      | list watch       | the workers'  | only with SUTURE_OPERATOR_WORKER_NAMESPACE:   |
|                      |                           |                  |               | a worker that goes is missed at once          |
| batch                | jobs                      | list watch       | those of Jobs | only with SUTURE_JOBS_NAMESPACES: an          |
|                      |                           |                  |               | execution is woken when its Job has ended     |
| apiextensions.k8s.io | customresourcedefinitions | list watch       | cluster       | only without SUTURE_OPERATOR_NAMESPACES: a    |
|                      |                           |                  |               | resource that is installed later is noticed   |

It reads no Secret, and writes into metadata nothing but its own finalizer.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import kopf

from suture.engine import Database, Engine, Workflows
from suture.operator.handlers import quiet, registry
from suture.operator.handlers import settings as watching
from suture.operator.job_ends import JobEnds
from suture.operator.keeper import Keeper
from suture.operator.mirror import Mirror
from suture.operator.objects import Objects
from suture.operator.probes import probes
from suture.operator.resource import PLURAL
from suture.operator.resync import Resync
from suture.operator.signs import Sign, Signs
from suture.operator.workers import Workers
from suture.settings import Settings

STUCK = 120.0
"""Seconds without a finished look at the rows, or comparison: then the process is stuck. An outage ends a look sooner, with a failure."""


async def serve(settings: Settings) -> None:
    """Turn Tasks into rows and rows into status, until SIGTERM or SIGINT.

    Postgres and the API server may be away at start or later. Raises: ConfigError.
    """
    quiet()
    url, direct, chosen = settings.database.url, settings.database.direct, settings.operator
    connected = Database.connect(url.get_secret_value(), direct=direct.get_secret_value() if direct else None, size=settings.database.pool)
    async with connected as database, Objects.connect(namespaces=chosen.namespaces) as objects:
        keeper = Keeper(Engine(database), objects, Workflows.discover(settings.workflows.modules))
        signs = Signs()
        sign = _sign_of_tasks(signs, chosen.namespaces)
        mirror, resync = Mirror(keeper, every=chosen.mirror), Resync(keeper, every=chosen.resync, sign=sign)
        probed = probes(
            chosen.health_address,
            healthy=lambda: mirror.age < STUCK and resync.age < STUCK + chosen.resync.total_seconds(),
            ready=lambda: mirror.ready,
            metrics=lambda: signs.page(gauges(keeper, mirror, resync)),
        )
        async with probed, asyncio.TaskGroup() as loops:
            # Before kopf: at its end it cancels every task that is younger than itself, whoever made it.
            others = [loops.create_task(mirror.run(), name="mirror"), loops.create_task(resync.run(), name="resync")]
            others += [loops.create_task(hint, name="hint") for hint in _hints(settings, keeper.engine, objects, signs)]
            await kopf.operator(
                registry=registry(keeper, sign=sign),
                settings=watching(namespaces=chosen.namespaces),
                standalone=True,
                clusterwide=not chosen.namespaces,
                namespaces=chosen.namespaces,
            )
            for other in others:
                other.cancel()


def gauges(keeper: Keeper, mirror: Mirror, resync: Resync) -> dict[str, tuple[str, Callable[[], float]]]:
    """What is told beside the signs of the watches."""
    return {
        "suture_operator_tasks": ("Tasks that are there.", lambda: len(keeper.known)),
        "suture_operator_tasks_behind": (
            "Tasks that must be looked at again: a write failed, or their row moved.",
            lambda: len(keeper.behind),
        ),
        "suture_operator_ready": ("1: Postgres and the API server answered the last look.", lambda: mirror.ready),
        "suture_operator_mirror_age_seconds": ("Since a look at the rows ended.", lambda: mirror.age),
        "suture_operator_resync_age_seconds": ("Since a comparison of all Tasks with all rows ended.", lambda: resync.age),
    }


def _sign_of_tasks(signs: Signs, namespaces: tuple[str, ...]) -> Callable[[str], Sign]:
    """By namespace, as kopf watches: each of those that are named, or all as one."""
    for namespace in namespaces or ("",):
        signs.of(PLURAL, namespace)  # one that shows nothing from the start is to be seen, too
    return lambda namespace: signs.of(PLURAL, namespace if namespaces else "")


def _hints(settings: Settings, engine: Engine, objects: Objects, signs: Signs) -> Iterator[Coroutine[Any, Any, None]]:
    """What only makes it fast: without them leases and looks tell the same, later."""
    if namespace := settings.operator.worker_namespace:
        yield Workers(engine, objects, namespace=namespace, sign=signs.of("pods", namespace)).run()
    for namespace in settings.jobs.namespaces:
        yield JobEnds(engine, objects, namespace=namespace, sign=signs.of("jobs", namespace)).run()
