"""Durable executions on Postgres: a library that any Python service can embed. Knows nothing of Kubernetes, chat or incidents.

Hand work in with `Engine`, write it with `workflow` and `Run`, run it with `Runner`; `migrate` prepares the database.
"""

from suture.engine.database import Database, Session
from suture.engine.engine import Engine
from suture.engine.lease import Lease
from suture.engine.migrate import migrate
from suture.engine.queues import Limits, Queue, Queues, Rate
from suture.engine.records import Checkpoint, DeadLetter, Enqueued, Event, Execution, Failure, Health, Move
from suture.engine.retry import NEVER, Retry
from suture.engine.run import Run
from suture.engine.runner import Runner
from suture.engine.schedules import Schedule
from suture.engine.states import LIVE, MOVES, STATUSES, Status, is_terminal
from suture.engine.workflows import Workflow, Workflows, workflow

__all__ = [
    "LIVE",
    "MOVES",
    "NEVER",
    "STATUSES",
    "Checkpoint",
    "Database",
    "DeadLetter",
    "Engine",
    "Enqueued",
    "Event",
    "Execution",
    "Failure",
    "Health",
    "Lease",
    "Limits",
    "Move",
    "Queue",
    "Queues",
    "Rate",
    "Retry",
    "Run",
    "Runner",
    "Schedule",
    "Session",
    "Status",
    "Workflow",
    "Workflows",
    "is_terminal",
    "migrate",
    "workflow",
]
