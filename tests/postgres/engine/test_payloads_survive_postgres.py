"""A payload comes back from a JSONB column as it went in, on every way through the engine."""

import math
from datetime import UTC, datetime

from suture.engine.payload import decode, encode

NUMBERS = [
    0,
    -1,
    2**53 + 1,
    -(2**63),
    10**400,
    10**5000,
    0.0,
    -0.0,
    0.1,
    1e22,
    1e15,
    1.5,
    5e-324,
    1.7976931348623157e308,
    math.inf,
    -math.inf,
]
TEXTS = ["", "a\0b", "\ud800", "x\udfff", "😀", "\u202e", "$suture", "1e5", '"\\u0000"', "\\ud800", "-0.0", "\x7f\x01"]
VALUES = [
    None,
    True,
    *NUMBERS,
    *TEXTS,
    NUMBERS,
    dict.fromkeys(TEXTS, 1),
    {"$suture": "float", "text": "1"},
    {"a": [{"b\0": {"c": TEXTS}}]},
    [],
    {},
]


def same(a, b):
    """Equal in type and value; -0.0 is not 0.0."""
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and (repr(a) == repr(b) if isinstance(a, float) else a == b)


async def test_every_odd_value_comes_back_from_a_column(psql):
    for value in VALUES:
        kept = await psql.fetchval("select $1::jsonb::text", encode(value))
        assert same(decode(kept), value)


async def test_a_checkpoint_gives_back_what_the_step_made(take, engine):
    await engine.enqueue("w", None, actor="test")
    claim = await take()
    for number, value in enumerate(VALUES):
        kept = await claim.checkpoint(f"s{number}", value, kind="step", attempts=1, started_at=datetime.now(UTC))
        assert same(kept, value)


async def test_an_input_comes_back_from_its_execution(engine):
    value = {"numbers": [2**53 + 1, 1e22, -0.0, 10**400], "deep": [[[[{"$suture": "text"}]]]], "text": "😀\u202e\x7f"}
    task = (await engine.enqueue("w", value, actor="test")).execution
    assert repr((await engine.get(task.id)).input["numbers"]) == repr(value["numbers"])
    assert (await engine.get(task.id)).input == value
