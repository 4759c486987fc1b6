"""BadConfigValue: the configuration is there and cannot be read.

Proven by reading it: a mounted file of a ConfigMap that is no JSON or YAML, while the program complains. One broken file that stops four
programs is one fault, of the ConfigMap. Repaired only where a superfluous comma is all that is wrong: then no value changes.
"""

import json
import re
from collections.abc import Iterator

from suture.remediation.citations import quote
from suture.remediation.evidence import reference, written_name
from suture.remediation.history import restored
from suture.remediation.incident import Change, Citation, Finding
from suture.remediation.paths import Field, Object, Pick, join, mapping, maps, text
from suture.remediation.references import references
from suture.remediation.sightings import Container, Scene, quote_line
from suture.remediation.yaml_documents import Unfit, load_yaml

CODES = ("BadConfigValue",)

_COMPLAINT = re.compile(
    rb"(?im)^.{0,300}?(?:JSONDecodeError|invalid character .{1,40} (?:looking for|in|after)|unexpected token|JSON(?:\.parse| input)"
    rb"|SyntaxError: .*JSON|parse error|yaml: (?:line \d|unmarshal)"
    rb"|YAMLException|ScannerError|ParserError|toml|(?:cannot|can't|could not|failed to|error|unable to) (?:parse|read|load|decode"
    rb"|unmarshal|pars|load)\w* .{0,40}(?:config|setting|json|yaml|file))"
)
_BAD_VALUE = re.compile(
    rb"(?im)^.{0,300}?(?:invalid (?:value|literal|syntax|duration|boolean|number|level|url|port|setting)|cannot parse"
    rb"|strconv\.\w+: parsing|could not convert|time: (?:invalid|missing|unknown)|not a valid)"
    rb".{0,200}"
)
_QUOTED = re.compile(rb"[\"'`]([^\"'`\n]{1,200})[\"'`]")
_COMMA = re.compile(r",(\s*[}\]])")


def findings(scene: Scene) -> Iterator[Finding]:
    for container in scene.containers:
        if not container.crashing and not container.gone:
            continue
        broken = [found for config_map in _mounted(container) for found in _broken_files(config_map)]
        if broken:
            yield from (_broken_file(container, *found) for found in broken)
        else:
            yield from _refused_value(container)


def _mounted(container: Container) -> list[Object]:
    names = dict.fromkeys(r.name for r in references(container, "ConfigMap"))
    found = [container.evidence.get(f"ConfigMap/{container.namespace}/{name}") for name in names]
    return [config_map for config_map in found if config_map is not None]


def _broken_files(config_map: Object) -> Iterator[tuple[Object, str, str]]:
    for key, content in mapping(config_map, "data").items():
        if isinstance(content, str) and content.strip() and (flaw := _flaw(key, content)):
            yield config_map, key, flaw


def _flaw(key: str, content: str) -> str:
    """What is wrong with a file, by the format that its name states; empty where nothing is."""
    try:
        if key.endswith(".json"):
            json.loads(content)
        elif key.endswith((".yaml", ".yml")) and "*" not in content and "{{" not in content:
            load_yaml(content, deepest=64)
    except json.JSONDecodeError as error:
        return f"{error.msg}, line {error.lineno}"
    except Unfit as error:
        return str(error)
    except RecursionError:
        return "nested too deeply"
    return ""


def _broken_file(container: Container, config_map: Object, key: str, flaw: str) -> Finding:
    complaint = container.find(_COMPLAINT)
    ref = reference(config_map)
    file = quote(config_map, join("data", Field(key)), f"this is not readable: {flaw}")
    changes = _without_comma(config_map, key)
    end = container.cite_death(f"container {container.name} of {container.owner} ended")
    return Finding(
        code="BadConfigValue", object=written_name(ref),
        sentence=f"The file {key} of {ref} cannot be read ({flaw}); what mounts it ends at once, {container.owner} among it.",
        confidence=0.96 if complaint else 0.8,
        citations=(*file, *(quote_line(*complaint, "the program complains of it") if complaint else ()), *end), changes=changes,
        advice="" if changes else f"Correct {key} at the place that is named; the programs then start by themselves.",
    )  # fmt: skip


def _without_comma(config_map: Object, key: str) -> tuple[Change, ...]:
    content = text(config_map, "data", key)
    mended = _COMMA.sub(r"\1", content)
    if not key.endswith(".json") or mended == content or _flaw(key, mended):
        return ()
    return (Change(object=reference(config_map), operation="set", path=join("data", Field(key)), value=mended, before=content),)


def _refused_value(container: Container) -> Iterator[Finding]:
    """The program quotes a value that it does not take, and exactly one of its settings has it."""
    logged = container.find(_BAD_VALUE)
    if logged is None:
        return
    quoted = {m.decode("utf-8", "replace") for m in _QUOTED.findall(logged[1][0])}
    given = [v for v in maps(container.spec, "env") if text(v, "value") and text(v, "value") in quoted]
    cited = quote_line(*logged, "the program refuses a value")
    if len(given) == 1:
        name, value = text(given[0], "name"), text(given[0], "value")
        place = container.cite(container.spec_path("env", Pick("name", name), "value"), "where the value is given")
        changes, proof = restored(container, "env", "the revision before had these")
        yield _refused(container, container.owner, f"{name}={value}", (*cited, *place, *proof), changes)
        return
    for config_map in _mounted(container):
        keys = [k for k, v in mapping(config_map, "data").items() if isinstance(v, str) and v.strip() and v.strip() in quoted]
        if len(keys) == 1:
            place = quote(config_map, join("data", Field(keys[0])), "where the value is given")
            yield _refused(container, written_name(reference(config_map)), keys[0], (*cited, *place), ())


def _refused(container: Container, carrier: str, what: str, cited: tuple[Citation, ...], changes: tuple[Change, ...]) -> Finding:
    return Finding(
        code="BadConfigValue", object=carrier, container=container.name if carrier == container.owner else None,
        sentence=f"Container {container.name} of {container.owner} ends at once: it does not take the value of {what}.",
        confidence=0.85, citations=cited, changes=changes,
        advice="" if changes else "Set a value that the program takes; its message says which form it wants.",
    )  # fmt: skip
