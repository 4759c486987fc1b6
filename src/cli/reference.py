"""The reference: parts of the documentation that are printed from the code, so that they cannot say anything else.

`python -m suture.cli.reference settings` prints the table of settings; with `--write FILE` it replaces the one that stands in the file
between `<!-- settings -->` and `<!-- /settings -->`, with `--check FILE` it fails when that one is not current. Changes nothing else.
`api` is the reference of the library (see `api_reference`), `guarantees` the table of what it promises (see `guarantees`).
"""

import argparse
import ast
import inspect
import json
import sys
from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from suture import settings
from suture.cli.api_reference import api_reference
from suture.cli.guarantees import guarantees_table
from suture.settings import PREFIX, Settings, fields, secret


def main(arguments: list[str]) -> None:
    """Print, write or check one table."""
    asked = _arguments(arguments)
    table = TABLES[asked.table]()
    if asked.write:
        asked.write.write_text(replaced(asked.write.read_text(), asked.table, table))
    elif asked.check:
        text = asked.check.read_text()
        if replaced(text, asked.table, table) != text:
            sys.exit(f"The table of {asked.table} in {asked.check} is not that of the code: make generate")
    else:
        print(table)


def settings_table() -> str:
    """Every setting: its environment name, its default, and what it means."""
    meanings = dict(_meanings(Settings))
    rows = [f"| `{name}` | {_default(field)} | {meanings[name]} |" for name, field in fields(Settings)]
    return "\n".join(["| setting | default | meaning |", "|---|---|---|", *rows])


def guarantees() -> str:
    """What the engine promises, of the checkout in whose folder this runs: an installed package has no documentation to write."""
    return guarantees_table(Path("docs"))


TABLES = {"settings": settings_table, "api": api_reference, "guarantees": guarantees}


def replaced(text: str, table: str, content: str) -> str:
    """`text` with `content` between the two marks of the table.

    Raises: SystemExit, when the marks are missing.
    """
    start, end = f"<!-- {table} -->", f"<!-- /{table} -->"
    before, found, rest = text.partition(start)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        sys.exit(f"The file has no {start} … {end}")
    return f"{before}{start}\n{content}\n{end}{after}"


def _arguments(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m suture.cli.reference", description="Tables of the documentation, from the code.")
    parser.add_argument("table", choices=TABLES)
    parser.add_argument("--write", type=Path, metavar="FILE")
    parser.add_argument("--check", type=Path, metavar="FILE")
    return parser.parse_args(arguments)


def _meanings(model: type[BaseModel], prefix: str = PREFIX) -> Iterator[tuple[str, str]]:
    """The docstring under each field; Python itself throws these away."""
    documented = _docstrings()[model.__name__]
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _meanings(field.annotation, f"{prefix}{name.upper()}_")
        else:
            yield f"{prefix}{name.upper()}", documented[name]


def _docstrings() -> dict[str, dict[str, str]]:
    classes = [node for node in ast.parse(inspect.getsource(settings)).body if isinstance(node, ast.ClassDef)]
    return {node.name: dict(_under_fields(node.body)) for node in classes}


def _under_fields(body: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    for field, below in pairwise(body):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                yield name, " ".join(text.split()).replace("|", "\\|")


def _default(field: FieldInfo) -> str:
    match field.default:
        case None | "" | ():
            return "(none)"
        case SecretStr() as value if secret(field):
            return f"`{value.get_secret_value()}`"  # what stands in the code is no secret
        case timedelta() as time:
            return f"`{time.total_seconds():.12g}` s"
        case tuple() as several:
            return f"`{','.join(several)}`"
        case str() as text:
            return f"`{text}`"
        case other:
            return f"`{json.dumps(other)}`"


if __name__ == "__main__":
    main(sys.argv[1:])
