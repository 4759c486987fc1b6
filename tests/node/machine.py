"""What the rig does to this machine: commands, long-running processes and their ends, network namespaces. Knows no Kubernetes.

Everything that the rig leaves on the machine is under RUN or carries its name, so that it can be found and removed.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.node.programs import HOME

RUN = HOME / "run"
NETNS = Path("/run/netns")

_children: dict[str, subprocess.Popen[bytes]] = {}
"""Of this very process: it has to reap them. Another invocation knows the rig's processes by their files alone."""


class RigError(Exception):
    """The rig cannot do it; the message says what is in the way."""


def sh(*command: str | Path | int, check: bool = True, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, its output captured.

    Raises: RigError, with what the command said.
    """
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False, **options)
    if check and done.returncode != 0:
        raise RigError(f"{' '.join(map(str, command))}: {(done.stderr or done.stdout).strip()}")
    return done


def namespace(number: int) -> str:
    """Name of the network namespace of node NUMBER; node 1 shares its own with the control plane."""
    return f"suture-rig-{number}"


def inside(number: int, *command: str | Path | int) -> list[str]:
    """The command, moved into a node's network."""
    # nsenter, not `ip netns exec`: the latter remounts /sys and hides the cgroup mounts from the kubelet.
    return ["nsenter", f"--net={NETNS / namespace(number)}", *map(str, command)]


def start(number: int, name: str, command: Sequence[str | Path]) -> None:
    """Start a process of node NUMBER that outlives this one; its output is in RUN/logs/NAME.log, its id in RUN/NAME.pid."""
    with (RUN / "logs" / f"{name}.log").open("ab") as log:
        process = subprocess.Popen(
            inside(number, *command), stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True, cwd=RUN
        )
    _children[name] = process
    (RUN / f"{name}.pid").write_text(str(process.pid))


def stop(name: str, how: signal.Signals = signal.SIGTERM, within: float = 10.0) -> None:
    """End a process that `start` started; one that does not end in time is killed. No process is no failure."""
    path = RUN / f"{name}.pid"
    if not path.exists():
        return
    pid = int(path.read_text())
    with suppress(ProcessLookupError):
        os.kill(pid, how)
        if not _ended(pid, within):
            os.kill(pid, signal.SIGKILL)
            _ended(pid, within)
    path.unlink()
    if child := _children.pop(name, None):
        child.wait()


def until(what: str, holds: Callable[[], bool], within: float = 90.0) -> None:
    """Wait for a condition.

    Raises: RigError, when it does not come true in time.
    """
    deadline = time.monotonic() + within
    while not holds():
        if time.monotonic() > deadline:
            raise RigError(f"{what} did not happen within {within:.0f} s; see {RUN / 'logs'}")
        time.sleep(0.1)


def sweep() -> None:
    """Kill the container shims that still serve a socket under RUN, and undo the mounts there."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            program, *arguments = (process / "cmdline").read_text().split("\0")
            if "containerd-shim" in program and any(argument.startswith(f"{RUN}/") for argument in arguments):
                os.kill(int(process.name), signal.SIGKILL)
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for mount in sorted((m for m in mounts if m.startswith(f"{RUN}/")), reverse=True):
        sh("umount", "-l", mount, check=False)


def release_folders() -> None:
    """Remove what ip, kubelet and the pod network made for themselves at fixed places, as far as nobody else uses it."""
    with suppress(OSError):
        NETNS.rmdir() if not any(NETNS.iterdir()) and sh("umount", NETNS, check=False).returncode == 0 else None
    if not sh("pgrep", "-x", "kubelet", check=False).stdout:
        Path("/var/lib/kubelet/device-plugins/kubelet.sock").unlink(missing_ok=True)
    for folder in ("/var/lib/kubelet/device-plugins", "/var/lib/kubelet", "/var/log/containers", "/var/lib/cni/results", "/var/lib/cni"):
        with suppress(OSError):
            Path(folder).rmdir()


def _ended(pid: int, within: float) -> bool:
    deadline = time.monotonic() + within
    while _alive(pid):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def _alive(pid: int) -> bool:
    """Whether a process runs; one that ended and is not reaped yet does not."""
    try:
        return ") Z" not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
