"""What an error means for an execution: the text that is safe to keep, whether the whole is tried again, what a later run raises. Pure."""

import sys
from datetime import timedelta
from typing import Any

from suture.engine.records import Execution, Failure
from suture.engine.retry import Retry
from suture.errors import StepFailed, SutureError


def explain(error: BaseException, *, step: str | None = None) -> Failure:
    """The failure as a row may hold it.

    The message of our own errors is written to be shown. Any other error may quote a secret (an address with a password, a
    request's headers), so only its type is kept; the worker's log has the rest.
    """
    if isinstance(error, SutureError):
        return Failure(error.reason, error.message, step)
    return Failure("UnexpectedError", f"{type(error).__name__}; the worker's log has the details", step)


def again(error: BaseException, retry: Retry, *, tries: int, execution: Execution) -> timedelta | None:
    """Pause before what failed `tries` times is tried again, or None when it is not.

    `max_attempts` limits the execution's tries in all, of its steps and between them.
    """
    if execution.max_attempts is not None and execution.attempt >= execution.max_attempts:
        return None
    return retry.after(error, tries)


def remembered(error: Exception) -> dict[str, Any]:
    """A step's last error as its checkpoint: a workflow that caught it shall catch the same in every later run."""
    told = explain(error)
    return {"reason": told.reason, "message": told.message, "type": f"{type(error).__module__}:{type(error).__qualname__}"}


def recalled(kept: dict[str, Any]) -> Exception:
    """The error of `remembered`: of the same class, so that the same `except` meets it, with the message that is kept.

    What else the object held is gone. A class that is not loaded here, or cannot be made of a message, becomes StepFailed.
    """
    cls, message = _loaded(str(kept.get("type", ""))), str(kept.get("message", ""))
    try:
        error = cls.__new__(cls, message) if cls else StepFailed(message)
        if isinstance(error, SutureError):
            SutureError.__init__(error, message)
    except (TypeError, ValueError, AttributeError):  # a class that wants more than a message
        error = StepFailed(message)
    if isinstance(error, StepFailed):
        error.__dict__["reason"] = str(kept.get("reason", StepFailed.reason))
    return error


def _loaded(path: str) -> type[Exception] | None:
    """A class by its module and name, of the modules that are loaded anyway: a row never makes anything be imported."""
    module, _, name = path.partition(":")
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found if isinstance(found, type) and issubclass(found, Exception) else None
