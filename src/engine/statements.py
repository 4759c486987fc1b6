"""Named SQL statements: reads the `.sql` files of a package into a table of name -> text and cardinality.

A block begins with `-- name: claim` and a line `-- one: …`, `-- maybe: …`, `-- many: …` or `-- none`; the rest of the comment is for
people. A block `-- columns: execution` names what any statement of its package may write as `{execution}`: a row that goes to Python has
columns with names, never `*`, so that a column which a later version adds is none of this one's. Knows nothing of what the statements do.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Literal, get_args

Cardinality = Literal["one", "maybe", "many", "none"]

_BLOCK = re.compile(r"^-- (name|columns): (\w+)\n", re.MULTILINE)
_COLUMNS = re.compile(r"\{(\w+)\}")
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
    blocks = [
        (kind, name, text, f"{package}/sql/{file.name}")
        for file in sorted((files(package) / "sql").iterdir(), key=lambda f: f.name)
        if file.name.endswith(".sql")
        for kind, name, text in _blocks(file.read_text())
    ]
    columns = {name: _body(text) for kind, name, text, _ in blocks if kind == "columns"}
    for kind, name, text, file in blocks:
        if kind == "name":
            yield _statement(name, text, file, columns)


def _blocks(text: str) -> Iterator[tuple[str, str, str]]:
    parts = _BLOCK.split(text)[1:]
    return zip(parts[::3], parts[1::3], parts[2::3], strict=True)


def _statement(name: str, text: str, file: str, columns: Mapping[str, str]) -> Statement:
    found = _CARDINALITY.search(text)
    if not found:
        raise ValueError(f"{file}: statement {name} does not say whether it returns one, maybe, many or none")
    try:
        body = _COLUMNS.sub(lambda named: columns[named[1]], _body(text))
    except KeyError as missing:
        raise ValueError(f"{file}: statement {name} asks for the columns of {missing}, which no block of its package names") from None
    # The name goes to the server with the text: pg_stat_statements and logs then speak our language.
    return Statement(name, f"/* {name} */ {body}", found[1], file)  # type: ignore[arg-type]


def _body(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not line.startswith("--")).strip()
