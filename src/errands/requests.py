"""What the errands are asked and what they answer: plain data, checked at the door. Does nothing.

Names are camelCase in a Task and in the API. A value that sounds like a secret is refused: an input is a row that many may read.
"""

import json
import re
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, JsonValue, field_validator, model_validator
from pydantic.alias_generators import to_camel

from suture.redaction import redact_text

HTTP_REQUEST = "http-request"
KUBERNETES_JOB = "kubernetes-job"

BODY_LIMIT = 128 << 10
"""Bytes of a kept body, or of a kept log, at most. As JSON in a row it may grow sevenfold, and a row's payload has a megabyte."""

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
_VALUE = re.compile(r"[\x20-\x7e]*")
_OF_THE_CONNECTION = {
    *("host", "connection", "content-length", "transfer-encoding", "te", "trailer", "upgrade", "expect", "keep-alive"),
    *("accept-encoding", "proxy-authorization", "proxy-connection"),
}
_SECRET = re.compile(r"^(?:authorization|cookie2?)$|(?:^|[-_])(?:token|secret|password|passwd|api-?key|signature)$", re.IGNORECASE)
_SECRET_VARIABLE = re.compile(r"(?:password|passwd|token|secret|credentials?|(?:api|access|private|account)_?key)$", re.IGNORECASE)
_NEVER_KEPT = {"set-cookie", "set-cookie2", "www-authenticate", "authentication-info"}

Name = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$")]


class Asked(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True)


class Answered(BaseModel):
    model_config = ConfigDict(frozen=True)


class SecretHeader(Asked):
    """A header whose value is a mounted secret of the worker; the row holds its name alone."""

    secret: Name
    prefix: str = Field("", max_length=64, pattern=r"^[\x20-\x7e]*$")
    """What stands before it, such as `Bearer `."""


class Retrying(Asked):
    attempts: int = Field(default=5, ge=1, le=100)
    """Tries in all."""
    initial_seconds: float = Field(default=1, gt=0, le=3600)
    """Pause after the first failure; each further one is `factor` times longer, up to `maximumSeconds`."""
    factor: float = Field(default=2, ge=1, le=10)
    maximum_seconds: float = Field(default=300, gt=0, le=86_400)
    patience_seconds: float = Field(default=3600, ge=0, le=604_800)
    """The longest pause that a Retry-After may ask for; a server that asks for more ends the request."""


class HttpRequest(Asked):
    """One call. It is sent again after a lost connection, a 5xx and a 429, always with the same idempotency key."""

    method: Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] = "GET"
    url: str = Field(max_length=4096)
    headers: dict[str, str | SecretHeader] = Field({}, max_length=50)
    json_: JsonValue = Field(None, alias="json")
    body: str | None = Field(None, max_length=512 << 10)
    """Text; of `json` and `body` one at most."""
    expected: list[Annotated[int, Field(ge=100, le=599)]] = Field([], max_length=50)
    """Statuses that are a success; none named: every 2xx."""
    timeout_seconds: float = Field(default=30, gt=0, le=600)
    """Of one try, from the name to the last byte."""
    retry: Retrying = Retrying()
    idempotency_header: str = Field("Idempotency-Key", max_length=128)
    """Name of the header that carries the key; empty: none is sent."""
    keep_headers: list[str] = Field(["content-type", "etag", "location"], max_length=20)
    """Headers of the answer that are kept."""
    keep_body: bool = True
    """False keeps nothing of the answer's body: for answers that hold what no row may."""
    max_bytes: int = Field(64 << 10, ge=0, le=BODY_LIMIT)
    """Bytes of the answer's body that are read and kept; the rest is cut off."""

    @field_validator("url")
    @classmethod
    def _is_an_address(cls, url: str) -> str:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or not re.fullmatch(r"[\x21-\x7e]+", url):
            raise ValueError("must be http://… or https://… with a host, in ASCII without blanks")
        if parts.username is not None or parts.password is not None:
            raise ValueError("must not hold a user or a password: name a mounted secret in `headers`")
        if parts.fragment or redact_text(url) != url:
            raise ValueError("must not hold a fragment, nor what looks like a secret: name a mounted secret in `headers`")
        return url

    @field_validator("headers")
    @classmethod
    def _can_be_sent(cls, headers: dict[str, str | SecretHeader]) -> dict[str, str | SecretHeader]:
        if len({name.lower() for name in headers}) < len(headers):
            raise ValueError("has a name twice")
        for name, value in headers.items():
            if not _TOKEN.fullmatch(name) or name.lower() in _OF_THE_CONNECTION:
                raise ValueError(f"{name[:40]!r} is no header that can be set here")
            if isinstance(value, str) and (len(value) > 8192 or not _VALUE.fullmatch(value)):
                raise ValueError(f"the value of {name} must be up to 8192 characters of printable ASCII")
            if isinstance(value, str) and (_SECRET.search(name) or redact_text(f"{name}: {value}") != f"{name}: {value}"):
                raise ValueError(f'{name} looks like a secret: write {{"secret": NAME}}, the name of a mounted secret of the worker')
        return headers

    @field_validator("idempotency_header")
    @classmethod
    def _is_a_header(cls, name: str) -> str:
        if name and (not _TOKEN.fullmatch(name) or name.lower() in _OF_THE_CONNECTION):
            raise ValueError(f"{name!r} is no header that can be set here")
        return name

    @field_validator("keep_headers")
    @classmethod
    def _may_be_kept(cls, names: list[str]) -> list[str]:
        if wrong := next((n for n in names if not _TOKEN.fullmatch(n) or n.lower() in _NEVER_KEPT), None):
            raise ValueError(f"{wrong[:40]!r} is no header, or one that is never kept")
        return [name.lower() for name in names]

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if "json_" in self.model_fields_set and self.body is not None:
            raise ValueError("`json` and `body` are both set: keep one")
        if self.idempotency_header.lower() in {name.lower() for name in self.headers}:
            raise ValueError(
                f"`headers` has {self.idempotency_header}, the name of the idempotency header: choose another `idempotencyHeader`"
            )
        return self

    @property
    def has_json(self) -> bool:
        return "json_" in self.model_fields_set


