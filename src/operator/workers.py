"""The workers' pods: when one goes, the engine is told at once, and its work is taken over without waiting for a lease.

Only a hint, as presence is: the lease is the truth, and a worker that lives after all keeps what nobody has taken yet. Any number of
replicas may tell the same. A container that is restarted in its pod is no loss seen from here: its next life has the pod's name, too.
"""

import asyncio
import logging
from typing import Any, Final

from suture.engine import Engine
from suture.errors import DatabaseUnavailable
from suture.operator.objects import Objects
from suture.operator.signs import Sign
from suture.operator.watching import Listed, Object, follow

log = logging.getLogger(__name__)

SELECTOR: Final = "app.kubernetes.io/name=suture,app.kubernetes.io/component=worker"
"""What the chart and the plain manifests label a worker's pod with. A worker's name is its pod's."""

_AGAIN = 0.5  # seconds between two tries to tell while Postgres is away


class Workers:
    """`namespace`: where the workers run."""

    def __init__(self, engine: Engine, objects: Objects, *, namespace: str, sign: Sign) -> None:
        self._engine, self._objects, self._namespace, self._sign = engine, objects, namespace, sign
        self._here: dict[str, str] = {}
        """Names of the pods that live, by uid."""

    async def run(self) -> None:
        """Watch for ever."""
        async for seen in follow(self._objects, f"/api/v1/namespaces/{self._namespace}/pods", selector=SELECTOR, sign=self._sign):
            if isinstance(seen, Listed):
                await self._compare(seen.objects)
            else:
                await self._heed(seen.object, gone=seen.gone)

    async def _compare(self, pods: list[Object]) -> None:
        """Whoever was here and is not listed any more went while nobody looked."""
        listed = {pod["metadata"]["uid"] for pod in pods}
        for uid in self._here.keys() - listed:
            await self._tell(self._here.pop(uid), "its pod is gone")
        for pod in pods:
            await self._heed(pod, gone=False)

    async def _heed(self, pod: Object, *, gone: bool) -> None:
        uid, name = pod["metadata"]["uid"], pod["metadata"]["name"]
        why = "its pod is gone" if gone else lost(pod)
        if why is None:
            self._here[uid] = name
        elif self._here.pop(uid, None) is not None:
            await self._tell(name, why)

    async def _tell(self, name: str, why: str) -> None:
        while True:
            try:
                ended = await self._engine.expire(name)
            except DatabaseUnavailable:
                await asyncio.sleep(_AGAIN)
            else:
                log.info("a worker is lost: %s", why, extra={"worker": name, "executions": len(ended)})
                return


def lost(pod: Object) -> str | None:
    """Why nothing runs in the pod any more, as far as its status tells; None while something may.

    >>> lost({"status": {"phase": "Running"}}), lost({"status": {"phase": "Failed", "reason": "Evicted"}})
    (None, 'its pod has failed: Evicted')
    """
    status: dict[str, Any] = pod.get("status") or {}
    if status.get("phase") in ("Failed", "Succeeded"):
        return f"its pod has {status['phase'].lower()}: {status.get('reason', 'it has ended')}"
    # Only the kubelet writes of containers, and Ready with them. Where all of them are ready and the pod is not, the node controller wrote
    # last: the node does not answer.
    ready = next((c["status"] for c in status.get("conditions") or () if c["type"] == "Ready"), None)
    containers = status.get("containerStatuses") or ()
    gated = bool(pod.get("spec", {}).get("readinessGates"))
    if ready == "False" and containers and all(c.get("ready") for c in containers) and not gated:
        return "its node does not answer"
    return None
