"""The settings: every knob of every process, read once at start. Only `main` modules import this; the rest receives values.

A setting GROUP.FIELD is read from the environment as SUTURE_GROUP_FIELD. A secret may also stand in a file, named by
SUTURE_GROUP_FIELD_FILE: that is how the chart passes mounted Secrets. Unknown SUTURE_ names are refused, with a suggestion.
"""

import difflib
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, BeforeValidator, Field, SecretStr, ValidationError, model_validator
from pydantic_settings import BaseSettings, EnvSettingsSource, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

from suture.errors import ConfigError

PREFIX = "SUTURE_"


def _split(value: object) -> object:
    return tuple(filter(None, (part.strip() for part in value.split(",")))) if isinstance(value, str) else value


Names = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split)]
"""Names separated by commas."""


def _number(value: object) -> object:
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


Seconds = Annotated[timedelta, BeforeValidator(_number), Field(gt=timedelta(0))]
"""A duration: a number of seconds (`30`, `0.5`) or ISO 8601 (`PT30S`)."""


class DatabaseSettings(BaseModel, frozen=True):
    url: SecretStr = SecretStr("postgresql:///suture")
    """Address of Postgres 15 or newer. Through PgBouncer in transaction mode too: no prepared statement outlives a transaction."""
    pool: int = Field(10, ge=2, le=200)
    """Connections that one process holds at most. Two are the least: one beats while the other works."""
    direct: SecretStr | None = None
    """Address that bypasses PgBouncer, for the one connection that carries LISTEN and presence. None: `url` is direct.
    Wrong here, nothing breaks: polling and the lease are the truth, hints only make it fast."""


class LeaseSettings(BaseModel, frozen=True):
    duration: Seconds = timedelta(seconds=30)
    """How long a claim lasts without a heartbeat: the longest that a lost worker can delay its work.
    Shorter finds the dead sooner; longer forgives pauses (garbage collection, a slow node). Three heartbeats must fit."""
    heartbeat: Seconds = timedelta(seconds=10)
    """Pause between two heartbeats; one statement renews all that a worker holds."""
    grace: Seconds = timedelta(milliseconds=500)
    """How long a worker's presence may be missing before its work is taken: a blip of its connection must not cost a re-run."""


class WorkerSettings(BaseModel, frozen=True):
    queues: Names = ("default",)
    """Queues that this worker serves, separated by commas."""
    concurrency: int = Field(16, ge=1, le=10_000)
    """Executions that run at the same time in one process."""
    poll: Seconds = timedelta(seconds=1)
    """Longest pause between two looks at the queue; a NOTIFY cuts it short. Jittered by a fifth."""
    drain: Seconds = timedelta(seconds=20)
    """After SIGTERM: how long the steps under way may still finish. Then they are handed back. Keep it below the pod's grace."""
    health_address: str = "0.0.0.0:8081"  # noqa: S104 (the kubelet probes from outside the pod)
    """Where /healthz and /readyz are served; empty turns them off."""


class ApiSettings(BaseModel, frozen=True):
    address: str = "127.0.0.1:8080"
    """Where the gateway listens."""
    tokens: SecretStr | None = None
    """Static bearer tokens, `name=token` or `name:role=token`, one a line or separated by commas; roles: viewer, operator (default),
    approver. None: every door but signed webhooks and probes is closed."""
    pagerduty_secret: SecretStr | None = None
    """Signing secrets of the PagerDuty subscription, separated by commas during a rotation. None: the endpoint answers 503."""
    body_limit: int = Field(1 << 20, ge=1 << 10, le=25 << 20)
    """Largest request body in bytes; it is enforced before the body is read. PagerDuty sends 256 KiB at most."""


class RepositorySettings(BaseModel, frozen=True):
    kind: Literal["git", "github"] = "git"
    """`git`: any repository that git reaches (a path, file://, git://, https://), the pull request is a record that the console
    shows. `github`: a real pull request."""
    url: str = ""
    """Where the manifests of the workloads live. For `github`: owner/name."""
    branch: str = "main"
    """The branch that is deployed: the base of every change."""
    token: SecretStr | None = None
    """GitHub token with contents and pull-request write access to that one repository."""
    api: str = "https://api.github.com"
    """GitHub's API; for Enterprise Server https://HOST/api/v3."""


class ApprovalSettings(BaseModel, frozen=True):
    timeout: Seconds = timedelta(days=14)
    """How long a proposal waits for a person before it expires."""


