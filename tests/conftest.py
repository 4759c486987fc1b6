"""The tiers: a test belongs to the folder it stands in, quick tiers run first, and what was skipped is said loudly.

Side by side (`-n 3`) each process takes a file at a time, and the whole tier whose tests share the nodes. The slow tiers come first: what
is quick fills the gaps at the end.

With CI=true a skip is a failure: a tier that silently stops to run is a tier that silently stops to protect. The fixtures of a tier are
in its own conftest.
"""

import os
from collections import Counter, defaultdict
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

TESTS = Path(__file__).resolve().parent
TIERS = ("unit", "postgres", "cluster", "node", "browser")
SHARED = "node"
"""The tier of which a machine runs one at a time. Each process of the cluster tier has an API server of its own."""
SLOW = (SHARED, "cluster", "browser", "postgres")
CI = os.environ.get("CI") == "true"


class Tiers:
    """Counts outcomes and time for each tier."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.outcomes: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.skips: defaultdict[str, Counter[str]] = defaultdict(Counter)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name = tier(TESTS.parent / report.nodeid.split("::")[0])
        self.seconds[name] += report.duration
        if report.when == "call" or not report.passed:
            self.outcomes[name][report.outcome] += 1
        if report.skipped and not hasattr(report, "wasxfail"):
            self.skips[name][reason(report.longrepr)] += 1

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section("tiers")
        for name in sorted(self.seconds, key=rank):
            counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(self.outcomes[name].items()))
            terminalreporter.write_line(f"{name:<9} {self.seconds[name]:7.1f} s  {counts}")
            for why, count in self.skips[name].items():
                terminalreporter.write_line(f"SKIPPED {count} OF THE {name.upper()} TIER: {why.upper()}", red=True, bold=True)


class Lanes(LoadScopeScheduling):
    """Hands each process a file at a time, or all of the tier that shares."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.split("::", maxsplit=1)[0]
        name = tier(TESTS.parent / file)
        return name if name == SHARED else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Lanes:
    return Lanes(config, log)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Tiers(), "suture-tiers")


@pytest.hookimpl(tryfirst=True)  # before -m looks at the marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if (name := tier(item.path)) in TIERS:
            item.add_marker(name)
    order = rank if not hasattr(config, "workerinput") else slowest
    items.sort(key=lambda item: order(tier(item.path)))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if CI and report.skipped and not hasattr(report, "wasxfail"):
        report.longrepr, report.outcome = f"A skip is a failure in CI: {reason(report.longrepr)}", "failed"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Generator[None, Any, Any]:
    """On its way to another process: a test of half a surrogate pair may have printed it."""
    return _encodable((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if CI and report.skipped:
        report.longrepr, report.outcome = f"A skip is a failure in CI: {reason(report.longrepr)}", "failed"
    return report


def _encodable(value: Any) -> Any:
    match value:
        case str():
            return value.encode("utf-8", "backslashreplace").decode()
        case dict():
            return {_encodable(key): _encodable(one) for key, one in value.items()}
        case list() | tuple():
            return type(value)(map(_encodable, value))
    return value


def tier(path: Path) -> str:
    """The folder below tests/ that holds the file."""
    return path.relative_to(TESTS).parts[0] if path.is_relative_to(TESTS) else "elsewhere"


def rank(name: str) -> int:
    return TIERS.index(name) if name in TIERS else len(TIERS)


def slowest(name: str) -> int:
    return SLOW.index(name) if name in SLOW else len(SLOW)


def reason(longrepr: object) -> str:
    """A skip's text; pytest keeps it as (file, line, "Skipped: text")."""
    return str(longrepr[2] if isinstance(longrepr, tuple) else longrepr).removeprefix("Skipped: ")
