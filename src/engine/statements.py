"""Named SQL statements: reads the `.sql` files of a package into a table of name -> text and cardinality.

A block begins with `-- name: claim` and a line `-- one: …`, `-- maybe: …`, `-- many: …` or `-- none`; the rest of the comment is for
people. Knows nothing of what the statements do.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Literal, get_args

Cardinality = Literal["one", "maybe", "many", "none"]

_BLOCK = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
_CARDINALITY = re.compile(rf"^-- ({'|'.join(get_args(Cardinality))})\b", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Statement:
    name: str
    text: str
    cardinality: Cardinality
    file: str


def load(*packages: str) -> Mapping[str, Statement]:
    """Every statement in the `sql` folders of `packages`.

    Raises: ValueError for a name that stands twice, or a block with no cardinality.
    """
    table: dict[str, Statement] = {}
    for package in packages:
        for statement in _read(package):
            if statement.name in table:
                raise ValueError(f"statement {statement.name} stands in {table[statement.name].file} and in {statement.file}")
            table[statement.name] = statement
    return table


def _read(package: str) -> Iterator[Statement]:
    for file in sorted((files(package) / "sql").iterdir(), key=lambda f: f.name):
        if file.name.endswith(".sql"):
            blocks = _BLOCK.split(file.read_text())[1:]
            for name, text in zip(blocks[::2], blocks[1::2], strict=True):
                yield _statement(name, text.strip(), f"{package}/sql/{file.name}")


def _statement(name: str, text: str, file: str) -> Statement:
    found = _CARDINALITY.search(text)
    if not found:
        raise ValueError(f"{file}: statement {name} does not say whether it returns one, maybe, many or none")
    # The name goes to the server with the text: pg_stat_statements and logs then speak our language.
    body = "\n".join(line for line in text.splitlines() if not line.startswith("--"))
    return Statement(name, f"/* {name} */ {body.strip()}", found[1], file)  # type: ignore[arg-type]
