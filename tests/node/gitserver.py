"""A git server in the rig: one pod with a bare repository that anybody may push to, and a hook by which a push can be held."""

import json
import shutil
from pathlib import Path
from typing import Any

from tests.node import rig
from tests.node.images import BASE
from tests.node.machine import inside, sh

NAMESPACE = "git"
URL = "git://git.git.svc:9418/deploy.git"
"""As the pods of the cluster call it."""

_HOOK = "while [ -e /srv/hold ]; do touch /srv/held; sleep 0.1; done"
_SERVE = (
    "git init --quiet --bare --initial-branch=main /srv/deploy.git && "
    f"printf '#!/bin/sh\\n{_HOOK}\\n' > /srv/deploy.git/hooks/pre-receive && chmod +x /srv/deploy.git/hooks/pre-receive && "
    "exec git daemon --reuseaddr --base-path=/srv --export-all --enable=receive-pack --listen=0.0.0.0 /srv"
)


class GitServer:
    """The running server; `folder` is where this side keeps its clone."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        rig.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": _objects()}))
        rig.kubectl("rollout", "status", "-n", NAMESPACE, "deployment/git", "--timeout=180s")
        self._address = f"git://{rig.service('git', NAMESPACE, 9418)}/deploy.git"

    def seed(self, source: Path, place: str) -> None:
        """Make the first commit of `main`: the folder `source` at `place`."""
        shutil.copytree(source, self._folder / place)
        self._git("init", "--quiet", "--initial-branch=main")
        self._git("add", "--all")
        self._git("-c", "user.name=Platform Team", "-c", "user.email=platform@example.com", "commit", "--quiet", "-m", "Deploy")
        self._git("push", "--quiet", self._address, "main")

    def branches(self) -> dict[str, str]:
        """Commit of each branch, in the cluster."""
        listed = self._git("ls-remote", "--heads", self._address).split()
        return {ref.removeprefix("refs/heads/"): commit for commit, ref in zip(listed[::2], listed[1::2], strict=True)}

    def diff(self, branch: str) -> str:
        """What a branch changes, without context lines."""
        self._git("fetch", "--quiet", self._address, f"+{branch}:{branch}")
        return self._git("diff", "--unified=0", f"main...{branch}")

    def commits(self, branch: str) -> int:
        """How many commits a branch has that `main` has not."""
        self._git("fetch", "--quiet", self._address, f"+{branch}:{branch}")
        return int(self._git("rev-list", "--count", f"main..{branch}"))

    def hold_pushes(self) -> None:
        """From now on a push stays in the middle until `release`."""
        self._shell("rm -f /srv/held; touch /srv/hold")

    def holds_one(self) -> bool:
        return self._shell("if [ -e /srv/held ]; then echo held; fi").strip() == "held"

    def release(self) -> None:
        self._shell("rm -f /srv/hold")

    def _shell(self, script: str) -> str:
        return rig.kubectl("exec", "-n", NAMESPACE, "deployment/git", "--", "sh", "-c", script)

    def _git(self, *arguments: str) -> str:
        environ = {"PATH": "/usr/bin:/bin", "HOME": str(self._folder), "GIT_CONFIG_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0"}
        return sh(*inside(1, "git", "-C", self._folder, *arguments), env=environ).stdout


def _objects() -> list[dict[str, Any]]:
    labels = {"app": "git"}
    container: dict[str, Any] = {
        "name": "git",
        "image": BASE,
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", _SERVE],
        "ports": [{"containerPort": 9418}],
        "readinessProbe": {"tcpSocket": {"port": 9418}, "periodSeconds": 1},
        "volumeMounts": [{"name": "srv", "mountPath": "/srv"}],
    }
    pod = {"containers": [container], "volumes": [{"name": "srv", "emptyDir": {}}], "terminationGracePeriodSeconds": 1}
    template = {"metadata": {"labels": labels}, "spec": pod}
    metadata = {"name": "git", "namespace": NAMESPACE}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata}
        | {"spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}},
        {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"selector": labels, "ports": [{"port": 9418}]}},
    ]
