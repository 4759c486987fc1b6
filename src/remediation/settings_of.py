"""Settings of a container: the values that it is given, each with the object and path where a person would change it.

Literal variables, variables from ConfigMaps, and arguments. Shared by the causes around hosts that do not resolve or do not answer.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from suture.remediation.citations import quote
from suture.remediation.evidence import Evidence, reference
from suture.remediation.incident import Citation
from suture.remediation.paths import Field, Index, Object, Pick, join, mapping, maps, text, texts
from suture.remediation.sightings import Container

_HOST = re.compile(
    r"(?:[a-z][a-z0-9+.-]{1,20}://)?(?:[^@/\s:]{1,100}(?::[^@/\s]{0,100})?@)?(?P<host>[A-Za-z0-9][A-Za-z0-9.-]{0,250})(?::(?P<port>\d{1,5}))?(?:[/?].*)?"
)


LONGEST_ADDRESS = 512
"""Characters. What is longer is no address; and matching stays cheap."""


@dataclass(frozen=True)
class Setting:
    """One value that a container is given."""

    name: str
    value: str
    object: str
    path: str
    cited: tuple[Citation, ...]

    @property
    def host(self) -> str:
        """The host that the value names; empty where it is no address."""
        found = _HOST.fullmatch(self.value.strip()) if len(self.value) <= LONGEST_ADDRESS else None
        host = found["host"].rstrip(".") if found else ""
        return (
            host
            if re.search(r"[A-Za-z]", host)
            and ("." in host or (found is not None and found["port"]) or "://" in self.value or self._named_so)
            else ""
        )

    @property
    def _named_so(self) -> bool:
        return re.search(r"(?:HOST|ADDR|ADDRESS|URL|URI|ENDPOINT|SERVER|UPSTREAM|DSN|BROKERS?)S?$", self.name, re.IGNORECASE) is not None


def settings_of(container: Container) -> list[Setting]:
    """Everything that the container is given as text."""
    return [*_variables(container), *_arguments(container)]


def _variables(container: Container) -> Iterator[Setting]:
    for source in maps(container.spec, "envFrom"):
        config_map = _config_map(container, text(source, "configMapRef", "name"))
        for key in mapping(config_map, "data"):
            yield from _from_config_map(config_map, key, text(source, "prefix") + key)
    for variable in maps(container.spec, "env"):
        name, place = text(variable, "name"), Pick("name", text(variable, "name"))
        wanted = mapping(variable, "valueFrom", "configMapKeyRef")
        if wanted:
            yield from _from_config_map(_config_map(container, text(wanted, "name")), text(wanted, "key"), name)
        elif value := text(variable, "value"):
            cited = container.cite(container.spec_path("env", place, "value"), "the address that it is given")
            yield Setting(name, value, container.owner, container.source_path("env", place, "value"), cited)


def _config_map(container: Container, name: str) -> Object:
    return container.evidence.get(f"ConfigMap/{container.namespace}/{name}") or {}


def _from_config_map(config_map: Object, key: str, name: str) -> Iterator[Setting]:
    value, path = text(config_map, "data", key), join("data", Field(key)) if key else ""
    if value and path:
        yield Setting(name, value, reference(config_map), path, quote(config_map, path, "the address that it is given"))


def _arguments(container: Container) -> Iterator[Setting]:
    for field in ("command", "args"):
        for number, word in enumerate(texts(container.spec, field)):
            name, equals, value = word.partition("=")
            cited = container.cite(container.spec_path(join(field, Index(number))), "the address that it is given")
            yield Setting(
                name if equals else "", value if equals else word, container.owner, container.source_path(join(field, Index(number))), cited
            )


def service_of(evidence: Evidence, host: str, namespace: str) -> tuple[str, str] | None:
    """The namespace and name of the Service that a host would be; None where it is a name of the world outside."""
    stem = re.sub(r"\.svc(?:\.[a-z0-9.-]+)?$", "", host)
    parts = stem.split(".")
    if stem != host and len(parts) == 2:
        return parts[1], parts[0]
    if len(parts) == 1:
        return namespace, parts[0]
    known = {text(n, "metadata", "name") for n in evidence.of_kind("Namespace")}
    return (parts[1], parts[0]) if len(parts) == 2 and parts[1] in known else None
