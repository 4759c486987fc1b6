"""Durable executions on Postgres: a library that any Python service can embed. Knows nothing of Kubernetes, chat or incidents.

Hand work in with `Engine`, write it with `workflow` and `Run`, run it with `Runner`; `migrate` prepares the database.
"""

from suture.engine.database import Database, Session
from suture.engine.engine import Engine, Reuse
from suture.engine.family import Child
from suture.engine.history import Failures, History, SlowStep, StepStatistics, WorkflowStatistics
from suture.engine.lease import Lease
from suture.engine.letters import DeadLetters
from suture.engine.migrate import migrate
from suture.engine.queues import Limits, Queue, Queues, Rate
from suture.engine.records import Checkpoint, DeadLetter, Enqueued, Event, Execution, Failure, Health, Move
from suture.engine.retry import NEVER, Retry
from suture.engine.run import Run
from suture.engine.runner import Runner
from suture.engine.schedules import Missed, Overlap, Schedule, Schedules
from suture.engine.states import LIVE, MOVES, STATUSES, Status, is_terminal
from suture.engine.steps import PausedStep, Steps
from suture.engine.transaction import Connection, Done, Isolation
from suture.engine.workflows import Workflow, Workflows, workflow
from suture.errors import (
    ChildFailed,
    ConfigError,
    Conflict,
    DatabaseUnavailable,
    IllegalTransition,
    InvalidRequest,
    LeaseLost,
    NotFound,
    PayloadTooLarge,
    PayloadUnfit,
    PermanentError,
    ReplayMismatch,
    StepFailed,
    Suspended,
    SutureError,
    TemporaryError,
    UnknownWorkflow,
)

__all__ = [
    "LIVE",
    "MOVES",
    "NEVER",
    "STATUSES",
    "Checkpoint",
    "Child",
    "ChildFailed",
    "ConfigError",
    "Conflict",
    "Connection",
    "Database",
    "DatabaseUnavailable",
    "DeadLetter",
    "DeadLetters",
    "Done",
    "Engine",
    "Enqueued",
    "Event",
    "Execution",
    "Failure",
    "Failures",
    "Health",
    "History",
    "IllegalTransition",
    "InvalidRequest",
    "Isolation",
    "Lease",
    "LeaseLost",
    "Limits",
    "Missed",
    "Move",
    "NotFound",
    "Overlap",
    "PausedStep",
    "PayloadTooLarge",
    "PayloadUnfit",
    "PermanentError",
    "Queue",
    "Queues",
    "Rate",
    "ReplayMismatch",
    "Retry",
    "Reuse",
    "Run",
    "Runner",
    "Schedule",
    "Schedules",
    "Session",
    "SlowStep",
    "Status",
    "StepFailed",
    "StepStatistics",
    "Steps",
    "Suspended",
    "SutureError",
    "TemporaryError",
    "UnknownWorkflow",
    "Workflow",
    "WorkflowStatistics",
    "Workflows",
    "is_terminal",
    "migrate",
    "workflow",
]
