"""The Task resource as Python sees it: frozen values, read from what the API server printed. Pure; the schema itself is in crds/.

Reads leniently: an object that the schema should have refused becomes a Task whose spec is the complaint, never an exception. Decides
nothing (see `reconcile`) and writes nothing (see `objects`).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from suture.errors import InvalidRequest

GROUP: Final = "suture.dev"
VERSION: Final = "v1alpha1"
PLURAL: Final = "tasks"
KIND: Final = "Task"

FINALIZER: Final = "suture.dev/cancel"
"""On a Task whose execution lives: its deletion cancels first. It is the only thing that the operator writes into metadata."""

MANAGER: Final = "suture-operator"
"""Field manager of all that the operator writes."""

_DURATION = re.compile(r"(?=.)(?:(\d{1,6})h)?(?:(\d{1,8})m)?(?:(\d{1,9})s)?")


def duration(text: object) -> timedelta | None:
    """The length of `90s`, `30m`, `36h` or `1h30m`.

    >>> duration("1h30m")
    datetime.timedelta(seconds=5400)
    """
    if text is None:
        return None
    if not isinstance(text, str) or not (found := _DURATION.fullmatch(text)):
        raise ValueError(f"`{text}` is no duration such as 90s, 30m or 36h")
    hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return timedelta(hours=hours, minutes=minutes, seconds=seconds)


class Spec(BaseModel):
    """What a Task asks for."""

    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=to_camel, strict=True)

    type: str = Field(min_length=1)
    input: dict[str, Any] = {}
    operation_key: str | None = None
    queue: str = Field("default", min_length=1)
    priority: int = 0
    max_attempts: int | None = Field(None, ge=1)
    deadline: Annotated[timedelta | None, BeforeValidator(duration)] = None
    suspend: bool = False
    cancel: bool = False


@dataclass(frozen=True, slots=True)
class Meta:
    """Which Task it is, and in which version it was seen."""

    namespace: str
    name: str
    uid: str
    generation: int
    resource_version: str
    created_at: datetime
    deleting: bool = False
    finalizers: tuple[str, ...] = ()
    ended: bool = False
    """Its status says that its execution has ended. That counts when the row is gone by retention: a Task never runs twice."""


@dataclass(frozen=True, slots=True)
class Task:
    """One Task, as it was printed once."""

    meta: Meta
    spec: Spec | InvalidRequest
    """What it asks for, or why that cannot be read."""
    status: Mapping[str, Any]

    @classmethod
    def read(cls, body: Mapping[str, Any]) -> Self:
        """The Task in an object of the API."""
        status = body.get("status") or {}
        return cls(_meta(body["metadata"], status), _spec(body.get("spec")), status)

    @property
    def execution_id(self) -> str | None:
        found = self.status.get("executionId")
        return found if isinstance(found, str) else None

    def without_input(self) -> Self:
        """The same, without what is large: its row holds the input now."""
        return self if isinstance(self.spec, InvalidRequest) else replace(self, spec=self.spec.model_copy(update={"input": {}}))


def _meta(metadata: Mapping[str, Any], status: Mapping[str, Any]) -> Meta:
    return Meta(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        generation=metadata.get("generation", 1),
        resource_version=metadata["resourceVersion"],
        created_at=datetime.fromisoformat(metadata["creationTimestamp"]).astimezone(UTC),
        deleting="deletionTimestamp" in metadata,
        finalizers=tuple(metadata.get("finalizers") or ()),
        ended="finishedAt" in status and "executionId" in status,
    )


def _spec(spec: object) -> Spec | InvalidRequest:
    try:
        return Spec.model_validate(spec)
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, ('spec', *e['loc'])))}: {e['msg']}" for e in error.errors(include_url=False))
        return InvalidRequest(f"The spec cannot be read: {wrong}.")
