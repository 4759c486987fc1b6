"""The model of claim, lease, epoch, sweep and checkpoint: SPIN sees every state and nothing wrong, and without a mechanism it does.

The quick ones of the searches; `make proof` makes them all.
"""

import re

import pytest

from tests.proof.model import ASSERTIONS, MODEL, SCENES, WITHOUT, Search, figures, missing, search

pytestmark = pytest.mark.skipif(bool(missing()), reason=f"this machine lacks {' and '.join(missing())}, which check the model")

WHOLE = [Search("TIMEOUT", ASSERTIONS), Search("TIMEOUT", "agreed"), Search("CROWD", "passed")]
QUICK = ("NO_EPOCH", "NO_FIRST_WINS", "NO_SWEEP", "NO_WAIT_LOCK")


@pytest.mark.parametrize("what", WHOLE, ids=str)
def test_nothing_goes_wrong_in_any_state(what: Search):
    found = search(what)
    assert (found.wrong, found.states > 100_000) == ("", True)


@pytest.mark.parametrize("mechanism", QUICK)
def test_without_a_mechanism_it_does(mechanism: str):
    assert search(Search(*WITHOUT[mechanism], without=mechanism)).wrong


def test_every_property_and_every_mechanism_of_the_model_is_searched():
    text = MODEL.read_text()
    assert set(re.findall(r"^ltl (\w+)", text, re.MULTILINE)) == {name for names in SCENES.values() for name in names} - {ASSERTIONS}
    assert set(re.findall(r"^#ifn?def (\w+)", text, re.MULTILINE)) == set(WITHOUT) | set(SCENES)


def test_a_search_that_should_have_failed_is_told():
    found = [search(Search("TIMEOUT", ASSERTIONS, without="NO_FIRST_WINS"))]
    spared = [type(one)(one.search, one.states, "") for one in found]
    assert [figure.met for figure in figures(spared)] == [True, False]
