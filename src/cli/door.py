"""The door: how a command reaches the rows. One rule for every command that looks at the engine or steers it.

With SUTURE_DATABASE_URL set it speaks to Postgres itself: whoever holds that address may do everything anyway, and a service that embeds
the engine has no gateway. Without, it asks the gateway at SUTURE_CLIENT_URL, where a token says who may do what. What only the gateway can
decide (who may answer a proposal, whether a new task's input fits) always goes through it: see `approvals` and `tasks create`.
"""

import getpass
import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol
from uuid import UUID

from suture.cli.gateway import Gateway
from suture.settings import Settings

Answer = Any
"""JSON as the gateway's interface describes it: the same words and shapes through either door."""


Look = Callable[[], Awaitable[Answer]]
"""What `suture top` asks every second, on a connection that it keeps."""


class Door(Protocol):
    """What can be asked of the rows; each steering call records who asked."""

    def tasks(self, *, status: str, type: str, queue: str, workload: str, limit: int) -> Answer: ...  # noqa: A002
    def task(self, task: UUID) -> Answer: ...
    def timeline(self, task: UUID) -> Answer: ...
    def steps(self, task: UUID) -> Answer: ...
    def cancel(self, task: UUID, *, reason: str) -> Answer: ...
    def requeue(self, task: UUID, *, from_step: str) -> Answer: ...
    def fork(self, task: UUID, *, from_step: str) -> Answer: ...
    def dead_letters(self, *, state: str, type: str, queue: str, limit: int) -> Answer: ...  # noqa: A002
    def discard(self, task: UUID, *, reason: str) -> Answer: ...
    def workers(self) -> Answer: ...
    def queues(self) -> Answer: ...
    def pause_queue(self, name: str, *, reason: str) -> Answer: ...
    def resume_queue(self, name: str, *, reason: str) -> Answer: ...
    def limit_queue(self, name: str, changes: Mapping[str, Any], *, reason: str) -> Answer: ...
    def pauses(self) -> Answer: ...
    def pause_steps(self, step: str, *, workflow: str, reason: str) -> Answer: ...
    def resume_steps(self, step: str, *, workflow: str) -> Answer: ...
    def schedules(self) -> Answer: ...
    def pause_schedule(self, name: str) -> Answer: ...
    def resume_schedule(self, name: str) -> Answer: ...
    def run_schedule(self, name: str) -> Answer: ...
    def watching(self) -> AbstractAsyncContextManager[Look]: ...


def open_door() -> Door:
    """The door that this process's environment chooses. Raises: ConfigError."""
    database = Settings.read(os.environ).database
    if "url" not in database.model_fields_set:
        return Gateway()
    from suture.cli.rows import Rows  # noqa: PLC0415 (a command that asks the gateway loads no engine)

    return Rows(database.url.get_secret_value(), actor=me())


def me() -> str:
    """Who types: the user of the operating system. The gateway records the name of the token instead."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container's user without a line in /etc/passwd
        return f"uid {os.geteuid()}"
