"""The mutation list: each mechanism of the engine is taken out once, on a copy, and the tests that guard it must fail.

The list is `mutations/*.toml`, one file a part of the engine. A mutant names its invariant, the text to change and where it stands, and
the tests that kill it. Its text must stand there as often as it says: a list that is out of step with the code proves nothing.
"""

import asyncio
import random
import re
import shutil
import sys
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from suture.cli.postgres import EmbeddedPostgres
from suture.cli.room import room
from tests.proof.figures import Figure, Say

ROOT = Path(__file__).resolve().parents[2]
LISTS = Path(__file__).with_name("mutations")
TIERS = ("unit", "postgres")
AT_ONCE = 2
QUICK = 8
CALM = 1800.0  # seconds for all tests without a mutant
SECONDS = 240.0  # for the tests of one mutant; one that hangs is ended by pytest-timeout long before
SERVER = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "max_connections": "300"}

Fate = Literal["killed", "survived", "broken"]

# What Postgres or Python say of a text that is no program: such a mutant shows that we can misspell, not that a test guards a mechanism.
_MISSPELT = re.compile(
    r"SyntaxError|UndefinedColumn|UndefinedTable|UndefinedFunction|AmbiguousColumn|IndeterminateDatatype|DatatypeMismatch|UndefinedParameter|"
    r"GroupingError|the server expects \d+ argument|NameError|ImportError|IndentationError|ModuleNotFoundError|error\w* during collection"
)


@dataclass(frozen=True)
class Mutant:
    id: str
    invariant: str
    file: str
    """Below src/engine."""
    old: str
    new: str
    tests: tuple[str, ...]
    """`file` or `file::test`, without folder and ending."""
    at: str = ""
    """The statement (`-- name: …`) or function (`def …`) in which the text stands; empty: anywhere in the file."""
    times: int = 1

    def mutated(self, text: str) -> str:
        """Raises: ValueError when the text does not stand in `text` as often as it should."""
        try:
            start, end = section(text, self.at)
        except ValueError as error:
            raise ValueError(f"{self.id}: {error} in {self.file}") from None
        found = text[start:end].count(self.old)
        if found != self.times:
            raise ValueError(f"{self.id}: {self.old!r} stands {found} times in {self.file} {self.at}, not {self.times}")
        return text[:start] + text[start:end].replace(self.old, self.new) + text[end:]


def section(text: str, at: str) -> tuple[int, int]:
    """Where the named statement or function begins and ends. Raises: ValueError."""
    if not at:
        return 0, len(text)
    begins = rf"^(?P<indent> *)(?:-- name: |create (?:or replace )?function suture\.|(?:async )?def |class ){at}\b"
    found = re.search(begins, text, re.MULTILINE)
    if found is None:
        raise ValueError(f"there is no statement or function {at}")
    follows = re.compile(rf"^ {{0,{len(found['indent'])}}}(?:-- name: |create |(?:async )?def |class |@)", re.MULTILINE)
    end = follows.search(text, found.end())
    return found.start(), end.start() if end else len(text)


def load() -> list[Mutant]:
    """The whole list. Raises: ValueError for an id that stands twice."""
    found = [
        Mutant(**one | {"tests": tuple(one["tests"])})
        for path in sorted(LISTS.glob("*.toml"))
        for one in tomllib.loads(path.read_text())["mutant"]
    ]
    twice = {m.id for m in found if [other.id for other in found].count(m.id) > 1}
    if twice:
        raise ValueError(f"these ids stand twice: {', '.join(sorted(twice))}")
    return found


def stale(mutants: Sequence[Mutant]) -> list[str]:
    """What of the list is out of step with the code and the tests."""
    return [complaint for mutant in mutants for complaint in _complaints(mutant)]


def _complaints(mutant: Mutant) -> Iterator[str]:
    path = ROOT / "src" / "engine" / mutant.file
    try:
        if mutant.mutated(path.read_text()) == path.read_text():
            yield f"{mutant.id}: it changes nothing"
    except (OSError, ValueError) as error:
        yield str(error)
    for test in mutant.tests:
        try:
            node(test)
        except ValueError as error:
            yield f"{mutant.id}: {error}"


def node(test: str, root: Path = ROOT) -> str:
    """The address of a test as pytest takes it. Raises: ValueError when there is no such test."""
    name, _, function = test.partition("::")
    paths = [path for tier in TIERS if (path := root / "tests" / tier / "engine" / f"{name}.py").exists()]
    if len(paths) != 1:
        raise ValueError(f"there is no test file {name}")
    if function and not re.search(rf"^(?:async )?def {function.partition('[')[0]}\(", paths[0].read_text(), re.MULTILINE):
        raise ValueError(f"{name} has no test {function}")
    return f"{paths[0].relative_to(root)}{'::' if function else ''}{function}"


def prove(say: Say, *, seed: int, quick: bool) -> list[Figure]:
    mutants = load()
    complaints = stale(mutants)
    whole = Figure("mutation list in step with the code", f"{len(complaints)} stale", "0 stale", not complaints, "; ".join(complaints))
    if complaints:
        return [whole]
    chosen = random.Random(seed).sample(mutants, QUICK) if quick else mutants
    return [whole, *asyncio.run(_prove(say, chosen))]


