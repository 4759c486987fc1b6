"""The oracle: says of a database, and of what the world outside saw, whether a campaign broke a rule. A rule is a query (oracle.sql)."""

import json
import re
import time
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg

STEPS = (
    ("reserve", "step"),
    ("announce", "effect"),
    ("pause", "sleep"),
    ("price", "step"),
    ("approval", "wait"),
    ("deliver", "effect"),
    ("settle", "step"),
)
"""Of the workflow of `worker`, in order."""

_TABLES = """
create schema oracle;
create table oracle.steps (place int, step text, kind text);
create table oracle.enqueued (id uuid, at timestamptz);
create table oracle.bodies (id uuid, step text, epoch bigint, at timestamptz);
create table oracle.acts (key text, id uuid, step text, looked_at timestamptz, at timestamptz);
create table oracle.emitted (id uuid, name text, by text);
create index on oracle.acts (key);
create index on oracle.emitted (id);
"""


def rules() -> dict[str, str]:
    """Each rule's name and its query for what breaks it."""
    blocks = re.split(r"^-- rule: (.+)\n", Path(__file__).with_name("oracle.sql").read_text(), flags=re.MULTILINE)[1:]
    return dict(zip(blocks[::2], blocks[1::2], strict=True))


async def testify(
    psql: "asyncpg.Connection[Any]", world: Path, *, enqueued: Iterable[UUID], emitted: Iterable[tuple[UUID, str, str]]
) -> None:
    """Bring before the oracle what the client was promised and what the world saw."""
    await psql.execute(_TABLES)
    await _copy(psql, "steps", [(place, step, kind) for place, (step, kind) in enumerate(STEPS)])
    await _copy(psql, "enqueued", [(id_, datetime.now(UTC)) for id_ in enqueued])
    await _copy(psql, "emitted", list(emitted))
    bodies = [line for path in world.glob("bodies-*") for line in lines(path)]
    await _copy(psql, "bodies", [(UUID(b["id"]), b["step"], b["epoch"], _wall(b["at"])) for b in bodies])
    acts = [line for path in (world / "acts").glob("*") for line in lines(path)]
    await _copy(psql, "acts", [_act(line) for line in acts])
    await psql.execute("analyze")


async def judge(psql: "asyncpg.Connection[Any]") -> dict[str, list[str]]:
    """What breaks each rule."""
    return {name: [f"{row['id']} {row['why']}" for row in await psql.fetch(query)] for name, query in rules().items()}


async def _copy(psql: "asyncpg.Connection[Any]", table: str, rows: list[tuple[Any, ...]]) -> None:
    await psql.copy_records_to_table(table, schema_name="oracle", records=rows)


def lines(path: Path) -> list[dict[str, Any]]:
    """What one process, or one effect, wrote down; nothing when it never did. A line that is being written does not count yet."""
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def _act(line: dict[str, Any]) -> tuple[str, UUID, str, datetime, datetime]:
    step, _, id_ = line["key"].partition("-")
    return line["key"], UUID(id_), step, _wall(line["looked_at"]), _wall(line["at"])


_OFFSET = time.time() - time.monotonic()


def _wall(monotonic: float) -> datetime:
    """The machine's wall clock, which is Postgres', at a moment of its monotonic clock, which is the world's: a worker's may be wrong."""
    return datetime.fromtimestamp(_OFFSET, UTC) + timedelta(seconds=monotonic)