class EvidenceSettings(BaseModel, frozen=True):
    source: Literal["cluster", "recording"] = "cluster"
    """Where evidence comes from: the cluster that the worker runs in, or a recording on disk (demo, tests, post mortem)."""
    recording: Path | None = None
    """The folder of the recording; read when `source` is `recording`."""


class OperatorSettings(BaseModel, frozen=True):
    namespaces: Names = ()
    """Namespaces to watch, separated by commas; empty: all."""
    resync: Seconds = timedelta(seconds=60)
    """Pause between two comparisons of the API server with the rows: what a watch missed is found after this long at most."""
    mirror: Seconds = timedelta(seconds=1)
    """Pause between two looks for changed rows to mirror into status."""
    health_address: str = "0.0.0.0:8081"  # noqa: S104 (the kubelet probes from outside the pod)
    """Where /healthz is served."""


class LogSettings(BaseModel, frozen=True):
    level: Literal["debug", "info", "warning", "error"] = "info"
    """The least severe message that is written."""
    format: Literal["json", "console"] = "json"
    """`json` for machines, one object a line; `console` for people."""


class Settings(BaseSettings):
    """Every setting of every process.

    Raises: ConfigError, with each wrong name or value and what would be right.
    """

    model_config = SettingsConfigDict(env_prefix=PREFIX, env_nested_delimiter="_", env_nested_max_split=1, frozen=True, extra="forbid")

    database: DatabaseSettings = DatabaseSettings()
    lease: LeaseSettings = LeaseSettings()
    worker: WorkerSettings = WorkerSettings()
    api: ApiSettings = ApiSettings()
    repository: RepositorySettings = RepositorySettings()
    approval: ApprovalSettings = ApprovalSettings()
    evidence: EvidenceSettings = EvidenceSettings()
    operator: OperatorSettings = OperatorSettings()
    log: LogSettings = LogSettings()

    @classmethod
    def read(cls, environ: Mapping[str, str]) -> Self:
        """Read `environ`, and the files that its SUTURE_…_FILE names point to."""
        given = {name: value for name, value in environ.items() if name.startswith(PREFIX)}
        known = set(names(cls))
        for name in [n for n in given if n.endswith("_FILE") and n.removesuffix("_FILE") in known]:
            given[name.removesuffix("_FILE")] = _contents(name, given.pop(name))
        for name in given.keys() - known:
            raise ConfigError(f"{name} is no setting.{_suggestion(name, known)}")

        class Reader(cls):  # type: ignore[valid-type, misc]
            @classmethod
            def settings_customise_sources(
                cls, settings_cls: type[BaseSettings], **_: PydanticBaseSettingsSource
            ) -> tuple[PydanticBaseSettingsSource, ...]:
                return (_Environment(settings_cls, given),)

        try:
            return cls.model_construct(**dict(Reader()))
        except ValidationError as error:
            raise ConfigError("; ".join(_complaint(e["loc"], e["msg"]) for e in error.errors(include_input=False))) from None

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if self.lease.heartbeat * 3 > self.lease.duration:
            raise ValueError(
                f"three heartbeats of {self.lease.heartbeat.total_seconds():g} s do not fit into a lease of "
                f"{self.lease.duration.total_seconds():g} s: one lost heartbeat would cost the lease"
            )
        if self.evidence.source == "recording" and self.evidence.recording is None:
            raise ValueError("SUTURE_EVIDENCE_SOURCE is `recording` but SUTURE_EVIDENCE_RECORDING names no folder")
        return self


def names(model: type[BaseModel], prefix: str = PREFIX) -> Iterator[str]:
    """The environment names of all settings, in the order of the code."""
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from names(field.annotation, f"{prefix}{name.upper()}_")
        else:
            yield f"{prefix}{name.upper()}"


class _Environment(EnvSettingsSource):
    def __init__(self, settings_cls: type[BaseSettings], given: Mapping[str, str]) -> None:
        self._given = given
        super().__init__(settings_cls)

    def _load_env_vars(self) -> Mapping[str, str | None]:
        return {name.lower(): value for name, value in self._given.items()}


def _contents(name: str, path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{name} names {path}, which cannot be read: {getattr(error, 'strerror', None) or 'not text'}") from None


def _suggestion(name: str, known: set[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f" Did you mean {near[0]}?" if near else " See the table of settings in the README."


def _complaint(place: tuple[int | str, ...], message: str) -> str:
    name = PREFIX + "_".join(str(part) for part in place).upper() if place else "settings"
    return f"{name}: {message.removeprefix('Value error, ')}"
