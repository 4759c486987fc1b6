"""What is built holds all of the product and nothing else, and the two traps of the layout explain themselves."""

import ast
import importlib.metadata
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
NEEDED = {"suture/__init__.py", "suture/operator/__init__.py", "suture/py.typed", "suture/engine/sql/queue.sql", "suture/cli/leash.py"}


def build(source: Path, into: Path, *kinds: str) -> None:
    """What `pip install .` and a release run, with the tools of this environment instead of downloaded ones."""
    command = [sys.executable, "-m", "build", "--no-isolation", *kinds, "--outdir", str(into), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    into = tmp_path_factory.mktemp("dist")
    build(ROOT, into, "--wheel", "--sdist")
    return into


@pytest.fixture(scope="module")
def wheel(built: Path) -> set[str]:
    return members(built)


def members(folder: Path) -> set[str]:
    (file,) = folder.glob("*.whl")
    return set(zipfile.ZipFile(file).namelist())


def tracked(*under: str) -> list[str]:
    return subprocess.run(["git", "ls-files", *under], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()


def test_the_wheel_holds_every_tracked_file_of_src_under_the_packages_name(wheel: set[str]):
    expected = {f"suture/{name.removeprefix('src/')}" for name in tracked("src") if (ROOT / name).exists()}
    assert expected >= NEEDED
    assert expected - wheel == set()


def test_the_wheel_holds_nothing_but_the_package(wheel: set[str]):
    assert {name.split("/")[0] for name in wheel if ".dist-info/" not in name} == {"suture"}
    assert [name for name in wheel if "__pycache__" in name or "/tests/" in name or ".dev" in name] == []
    assert any(name.endswith("licenses/LICENSE") for name in wheel)


def test_the_sdist_holds_the_sources_and_no_tests(built: Path):
    (file,) = built.glob("*.tar.gz")
    with tarfile.open(file) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    assert {"pyproject.toml", "README.md", "LICENSE", "src/operator/__init__.py", "src/engine/sql/queue.sql"} <= names
    assert [name for name in names if name.startswith(("tests", ".dev", ".ci", "benchmarks"))] == []


def test_a_wheel_from_the_sdist_is_the_same(built: Path, wheel: set[str], tmp_path: Path):
    (file,) = built.glob("*.tar.gz")
    subprocess.run(["tar", "-xzf", file, "-C", tmp_path], check=True)  # `extractall` safely: only from Python 3.11.4 on
    build(next(tmp_path.iterdir()), tmp_path / "again", "--wheel")
    assert members(tmp_path / "again") == wheel


def python(code: str, *, path: Path, folder: Path) -> str:
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(path)}
    done = subprocess.run([sys.executable, "-S", "-c", code], cwd=folder, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    return done.stderr


def test_importing_src_says_to_import_suture(tmp_path: Path):
    assert "import `suture`, not `src`" in python("import src", path=ROOT, folder=tmp_path)


def test_src_on_the_path_says_to_take_it_off(tmp_path: Path):
    assert "src/ is on sys.path and its operator/ shadows the standard module" in python(
        "import sys; sys.modules.pop('operator', None); import operator", path=ROOT / "src", folder=tmp_path
    )


def test_the_engine_alone_needs_nothing_of_kubernetes_or_http():
    """In a process that can load only what the plain `pip install suture` brings."""
    blocked = ("kopf", "kubernetes", "fastapi", "uvicorn", "httpx", "structlog", "typer", "rich", "pydantic_settings", "ruamel")
    code = f"import sys; sys.modules.update(dict.fromkeys({blocked!r})); import suture.engine"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_import_of_the_product_is_a_dependency_that_it_names():
    """Not one that happens to come with another: that one may change its mind."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = [extras["dependencies"], *(group for name, group in extras["optional-dependencies"].items() if name != "dev")]
    named = {canonicalize_name(Requirement(text).name) for group in groups for text in group}
    provided = importlib.metadata.packages_distributions()
    imported = {root for path in (ROOT / "src").rglob("*.py") for root in roots(ast.parse(path.read_text()))}
    foreign = imported - sys.stdlib_module_names - {"suture", "pydantic_core", "starlette"}  # parts of pydantic and of fastapi
    assert {root for root in foreign if not named & {canonicalize_name(name) for name in provided.get(root, [root])}} == set()


def roots(module: ast.Module) -> set[str]:
    names = [alias.name for node in ast.walk(module) if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in ast.walk(module) if isinstance(node, ast.ImportFrom) and not node.level]
    return {name.split(".")[0] for name in names}


def test_the_command_says_how_to_get_the_rest_where_only_the_engine_is_installed():
    code = "import sys; sys.modules['typer'] = None; from suture.__main__ import main; main()"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "The command needs more than the engine, typer is not installed: pip install 'suture[all]'\n"


@pytest.mark.parametrize("lock", ["requirements.lock", "requirements-runtime.lock"])
def test_a_lock_names_versions_and_hashes_and_no_machines_index(lock: str):
    text = (ROOT / lock).read_text()
    assert "://" not in text
    assert not re.search(r"^-", text, re.MULTILINE)
    for entry in re.split(r"\n(?=\S)", text.strip())[1:]:
        assert re.match(r"[\w.-]+(\[[\w, -]+\])?==\S+", entry), entry
        assert "--hash=sha256:" in entry, entry


@pytest.mark.parametrize(("lock", "left_out"), [("requirements.lock", set()), ("requirements-runtime.lock", {"dev"})])
def test_a_lock_satisfies_what_the_project_asks_for(lock: str, left_out: set[str]):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = [group for name, group in project["optional-dependencies"].items() if name not in left_out]
    pins = dict(re.findall(r"^([\w.-]+)(?:\[.+\])?==([^\s;]+)", (ROOT / lock).read_text(), re.MULTILINE))
    for text in [*project["dependencies"], *(line for group in groups for line in group)]:
        asked = Requirement(text)
        if asked.name != "suture":
            assert asked.specifier.contains(pins[canonicalize_name(asked.name)]), text


def test_the_locks_are_made_from_todays_dependencies():
    done = subprocess.run([sys.executable, ".ci/lock", "--check"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
