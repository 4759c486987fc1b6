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

PROGRAMS = ("containerd", "runc", "nft", "ip", "openssl", "git")


@pytest.fixture(scope="session")
def cluster() -> Iterator[None]:
    """Two nodes with our images on them; gone after the last test."""
    try:
        _check_machine()
        build()
        archives = images.base(), images.project()
    except (BuildError, RigError) as error:
        pytest.skip(str(error))
    rig.up(nodes=2)
    try:
        for archive in archives:
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
