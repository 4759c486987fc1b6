"""The settings: every knob of every process, read once at start. Only `main` modules import this; the rest receives values.

A setting GROUP.FIELD is read from the environment as SUTURE_GROUP_FIELD. A secret may also stand in a file, named by
SUTURE_GROUP_FIELD_FILE: that is how the chart passes mounted Secrets. Unknown SUTURE_ names are refused, with a suggestion.
"""

import difflib
import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal, Self, get_args
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails
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
    """Address of Postgres 15 or newer; a pooler (PgBouncer in transaction or session mode) may stand between: it is found out."""
    pool: int = Field(default=10, ge=2, le=200)
    """Connections that one process holds at most. Two are the least: one beats while the other works."""
    direct: SecretStr | None = None
    """Another address for the one connection that carries LISTEN and presence: past the pooler, where `url` leads to one. None: `url`.
    Wrong here, nothing breaks: polling and the lease are the truth, hints only make it fast."""

    @field_validator("url", "direct")
    @classmethod
    def _names_postgres(cls, value: SecretStr | None) -> SecretStr | None:
        if value and not value.get_secret_value().startswith(("postgresql://", "postgres://")):
            raise ValueError("an address of Postgres starts with postgresql://")
        return value


class LeaseSettings(BaseModel, frozen=True):
    duration: Seconds = timedelta(seconds=30)
    """How long a claim lasts without a heartbeat: the longest that a lost worker can delay its work.
    Shorter finds the dead sooner; longer forgives pauses (garbage collection, a slow node). Three heartbeats must fit."""
    heartbeat: Seconds = timedelta(seconds=10)
    """Pause between two heartbeats; one statement renews all that a worker holds."""
    grace: Seconds = timedelta(milliseconds=500)
    """How long a worker's presence may be missing before its work is taken: a blip of its connection must not cost a re-run."""
    crash_limit: int = Field(default=5, ge=1, le=1000)
    """Lost workers that one execution survives; the next makes it a dead letter, since it may be what kills them."""
    suspect: int = Field(default=3, ge=1, le=1000)
    """Lost workers from which an execution counts as suspect: a worker runs one such at a time, so that it takes no innocent one along."""
    restart: Seconds = timedelta(seconds=5)
    """How long after a start of Postgres nobody from before counts as lost: their leases ran out while it was away, they come back."""
    blocked: Seconds = timedelta(minutes=5)
    """How long steps may block their event loop until heartbeats stop: a process that hangs for ever must lose its work some time."""


class WorkerSettings(BaseModel, frozen=True):
    queues: Names = ("default",)
    """Queues that this worker serves, separated by commas."""
    concurrency: int = Field(default=16, ge=1, le=10_000)
    """Executions that run at the same time in one process."""
    poll: Seconds = timedelta(seconds=1)
    """Longest pause between two looks at the queue; a NOTIFY cuts it short. Jittered by a fifth."""
    drain: Seconds = timedelta(seconds=20)
    """After SIGTERM: how long the steps under way may still finish. Then they are handed back. Keep it below the pod's grace."""
    retention: Seconds = timedelta(days=90)
    """How long an ended execution stays in the history, with its steps and timeline, at least: whole months are dropped. One that lives is
    never dropped, however old."""
    health_address: str = "0.0.0.0:8081"
    """Where /healthz and /readyz are served, for the kubelet too, which probes from outside the pod; empty turns them off."""


class WorkflowSettings(BaseModel, frozen=True):
    modules: Names = ()
    """Modules with further workflows, or `module:function`, beside those that installed distributions offer by the entry-point group
    `suture.workflows`. Worker, operator and gateway need the same."""


