"""BadArguments: the program that starts does not know an argument that it is given.

Often the program is another one, or another version, than the arguments were written for: then the image goes back, not the argument away.
"""

import re
from collections.abc import Iterator

from suture.remediation.citations import quote
from suture.remediation.history import changed_fields, restored
from suture.remediation.incident import Change, Citation, Finding
from suture.remediation.paths import Index, join, text, texts
from suture.remediation.references import nearest
from suture.remediation.sightings import Container, Scene, quote_line

CODES = ("BadArguments",)

_UNKNOWN = re.compile(
    rb"(?im)^.{0,300}?(?:flag provided but not defined:|unknown (?:shorthand )?flag:(?: '.' in)?|unrecognized (?:arguments?"
    rb"|options?):?|unknown (?:arguments?|options?):?"
    rb"|no such option:|invalid option(?: --)?:?|illegal option(?: --)?:?|bad option:?|unexpected (?:argument|option)|found argument"
    rb"|unsupported option:?|invalid argument:?)"
    rb" ?[\"'`]?(?P<flag>-{0,2}[A-Za-z0-9][A-Za-z0-9._-]{0,80})"
)
_USAGE = re.compile(rb"(?im)^ *usage:? *(?:of )?(?P<program>[^\s:]{1,120})")
_LISTED = re.compile(rb"(?m)(?<![\w-])(-{1,2}[A-Za-z][A-Za-z0-9-]{1,60})")


def findings(scene: Scene) -> Iterator[Finding]:
    for container in scene.containers:
        if not container.spoke_last:
            continue
        logged = container.find(_UNKNOWN)
        if logged is not None:
            yield _finding(container, logged[1]["flag"].decode("utf-8", "replace"), quote_line(*logged, "the program does not know it"))


def _finding(container: Container, flag: str, cited: tuple[Citation, ...]) -> Finding:
    usage = container.find(_USAGE)
    program = usage[1]["program"].decode("utf-8", "replace") if usage else text(container.spec, "image") or "the program"
    which = quote_line(*usage, "which program it was that started") if usage else ()
    place = _place(container, flag)
    given = quote(container.pod, place, "where it is given") if place and not container.gone else ()
    changes, proof = _fixes(container, flag)
    return Finding(
        code="BadArguments", object=container.owner, container=container.name or None,
        sentence=f"Container {container.name} of {container.owner} ends at once: {program} does not know the argument {flag}.",
        confidence=0.95 if given else 0.8, citations=(*cited, *which, *given, *proof), changes=changes,
        advice="" if changes else "Find the image whose program knows the argument; take the argument away only if nobody wants it "
        "any more.",
    )  # fmt: skip


def _bare(word: str) -> str:
    return word.lstrip("-").partition("=")[0]


def _place(container: Container, flag: str) -> str | None:
    for field in ("args", "command"):
        for number, word in enumerate(texts(container.spec, field)):
            if word.startswith("-") and _bare(word) == _bare(flag):
                return container.spec_path(join(field, Index(number)))
    return None


def _fixes(container: Container, flag: str) -> tuple[tuple[Change, ...], tuple[Citation, ...]]:
    """Back to the revision before, where the image or the arguments alone changed; else the argument that the usage text knows."""
    changed = changed_fields(container) & {"image", "args", "command"}
    if len(changed) == 1:
        return restored(container, changed.pop(), "the revision before had this, with the rest as it is now")
    return _respelt(container, flag) if not changed else ((), ())


def _respelt(container: Container, flag: str) -> tuple[tuple[Change, ...], tuple[Citation, ...]]:
    known = {
        _bare(m.decode()): m.decode() for log in container.logs for m in _LISTED.findall(log.content) if _bare(m.decode()) != _bare(flag)
    }
    meant = nearest(_bare(flag), sorted(known), cutoff=0.85)
    for field in ("args", "command"):
        for number, word in enumerate(texts(container.spec, field)):
            if meant is not None and word.startswith("-") and _bare(word) == _bare(flag):
                value = word.replace(_bare(word), meant, 1)
                path = container.source_path(join(field, Index(number)))
                return (Change(object=container.owner, operation="set", path=path, value=value, before=word),), ()
    return (), ()
