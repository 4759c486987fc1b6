"""The rules of the house that no linter knows."""

import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# The borders where everything must be caught, each with its reason. Anywhere else an unknown failure has to travel on.
CATCHES_EVERYTHING = {
    "src/api/door.py": "a request is somebody's text: what nobody foresaw is logged whole and answered masked",
    "src/cli/main.py": "a person reads it: a fault of ours ends in a sentence, not in a traceback",
    "src/engine/intake.py": "a batch is many callers': each hears what its own enqueue met, and none takes another along",
    "src/engine/journal.py": "a batch is many executions': each hears what its own write met, and none takes another along",
    "src/engine/pulse.py": "a thread that dies in silence would cost every lease of its process",
    "src/engine/run.py": "a step is somebody's code: any failure of it is a value to be retried or recorded",
    "src/engine/driver.py": "a workflow is somebody's code: any failure of it ends its own execution and no other",
    "src/engine/runner.py": "a write that time does not mend: the lease runs out, which counts as a crash",
    "src/engine/workflows.py": "a plugin is somebody's code: whatever its import raises is told with its name",
    "src/operator/keeper.py": "an object is somebody's text: what it makes fail must not stop the objects behind it",
}

# Folders of a person or of a workplace; those that every Linux has are no secret of one machine.
OF_ONE_MACHINE = re.compile(r"(?<![\w.])/(?:work|root|home/\w+|Users/\w+)/[\w.-]+")
LEFT_OPEN = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|XX" + r"X)\b")

VIOLATIONS = {
    "Layers": ("errors.py", "import suture.telemetry"),
    "Only engine.database speaks to Postgres": ("engine/lease.py", "import asyncpg"),
    "Only operator imports kopf": ("worker/main.py", "import kopf"),
    "Only api imports fastapi": ("cli/main.py", "import fastapi"),
    "Only clients.cluster and operator import kubernetes": ("remediation/evidence.py", "from kubernetes.aio import client"),
    "Only remediation imports ruamel": ("clients/localgit.py", "from ruamel.yaml import YAML"),
    "Settings are read by main modules and the command line only": ("remediation/evidence.py", "import suture.settings"),
    "Operator and api see only data of the workflows": ("api/tasks.py", "import suture.remediation.diagnosis"),
    "Causes know nothing of each other": ("remediation/causes/{0}", "import suture.remediation.causes.{1}"),
}


def tracked(*patterns: str) -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z", *patterns], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file() and not (ROOT / name).is_symlink()]


def found(pattern: re.Pattern[str], *, below: str = ".") -> list[str]:
    """FILE:LINE: of every match in the tracked text files."""
    places = []
    for path in tracked(below):
        try:
            lines = path.read_text().splitlines()
        except UnicodeDecodeError:
            continue
        places += [f"{path.relative_to(ROOT)}:{n}: {line.strip()[:100]}" for n, line in enumerate(lines, 1) if pattern.search(line)]
    return places


def test_nothing_is_left_open():
    assert found(LEFT_OPEN) == []


def test_no_path_of_one_machine_is_written_down():
    assert [place for place in found(OF_ONE_MACHINE) if not place.startswith("tests/cases/")] == []


def test_every_module_says_what_it_is_for():
    assert [str(path.relative_to(ROOT)) for path in tracked("src/*.py") if not ast.get_docstring(ast.parse(path.read_text()))] == []


def test_everything_is_caught_only_at_the_named_borders():
    catching = {str(path.relative_to(ROOT)) for path in tracked("src/*.py") if catches_everything(path)}
    assert catching == set(CATCHES_EVERYTHING)


def catches_everything(path: Path) -> bool:
    """What is raised again at the end, after tidying up, was not caught."""
    handlers = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ExceptHandler)]
    kept = [handler for handler in handlers if not (isinstance(last := handler.body[-1], ast.Raise) and last.exc is None)]
    return any(handler.type is None or names(handler.type) & {"Exception", "BaseException"} for handler in kept)


def names(expression: ast.expr) -> set[str]:
    return {node.id for node in ast.walk(expression) if isinstance(node, ast.Name)}


def test_every_contract_of_the_layers_bites(tmp_path: Path):
    """On a copy of the package with one violation of each."""
    shutil.copytree(ROOT / "src", tmp_path / "suture", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    causes = sorted(path.name for path in (tmp_path / "suture" / "remediation" / "causes").glob("[a-z]*.py"))
    for file, line in VIOLATIONS.values():
        with (tmp_path / "suture" / file.format(causes[0])).open("a") as module:
            module.write("\n" + line.format("", causes[1].removesuffix(".py")) + "\n")
    linted = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=tmp_path, env={"PATH": "", "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert linted.returncode == 1, linted.stdout + linted.stderr
    assert set(re.findall(r"^(.+?) BROKEN", linted.stdout, re.MULTILINE)) == set(VIOLATIONS)


@pytest.mark.parametrize("rule", [".venv/", "dist/", "__pycache__/", ".hypothesis/"])
def test_what_is_made_is_not_tracked(rule: str):
    assert rule in (ROOT / ".gitignore").read_text().splitlines()
    assert [path for path in tracked() if f"/{rule}" in f"/{path.relative_to(ROOT)}/"] == []
