"""A test belongs to its folder's tier, quick tiers run first, and a skip is loud here and a failure in CI."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


FILES = {
    "node/test_n.py": "import pytest\ndef test_node(): pytest.skip('no runc')\n@pytest.mark.xfail\ndef test_bug(): assert False\n",
    "postgres/test_p.py": "def test_postgres(): pass\n",
    "unit/test_u.py": "def test_unit(): pass\n",
}


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("suite")
    shutil.copy(ROOT / "pyproject.toml", folder)
    for name, body in FILES.items():
        (folder / "tests" / name).parent.mkdir(parents=True)
        (folder / "tests" / name).write_text(body)
    shutil.copy(ROOT / "tests" / "conftest.py", folder / "tests")
    return folder


def run(suite: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if name != "CI" and not name.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", "-v", *arguments]
    return subprocess.run(command, cwd=suite, env=clean | environ, capture_output=True, text=True, check=False)


def test_at_home_a_skip_is_said_in_capitals_with_its_reason_and_each_tier_with_its_time(suite: Path):
    done = run(suite)
    assert done.returncode == 0
    assert done.stdout.index("::test_unit") < done.stdout.index("::test_postgres") < done.stdout.index("::test_node")
    assert "SKIPPED 1 OF THE NODE TIER: NO RUNC" in done.stdout
    assert re.search(r"^unit +\d+\.\d s  1 passed$", done.stdout, re.MULTILINE)
    assert "2 passed, 1 skipped, 1 xfailed in" in done.stdout.splitlines()[-1]


def test_in_ci_a_skip_fails_and_an_expected_failure_does_not(suite: Path):
    done = run(suite, CI="true")
    assert done.returncode == 1
    assert "A skip is a failure in CI: no runc" in done.stdout
    assert "1 failed, 2 passed, 1 xfailed in" in done.stdout.splitlines()[-1]


def test_a_tier_is_chosen_by_its_name(suite: Path):
    assert "1 passed, 3 deselected" in run(suite, "-m", "postgres").stdout


def test_in_ci_a_module_that_skips_itself_fails_too(suite: Path):
    (suite / "tests" / "node" / "test_n.py").write_text("import pytest\npytest.skip('no kernel', allow_module_level=True)\n")
    done = run(suite, "tests/node", CI="true")
    assert done.returncode not in (0, 5)
    assert "A skip is a failure in CI: no kernel" in done.stdout
