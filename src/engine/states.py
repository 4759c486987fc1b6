"""The states of an execution and its legal moves, as the trigger `record_update` enforces them; a test compares the two. Pure."""

from typing import Literal, get_args

Status = Literal["enqueued", "running", "waiting", "completed", "error", "cancelled"]

STATUSES: tuple[Status, ...] = get_args(Status)

MOVES: dict[Status, frozenset[Status]] = {
    "enqueued": frozenset({"running", "cancelled", "error"}),
    "running": frozenset({"enqueued", "waiting", "completed", "error", "cancelled"}),
    "waiting": frozenset({"enqueued", "cancelled", "error"}),
    "completed": frozenset(),
    "error": frozenset(),
    "cancelled": frozenset(),
}

LIVE: frozenset[Status] = frozenset(s for s in STATUSES if MOVES[s])


def is_terminal(status: Status) -> bool:
    """Whether nothing can follow.

    >>> [s for s in STATUSES if is_terminal(s)]
    ['completed', 'error', 'cancelled']
    """
    return not MOVES[status]
