"""Where evidence comes from: the cluster, or a recording on disk. Both end in the same redacted `Evidence`."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

from suture.clients.cluster import Cluster
from suture.remediation.documents import read_recording
from suture.remediation.evidence import Evidence, Log, Note
from suture.remediation.incident import Workload


@dataclass(frozen=True, slots=True)
class RecordingSource:
    """The evidence that was recorded in `folder`, whatever the workload."""

    folder: Path

    async def collect(self, workload: Workload) -> Evidence:
        """Raises: EvidenceUnreadable."""
        return await asyncio.to_thread(read_recording, self.folder)


@dataclass(frozen=True, slots=True)
class ClusterSource:
    """What the API server and the kubelets say now."""

    cluster: Cluster

    async def collect(self, workload: Workload) -> Evidence:
        """Raises: ServiceUnavailable, RateLimited, AccessDenied."""
        found = await self.cluster.collect(workload.namespace, workload.kind, workload.name)
        logs = tuple(Log(log.namespace, log.pod, log.container, log.previous, log.content) for log in found.logs)
        notes = tuple(Note(title, message.encode()) for title, message in found.notes.items())
        return Evidence(objects=tuple(found.objects), logs=logs, notes=notes)
