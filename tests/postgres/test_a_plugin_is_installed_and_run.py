"""A team's own package adds its workflows by being installed; one that is broken stops the worker, and says whose it is."""

import subprocess
import sys
from pathlib import Path

import pytest

from suture.engine import Database, Engine
from tests.postgres.engine.stage import ended
from tests.postgres.errands import worker

WORKFLOWS = """
from pydantic import BaseModel
from suture.engine import Run, workflow


class Name(BaseModel):
    name: str


@workflow("greet", version=2)
async def greet(run: Run, who: Name) -> str:
    return await run.step("say", say, who.name)


async def say(name: str) -> str:
    return f"good morning, {name}"
"""


def install(folder: Path, *, name: str = "greetings", code: str = WORKFLOWS) -> Path:
    """A distribution with one entry point, installed by pip from its source into a folder of its own."""
    source, target = folder / f"{name}-source", folder / "plugins"
    source.mkdir()
    (source / f"{name}.py").write_text(code)
    (source / "pyproject.toml").write_text(
        f'''
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "{name}"
version = "1.4"
[project.entry-points."suture.workflows"]
greet = "{name}"
[tool.hatch.build.targets.wheel]
include = ["{name}.py"]
'''
    )
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-index",
        "--no-deps",
        "--no-build-isolation",
        "--disable-pip-version-check",
    ]
    done = subprocess.run([*pip, "--target", str(target), str(source)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return target


async def test_an_installed_package_brings_its_workflow(database_url: str, tmp_path: Path):
    with worker(database_url, plugins=install(tmp_path)):
        async with Database.connect(database_url) as database:
            engine = Engine(database)
            asked = await engine.enqueue("greet", {"name": "Ada"}, actor="test", version=2)
            done = await ended(engine, asked.execution.id, within=60)

    assert (done.status, done.output) == ("completed", "good morning, Ada")


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("import something_missing\n", "ModuleNotFoundError: No module named 'something_missing'"),
        ("raise RuntimeError('no licence')\n", "RuntimeError: no licence"),
        ("def (\n", "SyntaxError"),
        ("x = 1\n", "There is no workflow in"),
        (WORKFLOWS.replace('"greet", version=2', '"http-request", version=1'), "Two offer the workflow http-request in version 1"),
        (WORKFLOWS.replace("who: Name", "who: 'Nobody'"), "The workflow greet"),
    ],
    ids=["missing import", "failing import", "no Python", "nothing in it", "a name that is taken", "an annotation that is nowhere"],
)
def test_a_broken_plugin_is_named_with_what_is_wrong(database_url: str, tmp_path: Path, code: str, names: str):
    target = tmp_path / "plugins"
    metadata = target / "greetings-1.4.dist-info"
    metadata.mkdir(parents=True)
    (target / "greetings.py").write_text(code)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: greetings\nVersion: 1.4\n")
    (metadata / "entry_points.txt").write_text("[suture.workflows]\ngreet = greetings\n")

    with worker(database_url, plugins=target) as process:
        assert process.wait(60) == 2
        assert process.stdout is not None
        told = process.stdout.read().decode()

    assert names in told
    assert "the entry point greet of greetings 1.4 (greetings)" in told
    assert "Traceback" not in told


def test_a_module_that_a_setting_names_is_loaded_or_named(database_url: str):
    with worker(database_url, SUTURE_WORKFLOWS_MODULES="tests.nothing.here") as process:
        assert process.wait(60) == 2
        assert process.stdout is not None
        assert "tests.nothing.here" in process.stdout.read().decode()
