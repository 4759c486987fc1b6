"""BadCommand, BadEntrypoint: the runtime cannot start the process: there is no such program in the image, or it may not be run.

BadCommand when the manifest names the program, BadEntrypoint when the image does. There is no log then: nothing ever ran.
"""

import difflib
import re
from collections.abc import Iterator

from suture.remediation.history import changed_fields, restored
from suture.remediation.incident import Change, Citation, Finding
from suture.remediation.paths import Index, text, texts
from suture.remediation.sightings import Container, Scene, quote_line

CODES = ("BadCommand", "BadEntrypoint")

_EXEC = re.compile(
    r'exec: \\?"(?P<program>[^"\\]+)\\?":? (?:stat [^:]+: )?(?P<flaw>executable file not found in \$PATH|no such file or directory'
    r"|permission denied|is a directory)"
)
_LOGGED = re.compile(
    rb"(?m)^(?:exec (?P<direct>/[^\s:]{1,200}): (?:no such file or directory|permission denied)"
    rb"|(?:/bin/)?(?:ba|da|a)?sh: (?:line )?(?:\d{1,5}: )?(?P<shell>[^\s:]{1,200}): (?:command )?not found)\s*$"
)

COMMON = [
    "awk",
    "base64",
    "bash",
    "bundle",
    "bzip2",
    "cat",
    "chmod",
    "chown",
    "cp",
    "curl",
    "cut",
    "date",
    "dd",
    "df",
    "diff",
    "dirname",
    "echo",
    "env",
    "find",
    "gcc",
    "git",
    "go",
    "grep",
    "gunicorn",
    "gzip",
    "head",
    "hostname",
    "id",
    "java",
    "jq",
    "kubectl",
    "ln",
    "ls",
    "make",
    "mkdir",
    "mv",
    "mysql",
    "mysqldump",
    "nginx",
    "node",
    "npm",
    "npx",
    "perl",
    "pg_dump",
    "php",
    "pip",
    "printf",
    "psql",
    "python",
    "python3",
    "rake",
    "redis-server",
    "rm",
    "ruby",
    "rsync",
    "sed",
    "sh",
    "sleep",
    "sort",
    "ssh",
    "tail",
    "tar",
    "tee",
    "test",
    "touch",
    "tr",
    "true",
    "uniq",
    "unzip",
    "uvicorn",
    "wc",
    "wget",
    "which",
    "xargs",
    "yarn",
    "zip",
]
"""Programs whose names are known well enough to tell a typing error."""


def findings(scene: Scene) -> Iterator[Finding]:
    for container in scene.containers:
        if container.running and container.ready:
            continue
        told = next((s for s in container.said if _EXEC.search(s.message)), None)
        if told is not None and (found := _EXEC.search(told.message)):
            yield _finding(container, found["program"], found["flaw"], told.cite("the runtime could not start the process"))
        elif container.exit_code in (126, 127) and (logged := container.find(_LOGGED)):
            program = (logged[1]["direct"] or logged[1]["shell"]).decode("utf-8", "replace")
            yield _finding(container, program, "not found", quote_line(*logged, "the program could not be started"))


def _finding(container: Container, program: str, flaw: str, cited: tuple[Citation, ...]) -> Finding:
    command, args = texts(container.spec, "command"), texts(container.spec, "args")
    ours = bool(command) or program in args
    changes, proof = _fixes(container, program, command, args)
    field = "command" if command else "args" if program in args else "image"
    place = container.cite_source(container.source_path(field), "what was to be started") or container.cite(
        container.spec_path(field), "what was to be started"
    )
    return Finding(
        code="BadCommand" if ours else "BadEntrypoint", object=container.owner, container=container.name or None,
        sentence=f"Container {container.name} of {container.owner} never starts: {program} cannot be run in "
        f"{text(container.spec, 'image') or 'its image'} ({flaw}).",
        confidence=0.96, citations=(*cited, *place, *container.cite_death("the runtime's exit code"), *proof), changes=changes,
        advice="" if changes else "Name a program that the image has, with its full path; `permission denied` means that its file is "
        "not executable.",
    )  # fmt: skip


def _fixes(container: Container, program: str, command: list[str], args: list[str]) -> tuple[tuple[Change, ...], tuple[Citation, ...]]:
    """What the revision before had, where one field explains it; else the well-known program whose name was mistyped."""
    changed = changed_fields(container) & {"command", "args", "image"}
    if len(changed) == 1:
        return restored(container, changed.pop(), "the revision before had this")
    for field, words in (("command", command), ("args", args)):
        if words and words[0] == program and (meant := _mistyped(program)) is not None and not (field == "args" and command):
            path = container.source_path(field, Index(0))
            return (Change(object=container.owner, operation="set", path=path, value=meant, before=program),), ()
    return (), ()


def _mistyped(program: str) -> str | None:
    if program in COMMON or "/" in program or len(program) < 3:
        return None
    near = [name for name in COMMON if abs(len(name) - len(program)) <= 1 and difflib.SequenceMatcher(None, name, program).ratio() >= 0.8]
    near.sort(key=lambda name: -difflib.SequenceMatcher(None, name, program).ratio())
    best = [difflib.SequenceMatcher(None, name, program).ratio() for name in near[:2]]
    return near[0] if len(near) == 1 or (len(best) == 2 and best[0] > best[1]) else None
