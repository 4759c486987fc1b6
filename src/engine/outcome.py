"""What an error means for an execution: the text that is safe to keep, and whether the whole is tried again. Pure."""

from datetime import timedelta

from suture.engine.records import Execution, Failure
from suture.engine.retry import Retry
from suture.errors import SutureError


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
