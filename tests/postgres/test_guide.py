"""The guide is a real run: its examples are executed from top to bottom beside a real worker, and print what it shows."""

import ast
import asyncio
import contextlib
import inspect
import io
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from suture.engine import Database, Engine, Runner
from tests.postgres.engine.stage import LEASE

GUIDE = (Path(__file__).resolve().parents[2] / "docs" / "guide.md").read_text()


def examples() -> Iterator[tuple[int, str, str]]:
    """Line, code, and what it prints, of each."""
    for found in re.finditer(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", GUIDE, re.MULTILINE | re.DOTALL):
        yield GUIDE[: found.start()].count("\n") + 2, found[1], found[2] or ""


async def test_every_example_of_the_guide_prints_what_is_shown(database_url: str) -> None:
    pytest.importorskip("cronsim", reason="the extra `cron` is not installed")
    async with Database.connect(database_url) as database:
        names: dict[str, Any] = {"engine": Engine(database), "__name__": "guide"}
        life, printed = None, io.StringIO()
        try:
            with contextlib.redirect_stdout(printed):
                for line, code, shown in examples():
                    printed.seek(0)
                    printed.truncate()
                    await execute(code, names, line=line)
                    assert printed.getvalue() == shown, f"docs/guide.md:{line}"
                    if life is None:
                        runner = Runner(database, names["shop"], name="guide", lease=LEASE, poll=timedelta(seconds=0.05))
                        life = asyncio.create_task(runner.run())
        finally:
            if life is not None:
                runner.stop()
                await life


async def execute(code: str, names: dict[str, Any], *, line: int) -> None:
    """As a console with an event loop does: `await` stands at the top."""
    program = compile("\n" * (line - 1) + code, "docs/guide.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    waiting = eval(program, names)
    if inspect.isawaitable(waiting):
        await asyncio.wait_for(waiting, 60)
