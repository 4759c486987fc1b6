"""SlowRollout: the deadline passed while nothing is broken: the new pods run, do not restart, and are not ready yet.

Going back would undo a sound change. Said only where no cause says more.
"""

from collections.abc import Iterator

from suture.remediation.citations import quote
from suture.remediation.evidence import reference
from suture.remediation.incident import Finding
from suture.remediation.paths import Object, maps, text
from suture.remediation.sightings import Container, Scene

CODES = ("SlowRollout",)


def findings(scene: Scene) -> Iterator[Finding]:
    for deployment in scene.evidence.of_kind("Deployment"):
        ref = reference(deployment)
        late = [c for c in maps(deployment, "status", "conditions") if text(c, "reason") == "ProgressDeadlineExceeded"]
        containers = [c for c in scene.of_owner(ref) if not c.gone]
        if late and containers and all(_sound(c) for c in containers) and any(not c.ready and not c.init for c in containers):
            yield _finding(deployment, ref, [c for c in containers if not c.ready and not c.init])


def _sound(container: Container) -> bool:
    if container.init:
        return container.exit_code in (None, 0)
    return container.running and container.restarts == 0 and not container.probed_to_death


def _finding(deployment: Object, ref: str, starting: list[Container]) -> Finding:
    first = starting[0]
    return Finding(
        code="SlowRollout", object=ref,
        sentence=f"The rollout of {ref} is slow and sound: {len({c.ref for c in starting})} new pods still start, none has failed.",
        confidence=0.85,
        citations=(
            *quote(deployment, "status.conditions[type=Progressing].reason", "the deadline has passed"),
            *first.cite(first.status_path("restartCount"), "nothing was restarted"),
            *first.cite(first.status_path("state"), "it runs"),
            *quote(deployment, "spec.progressDeadlineSeconds", "the time that a rollout may take"),
        ),
        advice="Wait: the rollout ends by itself. If that happens each time, a longer progressDeadlineSeconds keeps it from being "
        "reported.",
    )  # fmt: skip