class ApiSettings(BaseModel, frozen=True):
    address: str = "127.0.0.1:8080"
    """Where the gateway listens."""
    tokens: SecretStr | None = None
    """Static bearer tokens, `name=token` or `name:role=token`, one a line or separated by commas; roles: viewer, operator (default),
    approver. None: every door but signed webhooks and probes is closed."""
    pagerduty_secret: SecretStr | None = None
    """Signing secrets of the PagerDuty subscription, separated by commas during a rotation. None: the endpoint answers 503."""
    body_limit: int = Field(default=1 << 20, ge=1 << 10, le=25 << 20)
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

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if self.kind == "github" and not re.fullmatch(r"[\w.-]+/[\w.-]+", self.url):
            raise ValueError("SUTURE_REPOSITORY_KIND is `github`: SUTURE_REPOSITORY_URL must be owner/name")
        if "://" in self.url and urlsplit(self.url).password:
            # The address is shown in logs and on pages; the value is kept out of this sentence for the same reason.
            raise ValueError("SUTURE_REPOSITORY_URL carries a password: take it out, SUTURE_REPOSITORY_TOKEN keeps it secret")
        return self


class ApprovalSettings(BaseModel, frozen=True):
    timeout: Seconds = timedelta(days=14)
    """How long a proposal waits for a person before it expires."""


class EvidenceSettings(BaseModel, frozen=True):
    source: Literal["cluster", "recording"] = "cluster"
    """Where evidence comes from: the cluster that the worker runs in, or a recording on disk (demo, tests, post mortem)."""
    recording: Path | None = None
    """The folder of the recording; read when `source` is `recording`."""


class HttpSettings(BaseModel, frozen=True):
    allow: Names = ()
    """What `http-request` may reach beside public addresses: addresses, CIDRs, hosts, `*.domain`, separated by commas. A host opens its
    private addresses, never the link's (169.254.0.0/16 and fe80::/10, where clouds keep credentials): those only as a CIDR."""
    secrets: Path | None = None
    """Folder of the secrets that a request may name: NAME/value, and NAME/origins with each `https://host` that it may be sent to.
    None: there are none."""


class JobsSettings(BaseModel, frozen=True):
    namespaces: Names = ()
    """Namespaces in which `kubernetes-job` may create Jobs, separated by commas; empty: in none. The operator hears there of their ends."""


class OperatorSettings(BaseModel, frozen=True):
    namespaces: Names = ()
    """Namespaces to watch, separated by commas; empty: all."""
    resync: Seconds = timedelta(seconds=60)
    """Pause between two comparisons of the API server with the rows: what a watch missed is found after this long at most."""
    mirror: Seconds = timedelta(seconds=1)
    """Pause between two looks for changed rows to mirror into status."""
    worker_namespace: str = ""
    """Namespace of the workers' pods: when one goes, its work is taken over at once. Empty: the leases alone tell."""
    health_address: str = "0.0.0.0:8081"
    """Where /healthz, /readyz and /metrics are served, for the kubelet too, which probes from outside the pod; empty turns them off."""


class ClientSettings(BaseModel, frozen=True):
    url: str = "http://127.0.0.1:8080"
    """Where the command line finds the gateway."""
    token: SecretStr | None = None
    """Bearer token that the command line shows to the gateway."""


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
    workflows: WorkflowSettings = WorkflowSettings()
    api: ApiSettings = ApiSettings()
    repository: RepositorySettings = RepositorySettings()
    approval: ApprovalSettings = ApprovalSettings()
    evidence: EvidenceSettings = EvidenceSettings()
    http: HttpSettings = HttpSettings()
    jobs: JobsSettings = JobsSettings()
    operator: OperatorSettings = OperatorSettings()
    client: ClientSettings = ClientSettings()
    log: LogSettings = LogSettings()

    @classmethod
    def read(cls, environ: Mapping[str, str]) -> Self:
        """Read `environ`, and the files that its SUTURE_…_FILE names point to."""
        given = _given(environ, known=set(names(cls)))
        try:
            return cls(**_Environment(cls, given)())
        except ValidationError as error:
            raise ConfigError("; ".join(_complaint(e, given, secrets=set(_secrets(cls))) for e in error.errors())) from None

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Only what `read` passes: the process's environment and a stray .env file are never looked at behind its back."""
        return (init_settings,)

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if self.lease.heartbeat * 3 > self.lease.duration:
            raise ValueError(
                f"three heartbeats of {self.lease.heartbeat.total_seconds():g} s (SUTURE_LEASE_HEARTBEAT) do not fit into a lease of "
                f"{self.lease.duration.total_seconds():g} s (SUTURE_LEASE_DURATION): one lost heartbeat would cost the lease"
            )
        if self.lease.suspect > self.lease.crash_limit:
            raise ValueError(
                f"an execution would be a dead letter after {self.lease.crash_limit} lost workers (SUTURE_LEASE_CRASH_LIMIT) and never a "
                f"suspect, which takes {self.lease.suspect} (SUTURE_LEASE_SUSPECT)"
            )
        if self.lease.blocked < self.lease.duration:
            raise ValueError(
                f"a loop that is blocked for {self.lease.blocked.total_seconds():g} s (SUTURE_LEASE_BLOCKED) would lose its work before "
                f"a lease of {self.lease.duration.total_seconds():g} s (SUTURE_LEASE_DURATION) has run out"
            )
        if self.evidence.source == "recording" and self.evidence.recording is None:
            raise ValueError("SUTURE_EVIDENCE_SOURCE is `recording` but SUTURE_EVIDENCE_RECORDING names no folder")
        return self


