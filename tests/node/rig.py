"""A real Kubernetes cluster on one Linux machine, with no container registry and no virtual machine.

    python -m tests.node.rig build          build kube-apiserver, kubelet, ... from their Go modules (once; minutes)
    python -m tests.node.rig up --nodes 2   etcd, control plane, CoreDNS and nodes (containerd + kubelet + kube-proxy)
    python -m tests.node.rig load FILE.tar  import a docker-archive into every node
    python -m tests.node.rig kubectl ...    kubectl against it, from inside its network
    python -m tests.node.rig exec ...       any command inside its network, with KUBECONFIG and PATH set
    python -m tests.node.rig kill-node N    stop node N at once, pods and all, as a power cut would; start-node N brings it back
    python -m tests.node.rig down           stop everything and remove it

Every process lives in network namespaces of its own, so nothing of it touches the machine's network. One rig a machine: a
second `up` is refused. Needs root and, from Debian: containerd runc containernetworking-plugins nftables iproute2 openssl.
State is under ~/.cache/suture-rig (SUTURE_RIG_HOME overrides).
"""

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.node.machine import NETNS, RUN, RigError, inside, namespace, release_folders, sh, start, stop, sweep, until
from tests.node.pki import Authority
from tests.node.programs import BIN, PROGRAMS, BuildError, build, locked
from tests.node.worker_node import API, address, forget_node, kill_node, load, pods, start_node

ADMIN = RUN / "pki/admin.kubeconfig"
SERVICES, KUBERNETES_SERVICE = "198.19.0.0/24", "198.19.0.1"
_LOCK = Path("/run/suture-rig.lock")
_OWNER = Path("/run/suture-rig.owner")
_FOREIGN = RUN / "foreign-networks"
"""Pods' networks that were there before: somebody else's."""


def up(nodes: int = 1) -> None:
    """Start a cluster of NODES nodes and wait until every one is Ready.

    Raises: RigError, when a rig is up already or a part does not start.
    """
    with _alone():
        if _OWNER.exists():
            raise RigError(f"a rig is up already, with its state in {_OWNER.read_text()}; `python -m tests.node.rig down` ends it")
        missing = [name for name, program in PROGRAMS.items() if not program.path.exists()]
        if missing:
            raise RigError(f"not built: {', '.join(missing)}; `python -m tests.node.rig build` first")
        _OWNER.write_text(str(RUN))
        (RUN / "logs").mkdir(parents=True)
        _FOREIGN.write_text("\n".join(_pod_networks()))
        _networks(nodes)
        _certificates(nodes)
        _control_plane()
        for number in range(1, nodes + 1):
            start_node(number)
        until("every node ready", lambda: _ready_nodes() == nodes)
        until("the default service account", lambda: sh(*_kubectl("get", "serviceaccount", "default"), check=False).returncode == 0)


def down() -> None:
    """Stop everything and remove it: processes, mounts, namespaces, cgroups, files. Nothing up is no failure."""
    with _alone():
        numbers = sorted(int(path.name[4:]) for path in RUN.glob("node[0-9]*") if path.is_dir())
        for number in numbers:
            kill_node(number)
        for pid in RUN.glob("*.pid"):
            stop(pid.stem)
        sweep()
        for number in numbers:
            forget_node(number)
        # Of pods as well: a containerd that was killed could not say which were its own.
        foreign = _FOREIGN.read_text().split() if _FOREIGN.exists() else _pod_networks()
        pods_of_ours = [name for name in _pod_networks() if name not in foreign]
        for left in [*(path.name for path in NETNS.glob(f"{namespace(0)[:-1]}*")), *pods_of_ours]:
            sh("ip", "netns", "del", left, check=False)
        shutil.rmtree(RUN, ignore_errors=True)
        release_folders()
        _OWNER.unlink(missing_ok=True)


def _pod_networks() -> list[str]:
    return [path.name for path in NETNS.glob("cni-*")]


