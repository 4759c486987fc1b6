"""The cluster tier: a real kube-apiserver and etcd, one a test run. Skipped where they cannot be built."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.apiserver import NEEDED, ApiServer, running
from tests.node.programs import BuildError, build

HERE = Path(__file__).resolve().parent
_missing = pytest.StashKey[str]()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build here, not in a fixture: minutes of compiling must not count against a test's timeout."""
    config = session.config
    files = {item.path.name for item in session.items if item.path.is_relative_to(HERE)}
    if config.option.collectonly or not files:
        return
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    say = reporter.write_line if reporter else print
    try:
        build(*NEEDED, *(["helm"] if "test_chart.py" in files else []), say=say)
    except BuildError as error:
        config.stash[_missing] = str(error)


@pytest.fixture(scope="session")
def apiserver(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """A real API server with nothing in it; shared, so a test takes a namespace of its own from `apiserver.namespace()`."""
    if missing := request.config.stash.get(_missing, None):
        pytest.skip(missing)
    with running(tmp_path_factory.mktemp("apiserver")) as server:
        yield server
