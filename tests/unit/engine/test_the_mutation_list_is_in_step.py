"""A mutation list that no longer fits the code proves nothing: each mutant's text stands where it says, and its tests exist."""

import pytest

from tests.proof.mutants import Mutant, load, stale

ALL = {f"I{n}" for n in range(1, 18)}


def test_every_mutant_can_be_made_of_the_code_as_it_is():
    assert stale(load()) == []


def test_every_invariant_has_a_mutant():
    assert {invariant for mutant in load() for invariant in mutant.invariant.split()} == ALL


def test_a_text_that_stands_elsewhere_or_twice_is_told():
    text = "-- name: one\nselect 1\n\n-- name: two\nselect 1, 1\n"
    mutant = Mutant("m", "I1", "f.sql", "1", "2", (), at="two", times=2)
    assert mutant.mutated(text) == "-- name: one\nselect 1\n\n-- name: two\nselect 2, 2\n"
    with pytest.raises(ValueError, match="stands 1 times"):
        Mutant("m", "I1", "f.sql", "1", "2", (), at="one", times=2).mutated(text)
    with pytest.raises(ValueError, match="no statement or function three"):
        Mutant("m", "I1", "f.sql", "1", "2", (), at="three").mutated(text)


def test_a_method_ends_where_the_next_begins():
    text = "class A:\n    async def one(self):\n        pass\n\n    def two(self):\n        pass\n"
    assert Mutant("m", "I1", "f.py", "pass", "return", (), at="one").mutated(text).count("pass") == 1