def leftovers() -> list[str]:
    """What is still of a rig on this machine: processes, mounts, network namespaces, cgroups, folders. Empty after `down`."""
    processes = [f"process {line}" for line in sh("ps", "-eo", "pid,args").stdout.splitlines() if f"{RUN}/" in line]
    mounts = [f"mount {line.split()[1]}" for line in Path("/proc/mounts").read_text().splitlines() if f"{RUN}/" in line]
    namespaces = [f"network {path.name}" for path in NETNS.glob("*") if path.name.startswith(("suture-rig-", "cni-"))]
    groups = [f"cgroup {path}" for path in Path("/sys/fs/cgroup").glob("**/rig-node*")]
    return [*processes, *mounts, *namespaces, *groups, *(str(path) for path in (RUN, _OWNER) if path.exists())]


def nodes() -> list[int]:
    """Numbers of the nodes, dead ones too."""
    return sorted(int(path.parent.name[4:]) for path in RUN.glob("node*/containerd.toml"))


def load_everywhere(archive: Path) -> None:
    """Import a docker-archive into every node."""
    for number in nodes():
        load(number, archive)


def kubectl(*arguments: str | Path, stdin: str | None = None) -> str:
    """What `kubectl ARGUMENTS` prints.

    Raises: RigError, with what it said.
    """
    return sh(*_kubectl(*arguments), input=stdin).stdout


def service(name: str, space: str, port: int) -> str:
    """Address of a Service, `ip:port`, once it takes connections on node 1.

    Pods are ready a moment before kube-proxy has written the rule that leads to them; until then the address refuses.

    Raises: RigError, when it does not in time.
    """
    ip = kubectl("get", "service", name, "-n", space, "-o", "jsonpath={.spec.clusterIP}")
    knock = inside(1, "bash", "-c", f"</dev/tcp/{ip}/{port}")
    until(f"a connection to service {name}", lambda: sh(*knock, check=False).returncode == 0, within=60)
    return f"{ip}:{port}"


@contextmanager
def _alone() -> Iterator[None]:
    try:
        with locked(_LOCK, wait=False):
            yield
    except BlockingIOError:
        raise RigError("another process is starting or stopping the rig just now") from None


def _kubectl(*arguments: str | Path) -> list[str]:
    return inside(1, BIN / "kubectl", "--kubeconfig", ADMIN, *arguments)


def _ready_nodes() -> int:
    return sh(*_kubectl("get", "nodes", "--no-headers"), check=False).stdout.count(" Ready ")


def _networks(nodes: int) -> None:
    """One namespace a node; node 1 carries a bridge that the others' veth pairs plug into."""
    for n in range(1, nodes + 1):
        sh("ip", "netns", "add", namespace(n))
        sh(*inside(n, "ip", "link", "set", "lo", "up"))
        sh(*inside(n, "sysctl", "-qw", "net.ipv4.ip_forward=1"))
    sh(*inside(1, "ip", "link", "add", "rig0", "type", "bridge"))
    sh(*inside(1, "ip", "addr", "add", f"{address(1)}/24", "dev", "rig0"))
    sh(*inside(1, "ip", "link", "set", "rig0", "up"))
    sh(*inside(1, "ip", "route", "add", "default", "dev", "rig0"))  # the API server wants a default route
    for n in range(2, nodes + 1):
        sh("ip", "link", "add", f"rigp{n}", "netns", namespace(1), "type", "veth", "peer", "rig0", "netns", namespace(n))
        sh(*inside(1, "ip", "link", "set", f"rigp{n}", "master", "rig0", "up"))
        sh(*inside(n, "ip", "addr", "add", f"{address(n)}/24", "dev", "rig0"))
        sh(*inside(n, "ip", "link", "set", "rig0", "up"))
        sh(*inside(n, "ip", "route", "add", "default", "via", address(1)))
    for n in range(1, nodes + 1):
        for other in (o for o in range(1, nodes + 1) if o != n):
            sh(*inside(n, "ip", "route", "add", pods(other), "via", address(other)))


def _certificates(nodes: int) -> None:
    authority, server = Authority.create(RUN / "pki"), f"https://{API}:6443"
    names = "DNS:localhost,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc"
    authority.issue("apiserver", "/CN=kube-apiserver", f"{names},IP:127.0.0.1,IP:{API},IP:{KUBERNETES_SERVICE}")
    authority.issue("admin", "/O=system:masters/CN=admin", "DNS:admin")
    authority.kubeconfig("admin", server)
    for n in range(1, nodes + 1):
        authority.issue(f"node{n}", f"/O=system:nodes/CN=system:node:node{n}", f"DNS:node{n},IP:{address(n)}")
        authority.kubeconfig(f"node{n}", server)


