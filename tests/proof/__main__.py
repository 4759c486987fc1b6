"""`python -m tests.proof [PART …]`: runs the parts of the proof, one after the other, and prints one table of all that was found.

Ends with 0 only when everything that is asked for is met. Each part is a module with `prove` (see `figures.Proof`).
"""

import argparse
import json
import os
import platform
import random
import sys
import time
import traceback
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.proof.figures import Figure

PARTS = ("mutants", "model", "stateful", "recovery", "outage", "campaign", "idle", "scale", "snapshot", "servers")
"""Short ones first."""


def main(arguments: list[str]) -> int:
    chosen = _parser().parse_args(arguments)
    seed = chosen.seed if chosen.seed is not None else random.randrange(1_000_000)
    found: dict[str, dict[str, Any]] = {}
    for part in chosen.parts or PARTS:
        print(f"== {part}: seed {seed}", flush=True)
        found[part] = _run(part, seed=seed, quick=chosen.quick)
        print(f"== {part}: {found[part]['seconds']} s", flush=True)
        if chosen.out:
            _keep(Path(chosen.out), found)
    print(_table(found))
    return 0 if all(figure.met for one in found.values() for figure in one["figures"]) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.proof", description="Proves what the engine guarantees.")
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], metavar="PART", help=f"all of {', '.join(PARTS)} without one")
    parser.add_argument("--seed", type=int, help="make the random choices of an earlier run again")
    parser.add_argument("--quick", action="store_true", help="small counts: shows that the proof works, not that the figures hold")
    parser.add_argument("--out", help="a JSON file for the figures; those of other parts that stand in it are kept")
    return parser


def _run(part: str, *, seed: int, quick: bool) -> dict[str, Any]:
    started = time.monotonic()

    def say(text: str) -> None:
        print(f"   {time.monotonic() - started:6.1f} s  {text}", flush=True)

    try:
        figures = import_module(f"tests.proof.{part}").prove(say, seed=seed, quick=quick)
    except Exception as error:  # noqa: BLE001 (one part that breaks must not keep the others from being told)
        traceback.print_exc()
        figures = [Figure(part, "BROKEN", "a proof", False, f"{type(error).__name__}: {error}")]
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "machine": f"{os.cpu_count()} cores, Linux {platform.release()}, Python {platform.python_version()}",
        "seed": seed,
        "quick": quick,
        "seconds": round(time.monotonic() - started, 1),
        "figures": figures,
    }


def _keep(path: Path, found: dict[str, dict[str, Any]]) -> None:
    kept = json.loads(path.read_text()) if path.exists() else {}
    told = {part: one | {"figures": [figure._asdict() for figure in one["figures"]]} for part, one in found.items()}
    path.write_text(json.dumps(kept | told, indent=1) + "\n")


def _table(found: dict[str, dict[str, Any]]) -> str:
    rows = [("part", "what", "measured", "asked", "")]
    for part, one in found.items():
        rows += [(part, f.name, f.measured, f.asked, "met" if f.met else "NOT MET") for f in one["figures"]]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row[:4], widths, strict=True)) + "  " + row[4] for row in rows]
    unmet = [(part, f) for part, one in found.items() for f in one["figures"] if not f.met]
    lines += [f"NOT MET {part}: {f.name}: {f.detail}" for part, f in unmet]
    return "\n".join(["", lines[0], "-" * len(lines[0]), *lines[1:]])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
