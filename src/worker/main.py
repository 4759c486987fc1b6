"""The worker process: wires settings to clients, clients to the workflow, the workflow to a runner; drains on SIGTERM."""

import asyncio
import logging
import os
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from suture import __version__
from suture.clients.cluster import Cluster
from suture.clients.github import GitHub
from suture.clients.http import Outbound
from suture.clients.jobs import Jobs
from suture.clients.localgit import LocalGit
from suture.clients.mounted import Mounted
from suture.clients.reach import Reach
from suture.clients.repository import Repository
from suture.engine import Database, Engine, Lease, Runner, Workflows
from suture.errands.reaper import Reaper
from suture.errors import ConfigError
from suture.remediation.records import Records
from suture.remediation.sources import ClusterSource, RecordingSource
from suture.remediation.tools import EvidenceSource, Tools
from suture.settings import Settings
from suture.worker.probes import probes

log = logging.getLogger(__name__)

PACKAGES = ("suture.engine", "suture.remediation")


async def serve(settings: Settings) -> None:
    """Claim and run until SIGTERM or SIGINT; then finish or hand back what runs.

    Raises: ConfigError.
    """
    async with AsyncExitStack() as stack:
        runner = await stack.enter_async_context(connected(settings))
        await stack.enter_async_context(probes(settings.worker.health_address, ready=lambda: runner.ready))
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, runner.stop)
        log.info("worker starts", extra={"worker": runner.name, "owner": str(runner.owner), "queues": settings.worker.queues})
        await runner.run()
        log.info("worker has stopped", extra={"worker": runner.name})


@asynccontextmanager
async def connected(settings: Settings) -> AsyncIterator[Runner]:
    """A runner with everything that its workflows need."""
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(
            Database.connect(
                settings.database.url.get_secret_value(),
                direct=settings.database.direct.get_secret_value() if settings.database.direct else None,
                size=settings.database.pool,
                packages=PACKAGES,
                plan_once=True,
            )
        )
        tools = Tools(
            records=Records(database),
            evidence=await _evidence(settings, stack),
            repository=_repository(settings),
            repository_name=_repository_name(settings),
            approval_timeout=settings.approval.timeout,
        )
        jobs = await _jobs(settings, stack)
        await stack.enter_async_context(Reaper(jobs, Engine(database)).reaping())
        yield Runner(
            database,
            Workflows.discover(settings.workflows.modules),
            name=process_name(),
            version=__version__,
            queues=settings.worker.queues,
            concurrency=settings.worker.concurrency,
            lease=Lease(**dict(settings.lease)),
            poll=settings.worker.poll,
            drain=settings.worker.drain,
            retention=settings.worker.retention,
            # By type: each workflow takes what it works with and knows nothing of the others'.
            resources={Tools: tools, Outbound: _outbound(settings), Jobs: jobs},
        )


def process_name() -> str:
    """For people: the pod, or host and process. What owns a lease is the runner's own id."""
    return os.environ.get("POD_NAME") or f"{socket.gethostname()}:{os.getpid()}"


async def _evidence(settings: Settings, stack: AsyncExitStack) -> EvidenceSource:
    if settings.evidence.source == "recording" and settings.evidence.recording is not None:
        return RecordingSource(settings.evidence.recording)
    return ClusterSource(await stack.enter_async_context(await Cluster.connect()))


async def _jobs(settings: Settings, stack: AsyncExitStack) -> Jobs:
    namespaces = settings.jobs.namespaces
    return Jobs(await stack.enter_async_context(await Cluster.connect()) if namespaces else None, namespaces=namespaces)


def _outbound(settings: Settings) -> Outbound:
    return Outbound(Reach.read(settings.http.allow), Mounted(settings.http.secrets))


def _repository(settings: Settings) -> Repository:
    chosen = settings.repository
    if not chosen.url:
        raise ConfigError("SUTURE_REPOSITORY_URL is not set: name the repository that holds the manifests of the workloads.")
    if chosen.kind == "git":
        return LocalGit(chosen.url, branch=chosen.branch)
    if chosen.token is None:
        raise ConfigError("SUTURE_REPOSITORY_KIND is github and there is no token: set SUTURE_REPOSITORY_TOKEN_FILE.")
    return GitHub(chosen.url, branch=chosen.branch, token=chosen.token.get_secret_value(), api=chosen.api)


def _repository_name(settings: Settings) -> str:
    """The address without credentials: it goes into rows and pull requests."""
    scheme, separator, rest = settings.repository.url.rpartition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}{separator}{host.rpartition('@')[2]}{slash}{path}" if separator else settings.repository.url