def _control_plane() -> None:
    start(1, "etcd", [
        BIN / "etcd", "--data-dir", RUN / "etcd", "--unsafe-no-fsync",
        "--listen-client-urls", "http://127.0.0.1:2379", "--advertise-client-urls", "http://127.0.0.1:2379",
        "--listen-peer-urls", "http://127.0.0.1:2380",
    ])  # fmt: skip
    start(1, "apiserver", _apiserver(RUN / "pki"))
    until("the API server's readiness", lambda: sh(*_kubectl("get", "--raw", "/readyz"), check=False).returncode == 0)
    start(1, "controller-manager", [
        BIN / "kube-controller-manager", f"--kubeconfig={ADMIN}", "--leader-elect=false",
        f"--service-account-private-key-file={RUN}/pki/sa.key", f"--root-ca-file={RUN}/pki/ca.crt",
        "--use-service-account-credentials", "--node-monitor-grace-period=10s",
    ])  # fmt: skip
    start(1, "scheduler", [BIN / "kube-scheduler", f"--kubeconfig={ADMIN}", "--leader-elect=false"])
    (RUN / "Corefile").write_text(
        f".:53 {{\n  bind {API}\n  errors\n  kubernetes cluster.local in-addr.arpa ip6.arpa {{\n"
        f"    kubeconfig {ADMIN}\n    pods insecure\n  }}\n}}\n"
    )
    start(1, "coredns", [BIN / "coredns", "-conf", RUN / "Corefile"])


def _apiserver(pki: Path) -> list[str | Path]:
    return [
        BIN / "kube-apiserver", "--etcd-servers=http://127.0.0.1:2379", f"--advertise-address={API}", "--secure-port=6443",
        f"--tls-cert-file={pki}/apiserver.crt", f"--tls-private-key-file={pki}/apiserver.key", f"--client-ca-file={pki}/ca.crt",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={pki}/sa.pub", f"--service-account-signing-key-file={pki}/sa.key",
        f"--service-cluster-ip-range={SERVICES}", "--authorization-mode=Node,RBAC", "--allow-privileged=true",
        f"--kubelet-client-certificate={pki}/admin.crt", f"--kubelet-client-key={pki}/admin.key",
        "--kubelet-preferred-address-types=InternalIP",
    ]  # fmt: skip


def _exec(command: list[str]) -> None:
    os.environ.update(KUBECONFIG=str(ADMIN), PATH=f"{BIN}:{os.environ['PATH']}")
    moved = inside(1, *command)
    os.execvp(moved[0], moved)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="rig", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("build").add_argument("programs", nargs="*")
    commands.add_parser("up").add_argument("--nodes", type=int, default=1)
    commands.add_parser("load").add_argument("archive", type=Path)
    for name in ("kill-node", "start-node"):
        commands.add_parser(name).add_argument("number", type=int)
    commands.add_parser("down")
    for name in ("kubectl", "exec"):
        commands.add_parser(name)
    chosen, rest = parser.parse_known_args()  # not REMAINDER: it refuses a rest that begins with an option
    if rest and chosen.command not in ("kubectl", "exec"):
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    chosen.rest = rest
    return chosen


def main() -> None:
    a = _arguments()
    try:
        match a.command:
            case "build":
                build(*a.programs)
            case "up":
                up(a.nodes)
                print(kubectl("get", "nodes", "-o", "wide"), end="")
            case "load":
                load_everywhere(a.archive)
            case "kill-node":
                kill_node(a.number)
            case "start-node":
                start_node(a.number)
            case "down":
                down()
            case "kubectl":
                sys.exit(subprocess.run(_kubectl(*a.rest), check=False).returncode)
            case "exec":
                _exec(a.rest)
    except (RigError, BuildError) as error:
        sys.exit(f"rig: {error}")


if __name__ == "__main__":
    main()
