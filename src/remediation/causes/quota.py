"""QuotaNeedsLimits, QuotaExceeded: the namespace's budget refuses a pod, because it states no numbers or because they do not fit.

A quota is never raised: that is its owner's decision.
"""

import re
from collections.abc import Iterator
from fractions import Fraction

from suture.remediation.admission import Refusal, refusals
from suture.remediation.citations import quote
from suture.remediation.evidence import split, template_path
from suture.remediation.incident import Change, Citation, Finding
from suture.remediation.paths import Pick, join, mapping, text, whole
from suture.remediation.quantity import amount, cpu, memory
from suture.remediation.rollout import one_by_one, surges
from suture.remediation.sightings import Scene

CODES = ("QuotaNeedsLimits", "QuotaExceeded")

_NEEDS = re.compile(r"failed quota: (?P<quota>[^:\s]+): must specify (?P<what>.+)", re.IGNORECASE | re.DOTALL)
_EXCEEDED = re.compile(
    r"exceeded quota: (?P<quota>[^,\s]+), requested: (?P<asked>\S+(?:, ?\S+)*?), used: (?P<used>\S+(?:, ?\S+)*?), limited: (?P<limit>\S+)",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"\b(limits|requests)\.(cpu|memory)\b")

MOST = {"cpu": Fraction(1, 2), "memory": Fraction(512 << 20)}
"""What one container is given at most, however much the quota leaves: enough to start and be measured."""
STEP = {"cpu": Fraction(1, 20), "memory": Fraction(16 << 20)}


def findings(scene: Scene) -> Iterator[Finding]:
    for refusal in refusals(scene, _NEEDS):
        yield _needs(refusal)
    for refusal in refusals(scene, _EXCEEDED):
        yield _exceeded(refusal)


def _needs(refusal: Refusal) -> Finding:
    wanted = sorted(set(_NUMBER.findall(refusal.found["what"])))
    lacking = [(group, c) for group, c in refusal.containers() if any(_lacks(c, part, resource) for part, resource in wanted)]
    changes = tuple(change for group, c in lacking for change in _numbers(refusal, group, c, wanted, len(lacking)))
    names = ", ".join(f"{part}.{resource}" for part, resource in wanted)
    return Finding(
        code="QuotaNeedsLimits", object=refusal.owner, container=text(lacking[0][1], "name") if len(lacking) == 1 else None,
        sentence=f"{refusal.owner} has no pod: quota {refusal.found['quota']} of {refusal.namespace} wants every container to state "
        f"{names or 'its numbers'}.",
        confidence=0.97, citations=(*refusal.cite("the API server refuses the pod"), *_quote_quota(refusal)), changes=changes,
        advice="" if changes else f"State {names or 'requests and limits'} on every container, within the quota.",
    )  # fmt: skip


def _lacks(container: object, part: str, resource: str) -> bool:
    stated = mapping(container, "resources")
    return resource not in mapping(stated, part) and not (part == "requests" and resource in mapping(stated, "limits"))


def _quota(refusal: Refusal) -> object:
    return refusal.evidence.get(f"ResourceQuota/{refusal.namespace}/{refusal.found['quota']}")


def _quote_quota(refusal: Refusal) -> tuple[Citation, ...]:
    return quote(mapping({"quota": _quota(refusal)}, "quota"), "spec.hard", "the budget of the namespace")


def _numbers(refusal: Refusal, group: str, container: object, wanted: list[tuple[str, str]], among: int) -> Iterator[Change]:
    """An equal share of what the quota leaves, for every pod that may be there at once; request and limit alike."""
    place = join(template_path(refusal.owner), "spec", group, Pick("name", text(container, "name")), "resources")
    for part, resource in wanted:
        share = _share(refusal, f"{part}.{resource}", resource, among)
        stated = [amount(mapping(container, "resources", p).get(resource)) for p in ("limits", "requests")]
        known = next((s for s in stated if s is not None), None)
        value = known if known is not None else share
        if value is not None and _lacks(container, part, resource):
            printed = cpu(value) if resource == "cpu" else memory(value)
            yield Change(object=refusal.owner, operation="add", path=join(place, part, resource), value=printed)


def _share(refusal: Refusal, name: str, resource: str, among: int) -> Fraction | None:
    quota = _quota(refusal)
    hard, used = (amount(mapping(quota, "status", side).get(name)) for side in ("hard", "used"))
    hard = hard if hard is not None else amount(mapping(quota, "spec", "hard").get(name))
    if hard is None:
        return None
    pods = (whole(refusal.evidence.get(refusal.owner), "spec", "replicas") or 1) + 1
    share = min((hard - (used or 0)) / (pods * among), MOST[resource])
    share = (share // STEP[resource]) * STEP[resource]
    return share if share > 0 else None


def _exceeded(refusal: Refusal) -> Finding:
    changes = _fewer(refusal)
    wanted = quote(refusal.evidence.get(refusal.owner) or {}, "spec.replicas", "how many pods are wanted")
    return Finding(
        code="QuotaExceeded", object=refusal.owner,
        sentence=f"{refusal.owner} lacks pods: quota {refusal.found['quota']} has no room for another one "
        f"(asks for {refusal.found['asked']}, used {refusal.found['used']} of {refusal.found['limit']}).",
        confidence=0.96, citations=(*refusal.cite("the API server refuses the pod"), *wanted, *_quote_quota(refusal)), changes=changes,
        advice="" if changes else "Ask for less, run fewer pods, or let the quota's owner decide whether it grows.",
    )  # fmt: skip


def _pairs(listed: str) -> dict[str, Fraction]:
    pairs = (pair.strip().partition("=") for pair in listed.split(","))
    return {name: number for name, _, value in pairs if (number := amount(value)) is not None}


def _fewer(refusal: Refusal) -> tuple[Change, ...]:
    """As many replicas as fit, and no extra pod during updates; not where an autoscaler sets the number."""
    owner = refusal.evidence.get(refusal.owner)
    replicas = whole(owner, "spec", "replicas")
    if owner is None or replicas is None or _autoscaled(refusal):
        return ()
    asked, used, limit = (_pairs(refusal.found[group]) for group in ("asked", "used", "limit"))
    room = [(limit[n] - used[n]) // asked[n] for n in asked if asked[n] > 0 and n in used and n in limit]
    there = _pods_there(refusal)
    fit = there + min(room, default=0)
    strategy = one_by_one(refusal.owner, owner) if split(refusal.owner)[0] == "Deployment" and surges(owner) else ()
    if fit >= replicas:
        return strategy
    if fit < 1:
        return ()
    return (Change(object=refusal.owner, operation="set", path="spec.replicas", value=int(fit), before=replicas), *strategy)


def _pods_there(refusal: Refusal) -> int:
    makers = refusal.evidence.revisions(refusal.owner) or [refusal.evidence.get(refusal.maker) or {}]
    return sum(whole(maker, "status", "replicas") or 0 for maker in makers)


def _autoscaled(refusal: Refusal) -> bool:
    kind, namespace, name = split(refusal.owner)
    targets = [mapping(h, "spec", "scaleTargetRef") for h in refusal.evidence.of_kind("HorizontalPodAutoscaler", namespace)]
    return any((text(t, "kind"), text(t, "name")) == (kind, name) for t in targets)