def fields(model: type[BaseModel], prefix: str = PREFIX) -> Iterator[tuple[str, FieldInfo]]:
    """Every setting with its environment name, in the order of the code."""
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from fields(field.annotation, f"{prefix}{name.upper()}_")
        else:
            yield f"{prefix}{name.upper()}", field


def names(model: type[BaseModel]) -> Iterator[str]:
    """The environment names of all settings, in the order of the code."""
    return (name for name, _ in fields(model))


def secret(field: FieldInfo) -> bool:
    """Whether the value must never be shown."""
    return SecretStr in (field.annotation, *get_args(field.annotation))


def _secrets(model: type[BaseModel]) -> Iterator[str]:
    return (name for name, field in fields(model) if secret(field))


class _Environment(EnvSettingsSource):
    def __init__(self, settings_cls: type[BaseSettings], given: Mapping[str, str]) -> None:
        self._given = given
        super().__init__(settings_cls)

    def _load_env_vars(self) -> Mapping[str, str | None]:
        return {name.lower(): value for name, value in self._given.items()}


def _given(environ: Mapping[str, str], *, known: set[str]) -> dict[str, str]:
    ours = {name: value for name, value in environ.items() if name.startswith(PREFIX) and not _foreign(name, value, known)}
    files = {name.removesuffix("_FILE"): name for name in ours.keys() - known if name.removesuffix("_FILE") in known}
    if twice := sorted(files.keys() & ours.keys()):
        raise ConfigError("; ".join(f"{name} and {files[name]} are both set: keep one" for name in twice))
    if unknown := sorted(ours.keys() - known - set(files.values())):
        raise ConfigError("; ".join(f"{name} is no setting.{_suggestion(name, known)}" for name in unknown))
    plain = {name: value for name, value in ours.items() if name in known}
    return plain | {name: _contents(file, ours[file]) for name, file in files.items()}


_SERVICE_LINK = re.compile(r"(^|_)(SERVICE_HOST|SERVICE_PORT\w*|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$")


def _foreign(name: str, value: str, known: set[str]) -> bool:
    """Kubernetes sets SUTURE_API_PORT=tcp://… and the like in every pod beside a Service called suture-api; the tests keep
    SUTURE_TEST_ and SUTURE_RIG_ for themselves.
    """
    rest = name.removeprefix(PREFIX)
    if name in known or not (link := _SERVICE_LINK.search(rest)):
        return rest.startswith(("TEST_", "RIG_"))
    return link[2] != "PORT" or "://" in value


def _contents(name: str, path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{name} names {path}, which cannot be read: {getattr(error, 'strerror', None) or 'not text'}") from None


def _suggestion(name: str, known: set[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f" Did you mean {near[0]}?" if near else " See the table of settings in the README."


def _complaint(error: ErrorDetails, given: Mapping[str, str], *, secrets: set[str]) -> str:
    name = PREFIX + "_".join(str(part) for part in error["loc"]).upper()
    message = error["msg"].removeprefix("Value error, ")
    if name not in given:
        return message  # of a check across settings: it names them itself
    return f"{name}: {message}" if name in secrets else f"{name} is `{given[name]}`: {message}"
