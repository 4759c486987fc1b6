"""When a failure is tried again: exponential backoff with jitter. Pure."""

import random
from dataclasses import dataclass
from datetime import timedelta

from suture.errors import PermanentError, TemporaryError


@dataclass(frozen=True, slots=True)
class Retry:
    """How often, and after which pauses."""

    attempts: int = 3
    """Tries in all, the first included."""
    initial: timedelta = timedelta(seconds=1)
    """Pause after the first failure."""
    factor: float = 2.0
    """Each further pause is this many times longer."""
    maximum: timedelta = timedelta(minutes=5)
    """No pause is longer, before jitter."""
    jitter: float = 0.2
    """Up to this part of the pause is added or taken at random, so that many failures do not come back at once."""

    def delay(self, attempt: int, *, chance: float | None = None) -> timedelta:
        """Pause after failure number `attempt` (from 1). `chance` in [0, 1) replaces the random number.

        >>> [Retry().delay(n, chance=0.5).total_seconds() for n in (1, 2, 3, 40)]
        [1.0, 2.0, 4.0, 300.0]
        """
        # The exponent is bounded: 2.0 ** 1100 does not fit into a float.
        pause = min(self.maximum.total_seconds(), self.initial.total_seconds() * self.factor ** min(attempt - 1, 64))
        spread = self.jitter * (2 * (random.random() if chance is None else chance) - 1)  # noqa: S311 (no secret)
        return timedelta(seconds=pause * (1 + spread))

    def after(self, error: BaseException, attempt: int) -> timedelta | None:
        """Pause before the next try; None: this was the last one, or trying again does not help."""
        if isinstance(error, PermanentError) or attempt >= self.attempts:
            return None
        asked = error.delay if isinstance(error, TemporaryError) else None
        return max(asked, timedelta(0)) if asked is not None else self.delay(attempt)


NEVER = Retry(attempts=1)