class HttpAnswer(Answered):
    """What came back and is kept."""

    status: int
    headers: dict[str, str] = {}
    form: Literal["json", "text", "base64", "none"] = "none"
    """What `body` is: a JSON value, text, or base64 of bytes that are no text."""
    body: Any = None
    truncated: bool = False
    """Whether the body had more bytes than are kept; it is text then, whatever it was."""


def ended_event(job: str) -> str:
    """Name of the event that tells an execution that its Job has ended; the look that follows is the truth.

    >>> ended_event("suture-7")
    'job-ended:suture-7'
    """
    return f"job-ended:{job}"


class JobRequest(Asked):
    """A Job: an image and what it runs, or the `spec` of a Job as one would apply it."""

    namespace: str | None = Field(default=None, pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")
    """None: the Task's own namespace."""
    image: str | None = Field(default=None, min_length=1, max_length=1024)
    command: list[str] = Field([], max_length=256)
    args: list[str] = Field([], max_length=1024)
    env: dict[str, str] = Field({}, max_length=256)
    resources: dict[Literal["requests", "limits"], dict[str, str]] = {}
    template: dict[str, Any] | None = None
    """The `spec` of a Job, in place of `image` and what goes with it."""
    backoff_limit: int = Field(default=0, ge=0, le=100)
    """How often Kubernetes starts another pod after one has failed."""
    timeout_seconds: int = Field(default=3600, ge=1, le=604_800)
    """After this long Kubernetes ends the Job, whatever it does."""
    ttl_seconds: int = Field(default=86_400, ge=600, le=2_592_000)
    """How long the ended Job is left for people to look at; its result and the end of its log are kept here by then."""
    log_bytes: int = Field(default=16 << 10, ge=0, le=BODY_LIMIT)
    """Bytes from the end of the log that are kept, with what looks like a secret hidden."""

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        simple = self.model_fields_set & {"image", "command", "args", "env", "resources", "backoff_limit"}
        if (self.template is None) == (self.image is None) or (self.template is not None and simple):
            raise ValueError("needs either `image`, with `command`, `args`, `env`, `resources` and `backoffLimit`, or `template`")
        if self.template is not None and not _containers(self.template):
            raise ValueError("`template` is the `spec` of a Job: it has no `template.spec.containers`")
        return self

    @model_validator(mode="after")
    def _tells_no_secret(self) -> Self:
        found = {**self.env}
        for container in _containers(self.template or {}):
            variables = container.get("env")
            found |= {str(v.get("name")): str(v["value"]) for v in _objects(variables) if v.get("value")}
        if loud := next((name for name, value in found.items() if value and _SECRET_VARIABLE.search(name)), None):
            raise ValueError(
                f"the variable {loud[:60]} looks like a secret: take it from a Secret, by `valueFrom.secretKeyRef` in a `template`"
            )
        return self


class JobResult(Answered):
    """How a Job ended."""

    namespace: str
    job: str
    succeeded: bool
    reason: str = ""
    """Of a failure, as Kubernetes calls it: BackoffLimitExceeded, DeadlineExceeded …; JobGone where somebody deleted it."""
    exit_code: int | None = None
    message: str = ""
    """What the container left as its termination message, else what Kubernetes says of the Job."""
    pod: str | None = None
    log: str = ""
    """The end of the log of the container that counts."""
    log_truncated: bool = False
    log_note: str = ""
    """Why there is no log, where there is none."""


def _containers(spec: dict[str, Any]) -> list[dict[str, Any]]:
    pod = (_object(spec.get("template")).get("spec")) or {}
    found = _objects(_object(pod).get("containers"))
    return [*found, *_objects(_object(pod).get("initContainers"))] if found else []


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _objects(value: object) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def told(workflow: str, output: object) -> str | None:
    """What came of an errand, in a line for people; None for what is none of ours.

    >>> told("http-request", {"status": 201, "body": "made"})
    '201 made'
    """
    match workflow, output:
        case name, {"status": int(status), "body": body} if name == HTTP_REQUEST:
            words = body if isinstance(body, str) else json.dumps(body, ensure_ascii=False) if body is not None else ""
            return f"{status} {words}".strip()
        case name, {"job": str(job), "message": str(message), "log": str(log)} if name == KUBERNETES_JOB:
            return message.strip() or next((line for line in reversed(log.splitlines()) if line.strip()), f"{job} has succeeded")
    return None