async def _prove(say: Say, mutants: list[Mutant]) -> list[Figure]:
    with room(_memory(), "suture-mutants-") as private:
        private.path.chmod(0o711)  # as root the server runs as nobody, who has to pass
        async with EmbeddedPostgres.start(private.path / "data", settings=SERVER) as server:
            plots = [Plot(private.path / f"plot-{n}", server.url) for n in range(AT_ONCE)]
            tests = sorted({test for mutant in mutants for test in mutant.tests})
            halves = (plot.run(tests[n::AT_ONCE], to_the_end=True) for n, plot in enumerate(plots) if tests[n::AT_ONCE])
            failed = [name for ran in await asyncio.gather(*halves) for name in ran.failed]
            say(f"{len(tests)} tests without a mutant: {', '.join(failed) or 'all pass'}")
            fates = await _fates(say, mutants, plots)
    calm = Figure("tests that kill, without a mutant", f"{len(failed)} fail", "all pass", not failed, ", ".join(failed))
    return [calm, *_figures(fates)]


async def _fates(say: Say, mutants: list[Mutant], plots: "list[Plot]") -> dict[Mutant, tuple[Fate, str]]:
    waiting, fates = list(mutants), dict[Mutant, tuple[Fate, str]]()

    async def tend(plot: Plot) -> None:
        while waiting:
            mutant = waiting.pop(0)
            fates[mutant] = fate, why = await plot.fate(mutant)
            say(f"{len(fates):3} of {len(mutants)}  {mutant.invariant:<4} {mutant.id:<44} {fate}{'' if fate == 'broken' else ' ' + why}")
            if fate == "broken":
                say(why)

    await asyncio.gather(*map(tend, plots))
    return fates


def _figures(fates: dict[Mutant, tuple[Fate, str]]) -> list[Figure]:
    killed = sum(fate == "killed" for fate, _ in fates.values())
    left = sorted(f"{fate}: {mutant.id} ({mutant.invariant})" for mutant, (fate, _) in fates.items() if fate != "killed")
    covered = {invariant for mutant in fates for invariant in mutant.invariant.split()}
    return [
        Figure("mutants killed", f"{killed}/{len(fates)}", "all", not left, "; ".join(left)),
        Figure("invariants with a mutant", str(len(covered)), "any", bool(covered), " ".join(sorted(covered))),
    ]


@dataclass(frozen=True)
class Ran:
    code: int
    text: str

    @property
    def failed(self) -> list[str]:
        """The tests that failed, by name; what pytest said when it came to none."""
        named = re.findall(r"^(?:FAILED|ERROR) \S+::(\S+)", self.text, re.MULTILINE)
        return named or ([] if self.code == 0 else [self.text[-500:]])


class Plot:
    """A copy of the code and its tests, on which one mutant at a time grows."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self._url = folder, url
        for name in ("src", "tests"):
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "cases", "node", "browser", "cluster"))
        shutil.copy(ROOT / "pyproject.toml", folder)
        (folder / ".dev").mkdir()
        (folder / ".dev" / "suture").symlink_to("../src")

    async def fate(self, mutant: Mutant) -> tuple[Fate, str]:
        with self._grown(mutant):
            ran = await self.run(mutant.tests)
        failed = re.search(r"^(?:FAILED|ERROR) \S+::(\S+)", ran.text, re.MULTILINE)
        if ran.code == 0:
            return "survived", ""
        if ran.code != 1 or not failed or _MISSPELT.search(ran.text):
            return "broken", ran.text[-3000:]
        return "killed", f"by {failed[1]}"

    @contextmanager
    def _grown(self, mutant: Mutant) -> Iterator[None]:
        path = self.folder / "src" / "engine" / mutant.file
        text = path.read_text()
        try:
            self._write(path, mutant.mutated(text))
            yield
        finally:
            self._write(path, text)

    def _write(self, path: Path, text: str) -> None:
        # Compiled code is told apart by second and size: two mutants of one length in one second would be the same.
        for compiled in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
            compiled.unlink()
        path.write_text(text)

    async def run(self, tests: Sequence[str], *, to_the_end: bool = False) -> Ran:
        process = await asyncio.create_subprocess_exec(
            *(
                sys.executable,
                "-m",
                "pytest",
                "-x",
                "-q",
                "-rfE",
                "--tb=short",
                "--no-header",
                "-o",
                "timeout=40",
                *(node(test, self.folder) for test in tests),
            ),
            cwd=self.folder,
            # For the processes that a test starts; pytest itself finds the copy by its own configuration.
            env={
                "PATH": "/usr/bin:/bin",
                "PYTHONPATH": str(self.folder / ".dev"),
                "SUTURE_TEST_POSTGRES": self._url,
                "SUTURE_TEST_PATIENCE": "10",  # many of them die by a wait
                "HOME": str(self.folder),
            },
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            out, _ = await asyncio.wait_for(process.communicate(), CALM if to_the_end else SECONDS)
        except TimeoutError:
            process.kill()
            await process.wait()
            return Ran(2, f"not through in {CALM if to_the_end else SECONDS:g} s")
        return Ran(process.returncode or 0, out.decode(errors="replace"))


def _memory() -> Path:
    memory = Path("/dev/shm")
    return memory if memory.is_dir() else Path("/tmp")
