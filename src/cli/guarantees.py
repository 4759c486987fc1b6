"""The page of guarantees: each promise of the engine with its mechanism, the tests that hold it, and what was measured last.

Promises stand in docs/guarantees.toml, figures in docs/figures.json as `python -m tests.proof --out docs/figures.json` writes them: this
module only joins the two. A figure that nobody has measured is a dash, one that was missed says so. See `reference`, which writes it.
"""

import json
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

Part = Mapping[str, Any]
"""One part of the proof: date, machine, seconds, and its figures, each with name, measured, asked and met."""


def guarantees_table(folder: Path) -> str:
    """The promises of `folder`, a line each, and below it the days and machines of the figures."""
    figures = _figures(folder)
    rows = ["| | it holds that | because | tests | measured |", "|---|---|---|---|---|"]
    rows += [_row(promise, figures) for promise in promises(folder)]
    return "\n".join([*rows, "", *_origins(figures)])


def promises(folder: Path) -> list[dict[str, Any]]:
    """id, holds, because, tests (`file::test` below tests/) and figures (`part` or `part: name`) of each."""
    found: list[dict[str, Any]] = tomllib.loads((folder / "guarantees.toml").read_text())["guarantee"]
    return found


def _figures(folder: Path) -> dict[str, Part]:
    path = folder / "figures.json"
    found: dict[str, Part] = json.loads(path.read_text()) if path.exists() else {}
    return found


def _row(promise: Mapping[str, Any], figures: Mapping[str, Part]) -> str:
    tests = "<br>".join(_link(test) for test in promise["tests"])
    measured = "<br>".join(_measured(promise.get("figures", []), figures)) or "-"
    return " | ".join([f"| {promise['id']}", promise["holds"], promise["because"], tests, f"{measured} |"])


def _link(test: str) -> str:
    file, _, name = test.partition("::")
    words = name.removeprefix("test_").replace("_", " ").replace(" s ", "'s ")
    return f"[{words or Path(file).stem.removeprefix('test_').replace('_', ' ')}](../tests/{file})"


def _measured(asked: list[str], figures: Mapping[str, Part]) -> Iterator[str]:
    for one in asked:
        part, _, name = one.partition(": ")
        for figure in figures.get(part, {}).get("figures", []):
            if name in figure["name"]:
                yield f"{figure['name']}: {figure['measured']} (asked {figure['asked']}{'' if figure['met'] else ', **missed**'})"


def _origins(figures: Mapping[str, Part]) -> Iterator[str]:
    if not figures:
        yield 'Nothing has been measured yet: `make proof ARGS="--out docs/figures.json"`, then `make generate`.'
    for name, part in figures.items():
        small = "; a smoke run of small counts" if part.get("quick") else ""
        seed = f", seed {part['seed']}" if part.get("seed") is not None else ""
        yield f"- *{name}*: {part['date']}, {part['machine']}{seed}{small}"
