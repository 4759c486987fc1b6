"""What other engines were reported to do wrong is done to ours: each fault of the table names tests that are there."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
FAULTS: list[dict[str, Any]] = tomllib.loads((ROOT / "tests" / "cases" / "engine" / "public_faults.toml").read_text())["fault"]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault["id"])
def test_a_fault_is_told_with_its_source_and_its_tests(fault: dict[str, Any]):
    assert fault["title"]
    assert fault["tests"]
    assert all(re.fullmatch(r"[\w.-]+/[\w.-]+#\d+", source) for source in fault["sources"])
    for test in fault["tests"]:
        path, function = test.split("::")
        assert re.search(rf"^(?:async )?def {function}\(", (ROOT / path).read_text(), re.MULTILINE), test


def test_every_experiment_stands_in_the_table():
    listed = {test for fault in FAULTS for test in fault["tests"]}
    for path in ROOT.glob("tests/*/**/test_public_faults_*.py"):
        for function, number in re.findall(r"^(?:async )?def (test_(e\d\d)_\w+)\(", path.read_text(), re.MULTILINE):
            assert number.upper() in {fault["id"] for fault in FAULTS}
            known = f"{path.relative_to(ROOT)}::{function}"
            assert known in listed or function == "test_e18_postgres_itself_would_have_refused_it", known
