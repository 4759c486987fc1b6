"""Workflows are found by entry point and by module, and a version finds its code."""

import sys
from types import ModuleType

import pytest

from suture.engine import Run, Workflows, workflow
from suture.engine.workflows import discover
from suture.errors import ConfigError, UnknownWorkflow


@workflow("bill", version=1)
async def first(run: Run, order: int) -> int:
    return order


@workflow("bill", version=3)
async def third(run: Run, order: int) -> int:
    return order


async def helper(run: Run, order: int) -> int:
    return order


@pytest.fixture
def billing(monkeypatch: pytest.MonkeyPatch) -> str:
    """A team's module, as an image has it installed."""
    module = ModuleType("billing_workflows")
    vars(module).update(first=first, third=third, helper=helper, number=1)
    monkeypatch.setitem(sys.modules, "billing_workflows", module)
    return "billing_workflows"


def test_all_workflows_of_a_module_are_taken_beside_those_that_are_installed(billing):
    found = discover([billing])
    assert found.get("bill").version == 3
    assert "remediate" in found.known
    assert "bill" not in discover().known


def test_one_function_of_a_module_can_be_named(billing):
    assert Workflows.discover([f"{billing}:first"]).get("bill").version == 1


@pytest.mark.parametrize("place", ["no_such_module", "{}:nobody", "{}:helper"])
def test_what_is_not_there_or_no_workflow_stops_the_start(billing, place):
    with pytest.raises(ConfigError, match=place.format(billing)):
        discover([place.format(billing)])


def test_a_version_runs_on_its_own_code_or_on_the_next_newer():
    known = Workflows()
    known.add(third)
    known.add(first)
    assert [known.get("bill", version).function for version in (1, 2, 3)] == [first, third, third]
    assert [one.version for one in known] == [3]
    with pytest.raises(UnknownWorkflow, match="up to version 3, not 4"):
        known.get("bill", 4)
    with pytest.raises(UnknownWorkflow, match="Known here: bill"):
        known.get("pay")


def test_a_child_s_workflow_is_named_by_its_function_or_by_what_is_known_here():
    known = Workflows()
    known.add(third)
    assert [known.named(one) for one in (first, "bill", "elsewhere")] == [("bill", 1), ("bill", 3), ("elsewhere", 1)]
    with pytest.raises(TypeError, match="helper is no workflow"):
        known.named(helper)
