"""Statements are read by name from their files, with their cardinality; columns that several return are named once."""

import re
from pathlib import Path

import pytest

from suture.engine import Execution
from suture.engine.statements import load

OURS = load("suture.engine")
MOVES = [
    (name, found[0])
    for name, one in OURS.items()
    for found in re.finditer(r"update suture\.workflow_executions\b.*?\bset\b.*?(?=\bwhere\b)", one.text, re.DOTALL)
    if re.search(r"\bstatus = ", found[0])
]
"""Each update of executions that may move their status, up to its WHERE."""


def package(folder: Path, monkeypatch: pytest.MonkeyPatch, **files: str) -> str:
    """An importable package that has these SQL files, by the name of the test's folder."""
    (folder / f"of_{folder.name}" / "sql").mkdir(parents=True)
    (folder / f"of_{folder.name}" / "__init__.py").touch()
    for name, text in files.items():
        (folder / f"of_{folder.name}" / "sql" / f"{name}.sql").write_text(text)
    monkeypatch.syspath_prepend(str(folder))
    return f"of_{folder.name}"


def test_columns_stand_where_a_statement_of_any_file_asks_for_them(tmp_path, monkeypatch):
    name = package(
        tmp_path,
        monkeypatch,
        a="-- name: get\n-- maybe: a thing\n-- $1 id\nselect {thing}, '{}' as more from t where id = $1\n",
        b="-- columns: thing\n-- All of it.\nid, size\n\n-- name: all\n-- many\nselect {thing} from t\n",
    )
    found = load(name)
    assert {one.name: (one.text, one.cardinality) for one in found.values()} == {
        "get": ("/* get */ select id, size, '{}' as more from t where id = $1", "maybe"),
        "all": ("/* all */ select id, size from t", "many"),
    }


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("-- name: get\n-- maybe\nselect {thing} from t\n", "get asks for the columns of 'thing', which no block of its package names"),
        ("-- name: get\nselect 1\n", "get does not say whether it returns one, maybe, many or none"),
        ("-- name: get\n-- one\nselect 1\n\n-- name: get\n-- one\nselect 2\n", "get stands in"),
    ],
)
def test_what_is_not_whole_is_refused_when_it_is_read(tmp_path, monkeypatch, text, complaint):
    with pytest.raises(ValueError, match=complaint):
        load(package(tmp_path, monkeypatch, a=text))


def test_an_execution_s_columns_stand_in_the_order_of_its_fields():
    """A claim's rows are read by their place."""
    listed = re.match(r"/\* get \*/ select (.*?) from ", OURS["get"].text, re.DOTALL)
    assert listed
    assert tuple(re.split(r",\s*", listed[1])) == Execution._fields
    assert f"select {listed[1]}\nfrom" in OURS["claim"].text


@pytest.mark.parametrize("update", [text for _, text in MOVES], ids=[name for name, _ in MOVES])
def test_who_moves_an_execution_signs_for_it(update):
    """Or the trigger takes the move for somebody's hand."""
    for column in ("changed_xid", "changed_by", "reason"):
        assert re.search(rf"\b{column} = ", update), f"{column} is not set"


def test_the_moves_are_found():
    assert {"claim", "complete", "fail", "retry", "hand_back", "cancel", "recover", "suspend", "wake_parents"} <= {
        name for name, _ in MOVES
    }
