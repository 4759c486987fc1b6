"""The model of claim, lease, epoch, sweep, checkpoint, wait and cancel (`engine.pml`), checked exhaustively by SPIN.

Each scene is searched whole, for broken assertions and for each of its LTL properties under weak fairness. Then each mechanism is taken
out, and SPIN must find what goes wrong: a model that cannot fail says nothing. Knows nothing of the engine's code.
"""

import re
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.proof.figures import Figure, Say

MODEL = Path(__file__).with_name("engine.pml")
TOOLS = ("spin", "gcc")
DEPTH = 200_000
SECONDS = 600.0
AT_ONCE = 2
ASSERTIONS = ""
"""The name of the search for broken assertions alone."""

SCENES: dict[str, tuple[str, ...]] = {
    "TIMEOUT": (ASSERTIONS, "finished", "agreed"),
    "CANCEL": (ASSERTIONS, "answered", "remembered"),
    "CROWD": (ASSERTIONS, "passed", "unlocked"),
}

WITHOUT: dict[str, tuple[str, str]] = {
    "NO_EPOCH": ("TIMEOUT", ASSERTIONS),
    "NO_FENCE": ("TIMEOUT", ASSERTIONS),
    "SAME_EPOCH": ("TIMEOUT", ASSERTIONS),
    "NO_LOCK": ("TIMEOUT", ASSERTIONS),
    "NO_SKIP_LOCKED": ("CROWD", "passed"),
    "NO_FIRST_WINS": ("TIMEOUT", ASSERTIONS),
    "NO_WAIT_LOCK": ("CANCEL", "answered"),
    "STALE_SWEEP": ("TIMEOUT", ASSERTIONS),
    "NO_SWEEP": ("TIMEOUT", "finished"),
    "NO_WAKE": ("TIMEOUT", "finished"),
    "LATE_EVENT": ("TIMEOUT", "agreed"),
    "DUE_FIRST": ("TIMEOUT", "agreed"),
    "FORGET_WISH": ("CANCEL", "remembered"),
}
"""A mechanism that is taken out, and what then breaks where."""


@dataclass(frozen=True)
class Search:
    scene: str
    property: str
    without: str = ""

    def __str__(self) -> str:
        return " ".join(filter(None, (self.scene, self.property or "assertions", self.without and f"with {self.without}")))


@dataclass(frozen=True)
class Found:
    search: Search
    states: int
    wrong: str
    """What SPIN holds against the model; empty: nothing, and every state was seen."""


def searches() -> tuple[list[Search], list[Search]]:
    """The whole model, and the ones that must fail."""
    whole = [Search(scene, name) for scene, names in SCENES.items() for name in names]
    return whole, [Search(*where, without=mechanism) for mechanism, where in WITHOUT.items()]


def missing() -> list[str]:
    """The programs that this machine lacks."""
    return [tool for tool in TOOLS if shutil.which(tool) is None]


def search(what: Search) -> Found:
    """Raises: RuntimeError when the search did not come to its end."""
    with tempfile.TemporaryDirectory(prefix="suture-spin-") as folder:
        given = [f"-D{what.scene}", *([f"-D{what.without}"] if what.without else [])]
        _run(folder, "spin", "-a", *given, str(MODEL))
        # NFAIR: room for as many processes in the search under fairness. NOCLAIM: assertions and dead ends need no property.
        _run(folder, "gcc", "-O1", "-w", "-DNFAIR=4", *([] if what.property else ["-DNOCLAIM"]), "-o", "pan", "pan.c")
        out = _run(folder, "./pan", f"-m{DEPTH}", *(["-a", "-f", "-N", what.property] if what.property else []))
    wrong = re.search(r"^pan:1: (.+?) \(at depth", out, re.MULTILINE)
    states, errors = re.search(r"([\d.e+]+) states, stored", out), re.search(r"errors: (\d+)", out)
    if states is None or errors is None or "max search depth too small" in out or (not wrong and errors[1] != "0"):
        raise RuntimeError(f"SPIN did not search {what} to its end:\n{out[-2000:]}")
    return Found(what, int(float(states[1])), wrong[1] if wrong else "")


def _run(folder: str, *command: str) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]} failed: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def prove(say: Say, *, seed: int, quick: bool) -> list[Figure]:
    if lacks := missing():
        return [Figure("the model", "SKIPPED", "no counterexample", False, f"{' AND '.join(lacks).upper()} MISSING")]
    whole, broken = searches()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = list(pool.map(search, [*whole, *broken]))
    for one in found:
        say(f"{one.search}: {one.states:,} states, {one.wrong or 'nothing wrong'}")
    return figures(found)


def figures(found: list[Found]) -> list[Figure]:
    wrong = [f"{one.search}: {one.wrong}" for one in found if one.wrong and not one.search.without]
    spared = [str(one.search) for one in found if not one.wrong and one.search.without]
    whole, broken = searches()
    states = sum(one.states for one in found if not one.search.without)
    return [
        Figure(
            "properties of the model", f"{len(whole) - len(wrong)}/{len(whole)} in {states:,} states", "all", not wrong, "; ".join(wrong)
        ),
        Figure("models without a mechanism refuted", f"{len(broken) - len(spared)}/{len(broken)}", "all", not spared, "; ".join(spared)),
    ]
