"""The errors: one tree, each class with a stable reason. The lowest layer; it imports nothing of ours.

SutureError                    reason (stable, CamelCase), a message that names the value and the way out
  ConfigError                  refuse to start, exit code 2
  TemporaryError               trying again helps; carries `delay`
    DatabaseUnavailable (NoSession)  ServiceUnavailable  RateLimited  BaseMoved
  PermanentError               trying again does not: a person or another input must change something
    InvalidRequest  Unauthenticated  AccessDenied  NotFound  Conflict  IllegalTransition  PayloadTooLarge  PayloadUnfit
    UnexpectedAnswer  JobFailed
    ChildFailed  StepFailed
    UnknownWorkflow  ReplayMismatch  EvidenceUnreadable  ManifestUnreadable  EditRefused  ToolMissing

Signals (BaseException: no `except Exception` in a step can swallow them; raised by the engine alone)
  Suspended                    the execution waits for a time or an event; no failure, costs no attempt
  LeaseLost                    another worker owns the execution: stop now, write nothing
"""

from datetime import timedelta
from typing import ClassVar
from uuid import UUID


class SutureError(Exception):
    """Something went wrong."""

    reason: ClassVar[str] = "Error"
    http_status: ClassVar[int] = 500

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.reason = cls.__dict__.get("reason", cls.__name__)

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (type(self).__doc__ or "").strip())

    @property
    def message(self) -> str:
        """What a person may read."""
        return str(self)


class ConfigError(SutureError):
    """A setting is wrong: the process refuses to start."""


class TemporaryError(SutureError):
    """Trying again helps."""

    http_status = 503

    def __init__(self, message: str | None = None, *, delay: timedelta | None = None) -> None:
        super().__init__(message)
        self.delay = delay
        """How long to wait before the next try; None leaves it to the retry policy."""


class DatabaseUnavailable(TemporaryError):
    """Postgres can not be reached."""


class NoSession(DatabaseUnavailable):
    """A pooler answers where a session of one's own is needed."""


class ServiceUnavailable(TemporaryError):
    """An outside service does not answer as it should."""


class RateLimited(TemporaryError):
    """An outside service asks for patience."""

    http_status = 429


class BaseMoved(TemporaryError):
    """The branch that the change was based on has moved on: it must be proposed again."""


class PermanentError(SutureError):
    """Trying again does not help."""

    http_status = 422


class InvalidRequest(PermanentError):
    """The request is not well-formed."""


class Unauthenticated(PermanentError):
    """The caller did not say who it is, or not in a way that can be believed."""

    http_status = 401


class AccessDenied(PermanentError):
    """The caller may not do this."""

    http_status = 403


class NotFound(PermanentError):
    """There is no such thing."""

    http_status = 404


class Conflict(PermanentError):
    """Another request with the same key, but another content, was accepted before."""

    http_status = 409


class IllegalTransition(PermanentError):
    """The execution's state does not allow this."""

    http_status = 409


class PayloadTooLarge(PermanentError):
    """The payload is larger than the limit."""

    http_status = 413

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"The payload has {size:,} bytes and the limit is {limit:,}. Store it elsewhere and pass its address.")


class PayloadUnfit(PermanentError):
    """The payload holds a value that JSON in Postgres cannot keep exactly."""


class UnexpectedAnswer(PermanentError):
    """A service answered what the request does not call a success."""


class JobFailed(PermanentError):
    """A Job of Kubernetes ended without success, or did not stay to its end."""


class UnknownWorkflow(PermanentError):
    """No worker knows this workflow."""


class ReplayMismatch(PermanentError):
    """The workflow's code no longer fits the steps that are recorded."""


class ChildFailed(PermanentError):
    """A child execution did not complete."""

    child: UUID | None = None
    """Its id."""
    cause: str = ""
    """The reason of its own error, or Cancelled."""


class StepFailed(PermanentError):
    """The step failed for good in an earlier run, with an error whose class cannot be found or made here."""


class EvidenceUnreadable(PermanentError):
    """The evidence is not something that Kubernetes printed."""


class ManifestUnreadable(PermanentError):
    """The manifest is not YAML that can be edited."""


class EditRefused(PermanentError):
    """The edit cannot be made safely."""


class ToolMissing(PermanentError):
    """A program that is needed is not installed."""


class Signal(BaseException):
    """Control flow of the engine, not a failure."""


class Suspended(Signal):
    """The execution waits; its row says for what."""


class LeaseLost(Signal):
    """Another worker owns the execution now: stop, write nothing."""
