"""The command `suture` as a person or a script runs it: a process of its own, with an environment of its own."""

import asyncio
import json
import os
import sys
from dataclasses import dataclass
from typing import Any

COMMAND = (sys.executable, "-m", "suture")


@dataclass(frozen=True)
class Said:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert self.code == 0, self.err
        return json.loads(self.out)


def environment(**settings: str) -> dict[str, str]:
    """Ours, without the settings and the terminal of whoever runs the tests."""
    mine = {k: v for k, v in os.environ.items() if not k.startswith("SUTURE_") and k not in {"COLUMNS", "LINES", "FORCE_COLOR", "NO_COLOR"}}
    return {**mine, "PYTHONSAFEPATH": "1", **settings}


async def suture(*arguments: str, **settings: str) -> Said:
    process = await asyncio.create_subprocess_exec(
        *COMMAND, *arguments, env=environment(**settings), stdin=asyncio.subprocess.DEVNULL, stdout=-1, stderr=-1
    )
    out, err = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode is not None
    assert "Traceback" not in err.decode(), err.decode()
    return Said(process.returncode, out.decode(), err.decode())
