"""MissingEnv: the program wants a variable that it is not given.

Its name is known, its value is not: no value is ever made up. The revision before may know it, or the variable is there under a
mistyped name.
"""

import re
from collections.abc import Iterator

from suture.redaction import MASK
from suture.remediation.history import earlier
from suture.remediation.incident import Change, Citation, Finding
from suture.remediation.paths import New, Object, Pick, join, maps, text
from suture.remediation.references import nearest
from suture.remediation.sightings import Container, Scene, quote_line

CODES = ("MissingEnv",)

_NAME = rb"[\"'`$({]{0,3}(?<![A-Z0-9_])(?P<name>[A-Z][A-Z0-9_]{1,80})[\"'`)}]{0,2}"
_WANTED = tuple(
    re.compile(pattern)
    for pattern in (
        rb"(?m)^KeyError: '(?P<name>[A-Z][A-Z0-9_]{1,80})'\s*$",
        rb"(?i:required |mandatory |missing |undefined |unset |no )(?i:required |mandatory )?(?i:env(?:ironment)?(?: "
        rb"|_)?(?:variables?|vars?)?|variable|setting|key)s?:? {1,2}" + _NAME,
        rb"(?i:env(?:ironment)?[ _]?(?:variable|var)?|variable):? {0,2}" + _NAME + rb":? (?i:(?:is )?(?:not (?:set|found|defined"
        rb"|present|specified)|missing|required|undefined|unset|empty)|must be (?:set|provided|specified)|required)",
        _NAME + rb":? (?i:is (?:a )?(?:required|mandatory)(?: (?:environment )?variable)?|(?:is )?not set|is missing|is undefined"
        rb"|must be (?:set|provided|specified)|unbound variable|parameter (?:null or )?not set"
        rb"|environment variable (?:is )?(?:not set|required|missing))",
    )
)  # fmt: skip


def findings(scene: Scene) -> Iterator[Finding]:
    for container in scene.containers:
        if not container.spoke_last:
            continue
        for pattern in _WANTED:
            logged = container.find(pattern)
            name = logged[1]["name"].decode() if logged else ""
            if logged is not None and len(name) > 2 and not _given(container, name):
                yield _finding(container, name, quote_line(*logged, "the program says which variable it lacks"))
                break


def _given(container: Container, name: str) -> bool:
    return any(text(v, "name") == name and _is_set(v) for v in maps(container.spec, "env"))


def _is_set(variable: Object) -> bool:
    return bool(variable.get("value") or variable.get("valueFrom"))


def _finding(container: Container, name: str, cited: tuple[Citation, ...]) -> Finding:
    changes, proof = _fixes(container, name)
    names = [text(v, "name") for v in maps(container.spec, "env")]
    has = (
        container.cite(container.spec_path("env"), f"what it is given; {name} is not among it")
        if names
        else container.cite_death("how it ended")
    )
    return Finding(
        code="MissingEnv", object=container.owner, container=container.name or None,
        sentence=f"Container {container.name} of {container.owner} ends at once: the variable {name} is required and not set.",
        confidence=0.92, citations=(*cited, *has, *proof), changes=changes,
        advice="" if changes else f"Someone who knows the value sets {name} at {container.source_path('env')} of {container.owner}; "
        "neither the evidence nor an earlier revision holds it.",
    )  # fmt: skip


def _fixes(container: Container, name: str) -> tuple[tuple[Change, ...], tuple[Citation, ...]]:
    for revision in earlier(container)[:1]:
        was = next((v for v in maps(revision.spec, "env") if text(v, "name") == name), None)
        if was is not None and _is_set(was) and was.get("value") != MASK:
            change = Change.model_validate(
                {"object": container.owner, "operation": "add", "path": container.source_path("env", New()), "value": dict(was)}
            )
            return (change,), revision.cite(join("env", Pick("name", name), "name"), "the revision before set it")
    names = [text(v, "name") for v in maps(container.spec, "env")]
    meant = nearest(name, names, cutoff=0.85)
    if meant is None:
        return (), ()
    path = container.source_path("env", Pick("name", meant), "name")
    return (Change(object=container.owner, operation="set", path=path, value=name, before=meant),), ()
