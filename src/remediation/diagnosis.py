"""Diagnosis: every cause is asked, every citation is checked, the root cause comes first.

Knows no failure class itself (see `causes`) and repairs nothing. A finding with a citation that is not true is thrown away,
whoever made it.
"""

from collections.abc import Iterable, Sequence

from suture.remediation.causes import CAUSES, GENERAL, QUIET, Cause
from suture.remediation.citations import proven
from suture.remediation.evidence import Evidence, involved, split
from suture.remediation.incident import Diagnosis, Finding, Workload
from suture.remediation.sightings import Container, Scene

MOST_CITATIONS = 8
"""Citations of one finding that are shown; a fault on fifty pods is proven by the first ones."""


def diagnose(evidence: Evidence, workload: Workload | None = None, *, causes: Sequence[Cause] = CAUSES) -> Diagnosis:
    """What the rules say of the evidence. With `workload`, what concerns it comes first, and another workload's fault is never its cause.

    Pure: equal evidence has an equal diagnosis.
    """
    scene = Scene(evidence)
    found = [finding for cause in causes for finding in cause.findings(scene) if proven(evidence, finding)]
    merged = _precise(_merged(found))
    loud = [finding for finding in merged if finding.code not in QUIET]
    quiet = [finding for finding in merged if finding.code in QUIET]
    kept = [finding for finding in quiet if not any(_share_a_workload(evidence, finding, other) for other in loud)]
    overruled = [finding for finding in quiet if finding not in kept]
    ordered, elsewhere = _first(evidence, [*loud, *kept], workload)
    unknown = [] if loud else [_unexplained(container) for container in scene.containers if container.crashing and not container.logs]
    ruled_out = (*map(_overruled, overruled), *map(_elsewhere, elsewhere), *unknown)
    return Diagnosis(findings=tuple(ordered), ruled_out=ruled_out)


def _merged(findings: Iterable[Finding]) -> list[Finding]:
    """One finding a fault: the same code on the same container of the same owner is one, however many pods show it."""
    merged: dict[tuple[str, str, str | None], Finding] = {}
    for finding in findings:
        key = (finding.code, finding.object, finding.container)
        known = merged.get(key)
        merged[key] = finding if known is None else _joined(known, finding)
    return list(merged.values())


def _joined(known: Finding, other: Finding) -> Finding:
    more = [citation for citation in other.citations if citation not in known.citations]
    citations = (*known.citations, *more)[: max(MOST_CITATIONS, len(known.citations))]
    better = other if other.changes and not known.changes else known
    return better.model_copy(update={"citations": citations, "confidence": max(known.confidence, other.confidence)})


def _precise(findings: list[Finding]) -> list[Finding]:
    """Without what is only the general form of another finding on the same container."""
    known = {(f.object, f.container) for f in findings if f.code not in GENERAL}
    return [f for f in findings if f.code not in GENERAL or (f.object, f.container) not in known]


def _first(evidence: Evidence, findings: list[Finding], workload: Workload | None) -> tuple[list[Finding], list[Finding]]:
    """The order of `CAUSES` is that of the chain from cause to effect; what concerns the workload moves ahead of all else.

    Where nothing concerns it, what other workloads suffer from is set apart: a person asked about this one.
    """
    if workload is None:
        return findings, []
    mine = [finding for finding in findings if str(workload) in _workloads(evidence, finding)]
    others = [finding for finding in findings if finding not in mine]
    shared = [finding for finding in others if not split(finding.object)[1]]
    return ([*mine, *others], []) if mine else (shared, [finding for finding in others if finding not in shared])


def _share_a_workload(evidence: Evidence, one: Finding, other: Finding) -> bool:
    return bool(_workloads(evidence, one) & _workloads(evidence, other))


def _workloads(evidence: Evidence, finding: Finding) -> set[str]:
    """What a finding concerns: its object, and the owners of what it quotes."""
    return {finding.object} | {evidence.top(_subject(evidence, citation.object)) for citation in finding.citations}


def _subject(evidence: Evidence, quoted: str) -> str:
    """The object that a quoted piece is about: the pod of a log, what an event tells of, else itself."""
    if quoted.startswith("log/"):
        return "Pod/" + "/".join(quoted.split("/")[1:3])
    event = evidence.get(quoted) if quoted.startswith("Event/") else None
    return quoted if event is None else involved(event)


def _unexplained(container: Container) -> str:
    return (
        f"Container {container.name} of {container.owner} ended with exit code {container.exit_code} and its log is not in the evidence: "
        "what it wrote would tell, no cause of its own can be ruled in or out."
    )


def _elsewhere(finding: Finding) -> str:
    return f"{finding.code} of {finding.object} was seen as well, and does not concern the workload that was asked about."


def _overruled(finding: Finding) -> str:
    return f"{finding.code} of {finding.object}: another fault was found there, so it is not merely slow or noisy."
