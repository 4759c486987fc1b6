"""NoFault: there were warnings, and all is well now: every container is ready and none was ever restarted.

A verdict, not a cause: it keeps a false alarm from becoming a change.
"""

from collections.abc import Iterator

from suture.remediation.evidence import split
from suture.remediation.incident import Finding
from suture.remediation.paths import maps, text
from suture.remediation.sightings import Container, Scene

CODES = ("NoFault",)


def findings(scene: Scene) -> Iterator[Finding]:
    owners = dict.fromkeys(c.owner for c in scene.containers if not c.gone)
    for owner in owners:
        containers = [c for c in scene.of_owner(owner) if not c.gone]
        worried = [c for c in containers if any(s.reason == "Unhealthy" for s in c.said)]
        if worried and all(_well(c) for c in containers) and not _old(worried):
            yield _finding(owner, worried[0])


def _well(container: Container) -> bool:
    conditions = maps(container.pod, "status", "conditions")
    unready = any(text(c, "type") == "Ready" and text(c, "status") != "True" for c in conditions)
    return not unready and (container.init or (container.running and container.ready and container.restarts == 0))


def _old(containers: list[Container]) -> bool:
    """A pod of a Job that is done says nothing about now."""
    return any(split(c.owner)[0] in ("Job", "CronJob") for c in containers)


def _finding(owner: str, container: Container) -> Finding:
    told = next(s for s in container.said if s.reason == "Unhealthy")
    return Finding(
        code="NoFault", object=owner,
        sentence=f"Nothing is wrong with {owner}: its warnings are from a start that is over; all its pods are ready and none was "
        f"restarted.",
        confidence=0.9,
        citations=(
            *told.cite("the warning"),
            *container.cite(container.status_path("ready"), "it is ready now"),
            *container.cite(container.status_path("restartCount"), "it was never restarted"),
        ),
        advice="Change nothing.",
    )  # fmt: skip
