"""The first two steps: take the evidence before the pod is gone, and let the rules look at what was frozen."""

import asyncio
from uuid import UUID

from suture.remediation.diagnosis import diagnose
from suture.remediation.evidence import Evidence
from suture.remediation.incident import Diagnosis, Incident
from suture.remediation.tools import Frozen, Tools


async def freeze(tools: Tools, task_id: UUID, incident: Incident) -> Frozen:
    """Collect and keep the evidence of a task. What an earlier try froze stays: the first look is the one that counts."""
    frozen = await tools.records.evidence(task_id)
    if not frozen:
        evidence = await tools.evidence.collect(incident.workload)
        frozen = await tools.records.freeze(task_id, [(item.kind, item.ref, item.content) for item in evidence.to_items()])
    kept = Evidence.from_items(frozen)
    return Frozen(digest=kept.digest, objects=len(kept.objects), logs=len(kept.logs))


async def diagnose_frozen(tools: Tools, task_id: UUID, incident: Incident) -> Diagnosis:
    """What the rules say of the frozen evidence; the same evidence always has the same diagnosis."""
    items = await tools.records.evidence(task_id)
    return await asyncio.to_thread(lambda: diagnose(Evidence.from_items(items), incident.workload))
