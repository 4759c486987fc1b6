"""The programs of a cluster, built from their Go modules: which there are, how one is built, when it must be built again.

Knows no cluster: `rig` runs them on nodes, the fixture of tests/cluster runs an API server alone. The pins are go.mod and go.sum
under tools/. Programs are kept under ~/.cache/suture-rig/bin (SUTURE_RIG_HOME overrides the folder) and used again until a pin moves.
"""

import fcntl
import hashlib
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

HOME = Path(os.environ.get("SUTURE_RIG_HOME", Path.home() / ".cache" / "suture-rig"))
BIN = HOME / "bin"
TOOLS = Path(__file__).resolve().parent / "tools"
KUBERNETES = "v1.34.4"

# Without these, clients refuse the server as "v0.0.0-master".
_VERSION = " ".join(
    f"-X {package}.gitVersion={KUBERNETES} -X {package}.gitMajor=1 -X {package}.gitMinor=34"
    for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
)
_HELM = "".join(  # without these, `helm template` takes every cluster for 1.20
    f" -X helm.sh/helm/v3/pkg/{package}.k8sVersion{part}={number}"
    for package in ("chartutil", "lint/rules")
    for part, number in (("Major", 1), ("Minor", 34))
)


class BuildError(Exception):
    """A program cannot be built here; the message says which and why."""


@dataclass(frozen=True)
class Program:
    """One program: the folder under tools/ that pins it, and its main package."""

    name: str
    folder: str
    package: str

    @property
    def flags(self) -> str:
        return f"-s -w {_VERSION}{_HELM if self.name == 'helm' else ''}"

    @property
    def path(self) -> Path:
        return BIN / self.name

    @property
    def stamp(self) -> Path:
        return BIN / f"{self.name}.stamp"

    def pins(self) -> str:
        """Digest of all that decides the program: module files, sources of ours, package, link flags."""
        digest = hashlib.sha256(f"{self.package}\n{self.flags}\n".encode())
        for file in sorted((TOOLS / self.folder).iterdir()):
            digest.update(file.name.encode() + b"\0" + file.read_bytes())
        return digest.hexdigest()


PROGRAMS = {
    name: Program(name, folder, package)
    for name, folder, package in (
        ("kube-apiserver", "kubernetes", "k8s.io/kubernetes/cmd/kube-apiserver"),
        ("kubectl", "kubernetes", "k8s.io/kubernetes/cmd/kubectl"),
        ("etcd", "etcd", "."),
        ("kube-controller-manager", "kubernetes", "k8s.io/kubernetes/cmd/kube-controller-manager"),
        ("kube-scheduler", "kubernetes", "k8s.io/kubernetes/cmd/kube-scheduler"),
        ("kubelet", "kubernetes", "k8s.io/kubernetes/cmd/kubelet"),
        ("kube-proxy", "kubernetes", "k8s.io/kubernetes/cmd/kube-proxy"),
        ("coredns", "coredns", "github.com/coredns/coredns"),
        ("helm", "helm", "helm.sh/helm/v3/cmd/helm"),
        ("pause", "pause", "."),
    )
}


def build(*names: str, say: Callable[[str], None] = print) -> None:
    """Bring the named programs (none named: all) up to their pins; what is current is not touched.

    Raises: BuildError.
    """
    BIN.mkdir(parents=True, exist_ok=True)
    wanted = [PROGRAMS[name] for name in names or PROGRAMS]
    if all(_is_current(program) for program in wanted):
        return
    with locked(HOME / "build.lock"):  # a second one waits, then finds the work done
        for program in wanted:
            if not _is_current(program) and not _adopt(program):
                _build(program, say)


@contextmanager
def locked(path: Path, *, wait: bool = True) -> Iterator[None]:
    """Hold `path` as a lock that ends with this process, whatever ends it.

    Raises: BlockingIOError when another process holds it and `wait` is false.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield


def _is_current(program: Program) -> bool:
    return program.path.exists() and program.stamp.exists() and program.stamp.read_text() == program.pins()


def _adopt(program: Program) -> bool:
    """A program without a stamp is ours if each module linked into it is one that go.sum pins, hash and all."""
    if not program.path.exists() or program.stamp.exists():
        return False
    listed = subprocess.run(["go", "version", "-m", program.path], capture_output=True, text=True, check=False).stdout
    linked = [line.split()[1:4] for line in listed.splitlines() if line.startswith("\tdep\t")]
    pinned = set((TOOLS / program.folder / "go.sum").read_text().splitlines())
    if not linked or any(" ".join(module) not in pinned for module in linked):
        return False
    program.stamp.write_text(program.pins())
    return True


def _build(program: Program, say: Callable[[str], None]) -> None:
    say(f"building {program.name} from its Go module (once; minutes on a small machine)")
    started, new = time.monotonic(), BIN / f".{program.name}.new"
    command = ["go", "build", "-trimpath", "-ldflags", program.flags, "-o", str(new), program.package]
    try:
        subprocess.run(
            command, cwd=TOOLS / program.folder, env={**os.environ, "CGO_ENABLED": "0"}, check=True, capture_output=True, text=True
        )
    except FileNotFoundError:
        raise BuildError(f"{program.name} cannot be built: no `go` in the PATH (1.26 or newer is needed)") from None
    except subprocess.CalledProcessError as error:
        raise BuildError(f"{program.name} cannot be built: {error.stderr.strip()[-2000:]}") from None
    new.replace(program.path)
    program.stamp.write_text(program.pins())
    say(f"built {program.name} in {time.monotonic() - started:.0f} s")
