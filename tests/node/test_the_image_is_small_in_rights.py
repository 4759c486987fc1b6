"""What runs in the cluster can do little harm: no root, no compiler, no place to write but /tmp, no right that it does not use."""

import pytest

from tests.node import rig
from tests.node.installation import NAMESPACE, Installation
from tests.node.machine import RigError

pytestmark = pytest.mark.timeout(600, func_only=True)  # the images may have to be built first, which takes minutes


def in_worker(suture: Installation, script: str) -> str:
    assert suture is not None
    return rig.kubectl("exec", "-n", NAMESPACE, "deployment/suture-worker", "--", "sh", "-c", script).strip()


def test_a_process_is_nobody_in_particular(suture: Installation) -> None:
    assert in_worker(suture, "id -u; id -g").split() == ["65532", "65532"]
    assert in_worker(suture, "grep CapEff /proc/1/status").split()[1].strip("0") == ""


def test_it_writes_to_tmp_and_nowhere_else(suture: Installation) -> None:
    assert in_worker(suture, "touch /tmp/mark && ls /tmp/mark") == "/tmp/mark"
    for place in ("/", "/opt/suture", "/etc", "/usr/bin"):
        with pytest.raises(RigError, match="Read-only file system"):
            in_worker(suture, f"touch {place}/mark")


def test_no_compiler_and_no_installer_came_along(suture: Installation) -> None:
    assert in_worker(suture, "for p in gcc cc g++ make pip pip3 go cargo; do command -v $p; done; true") == ""
    assert in_worker(suture, "command -v git") == "/usr/bin/git"


def test_a_module_in_the_working_directory_is_not_taken_for_a_library(suture: Installation) -> None:
    script = (
        "cd /tmp && echo 'raise SystemExit(\"taken\")' > asyncpg.py && python3 -c 'import asyncpg; print(asyncpg.__file__)'; rm asyncpg.py"
    )

    assert in_worker(suture, script).startswith("/opt/suture/")


def test_a_worker_can_not_read_secrets_nor_change_a_deployment(suture: Installation) -> None:
    assert suture is not None
    account = f"--as=system:serviceaccount:{NAMESPACE}:suture-worker"

    with pytest.raises(RigError, match=r"no$"):
        rig.kubectl("auth", "can-i", "list", "secrets", "--all-namespaces", account)
    with pytest.raises(RigError, match="change nothing in the cluster"):
        rig.kubectl("patch", "deployment", "git", "-n", "git", "-p", '{"spec": {"replicas": 3}}', account, "--as-group=system:masters")
