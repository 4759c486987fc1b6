"""The node tier: a real two-node cluster, Suture installed in it from the built image. Skipped where the machine cannot run one."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.node import images, rig
from tests.node.installation import Installation, install
from tests.node.machine import RigError
from tests.node.programs import BuildError, build

HERE = Path(__file__).resolve().parent
PROGRAMS = ("containerd", "runc", "nft", "ip", "openssl", "git")
_missing = pytest.StashKey[str]()
_archives = pytest.StashKey[list[Path]]()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build here, not in a fixture: minutes of compiling must not count against a test's timeout."""
    config = session.config
    if config.option.collectonly or not any(item.path.is_relative_to(HERE) for item in session.items):
        return
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    say = reporter.write_line if reporter else print
    try:
        _check_machine()
        build(say=say)
        # kept, not asked for again later: the sources may change meanwhile
        config.stash[_archives] = [images.base(say), images.project(say)]
    except (BuildError, RigError) as error:
        config.stash[_missing] = str(error)


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Iterator[None]:
    """Two nodes with our images on them; gone after the last test."""
    if missing := request.config.stash.get(_missing, None):
        pytest.skip(missing)
    rig.up(nodes=2)
    try:
        for archive in request.config.stash[_archives]:
            rig.load_everywhere(archive)
        yield
    finally:
        rig.down()
    assert rig.leftovers() == []


@pytest.fixture(scope="session")
def suture(cluster: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """Suture as the chart installs it, with a repository that holds the manifests of deploy/broken."""
    installed = install(tmp_path_factory.mktemp("deploy"))
    yield installed
    installed.close()


def _check_machine() -> None:
    if os.geteuid() != 0:
        raise RigError("nodes need root: network namespaces and cgroups")
    if missing := [program for program in PROGRAMS if shutil.which(program) is None]:
        raise RigError(f"not found: {', '.join(missing)}; see the head of tests/node/rig.py for the Debian packages")
    if not Path("/usr/lib/cni/bridge").exists():
        raise RigError("no /usr/lib/cni/bridge; apt-get install containernetworking-plugins")
