"""One node of the rig: containerd, kubelet and kube-proxy in a network namespace and a cgroup of its own. `rig` calls it."""

import hashlib
import io
import json
import os
import signal
import subprocess
import tarfile
import time
from contextlib import suppress
from pathlib import Path

from tests.node.machine import NETNS, RUN, sh, start, stop, until
from tests.node.programs import BIN

API = "198.18.255.1"
"""Address of node 1, where API server and DNS listen; 198.18.0.0/15 is the range kept for tests (RFC 2544)."""

REGISTRIES = RUN / "registries"
"""Where the nodes look up how a registry is reached: one folder a host name; read at each pull."""

_CGROUPS = Path("/sys/fs/cgroup")
_POD_NETWORK = "suture-rig"
_CNI_RESULTS = Path("/var/lib/cni/results")


def address(number: int) -> str:
    return f"198.18.255.{number}"


def pods(number: int) -> str:
    """The pods' network on a node."""
    return f"198.18.{number}.0/24"


def start_node(number: int) -> None:
    """Start node NUMBER; also after `kill_node`, with the images that it had."""
    home = RUN / f"node{number}"
    _make_cgroups(number)
    _write_configuration(number, home)
    start(number, f"node{number}-containerd", ["containerd", "-c", home / "containerd.toml"])
    until(f"containerd of node {number}", lambda: _ctr(number, "version", check=False).returncode == 0)
    load(number, pause_image())
    start(number, f"node{number}-kubelet", _kubelet(number, home))
    start(number, f"node{number}-proxy", _proxy(number))


def kill_node(number: int) -> None:
    """Stop a node as a power cut would: kubelet first, so that it restarts nothing; then every container; then containerd."""
    for part in ("kubelet", "proxy"):
        stop(f"node{number}-{part}", signal.SIGKILL)
    if _ctr(number, "version", check=False).returncode == 0:
        _remove_containers(number)
    stop(f"node{number}-containerd")


def _remove_containers(number: int) -> None:
    containers = _listed(number, "containers")
    networks = {_network(number, container) for container in containers}
    for task in _listed(number, "tasks"):
        _ctr(number, "tasks", "rm", "-f", task, check=False)
    for container in containers:
        _ctr(number, "containers", "rm", container, check=False)
        for result in _CNI_RESULTS.glob(f"*-{container}-*"):
            result.unlink(missing_ok=True)
    for name in filter(None, networks):
        sh("ip", "netns", "del", name, check=False)


def forget_node(number: int) -> None:
    """Remove what a dead node left outside of RUN: processes, cgroups, links to logs."""
    for hierarchy in _hierarchies():
        for group in sorted((hierarchy / f"rig-node{number}").glob("**/"), reverse=True):
            _empty(group)
    for link in Path("/var/log/containers").glob("*.log"):
        if link.is_symlink() and str(link.readlink()).startswith(f"{RUN}/"):
            link.unlink()


def load(number: int, archive: Path) -> None:
    """Import a docker-archive into a node's images."""
    _ctr(number, "images", "import", archive)


def tag(number: int, image: str, name: str) -> None:
    """Give an image on a node a second name, as if it had been pulled under it."""
    _ctr(number, "images", "tag", "--force", image, name)


def kill_container(number: int, pod: str, container: str) -> bool:
    """SIGKILL what runs as a container of a pod on this node, as the kernel would; False when it is not here."""
    wanted = f'labels."io.kubernetes.pod.name"=={pod},labels."io.kubernetes.container.name"=={container}'
    running = _ctr(number, "tasks", "ls", "-q").stdout.split()
    mine = [one for one in _ctr(number, "containers", "ls", "-q", wanted).stdout.split() if one in running]
    for one in mine:
        _ctr(number, "tasks", "kill", "--signal", "SIGKILL", one)
    return bool(mine)


def pause_image() -> Path:
    """The sandbox image, with no registry: a scratch image of one static program, written by hand."""
    archive = RUN / "pause.tar"
    if archive.exists():
        return archive
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        tar.add(BIN / "pause", "pause")
    digest = hashlib.sha256(layer.getvalue()).hexdigest()
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Entrypoint": ["/pause"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": ["localhost/pause:1"], "Layers": ["layer.tar"]}]
    with tarfile.open(archive, "w") as tar:
        for name, data in (("config.json", json.dumps(config)), ("manifest.json", json.dumps(manifest)), ("layer.tar", layer.getvalue())):
            content = data.encode() if isinstance(data, str) else data
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return archive


def _ctr(number: int, *arguments: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    return sh("ctr", "-a", RUN / f"node{number}/containerd.sock", "-n", "k8s.io", *arguments, check=check, timeout=120)


def _listed(number: int, what: str) -> list[str]:
    return _ctr(number, what, "ls", "-q", check=False).stdout.split()


def _network(number: int, container: str) -> str | None:
    """Name of the network namespace that containerd made for a pod."""
    described = json.loads(_ctr(number, "containers", "info", container, check=False).stdout or "{}")
    for one in described.get("Spec", {}).get("linux", {}).get("namespaces", ()):
        if one["type"] == "network" and Path(one.get("path", "")).parent.resolve() == NETNS.resolve():
            return Path(one["path"]).name
    return None


def _hierarchies() -> list[Path]:
    unified = (_CGROUPS / "cgroup.controllers").exists()
    return [_CGROUPS] if unified else [d for d in _CGROUPS.iterdir() if d.is_dir() and not d.is_symlink()]


def _empty(group: Path) -> None:
    """Kill what is in a cgroup (a container whose shim was killed), then remove it."""
    with suppress(OSError):
        for pid in (group / "cgroup.procs").read_text().split():
            os.kill(int(pid), signal.SIGKILL)
    for _ in range(100):  # the kernel lets an emptied group go only when its last process is reaped
        try:
            return group.rmdir()
        except FileNotFoundError:
            return None
        except OSError:
            time.sleep(0.02)
    return None


def _make_cgroups(number: int) -> None:
    """A cgroup root a node: two kubelets under one root would each clear the other's pods away as orphans."""
    for hierarchy in _hierarchies():
        group = hierarchy / f"rig-node{number}"
        group.mkdir(exist_ok=True)
        if hierarchy.name == "cpuset":  # a new group of version 1 has no processors and no memory of its own
            for name in ("cpuset.cpus", "cpuset.mems"):
                (group / name).write_text((hierarchy / name).read_text())


def _write_configuration(number: int, home: Path) -> None:
    (home / "cni").mkdir(parents=True, exist_ok=True)
    (home / "cni/10-bridge.conflist").write_text(json.dumps(_cni(number, home)))
    (home / "containerd.toml").write_text(f"""version = 2
root = "{home}/containerd"
state = "{home}/containerd-state"
[grpc]
address = "{home}/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
path = "{home}/opt"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "localhost/pause:1"
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
conf_dir = "{home}/cni"
[plugins."io.containerd.grpc.v1.cri".registry]
config_path = "{REGISTRIES}"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
""")
    (home / "kubelet.yaml").write_text(f"""apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupDriver: cgroupfs
cgroupRoot: /rig-node{number}
failSwapOn: false
failCgroupV1: false
containerRuntimeEndpoint: unix://{home}/containerd.sock
authentication: {{anonymous: {{enabled: false}}, webhook: {{enabled: true}}, x509: {{clientCAFile: {RUN}/pki/ca.crt}}}}
authorization: {{mode: Webhook}}
tlsCertFile: {RUN}/pki/node{number}.crt
tlsPrivateKeyFile: {RUN}/pki/node{number}.key
clusterDNS: ["{API}"]
clusterDomain: cluster.local
resolvConf: ""
podLogsDir: {home}/pod-logs
localStorageCapacityIsolation: false
evictionHard: {{memory.available: 100Mi}}
imageGCHighThresholdPercent: 100
enforceNodeAllocatable: []
nodeStatusUpdateFrequency: 2s
""")


def _cni(number: int, home: Path) -> dict[str, object]:
    addresses = {
        "type": "host-local",
        "dataDir": f"{home}/ipam",
        "ranges": [[{"subnet": pods(number)}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    bridge = {"type": "bridge", "bridge": "cni0", "isGateway": True, "hairpinMode": True, "ipam": addresses}
    ports = {"type": "portmap", "capabilities": {"portMappings": True}}
    return {"cniVersion": "0.4.0", "name": _POD_NETWORK, "plugins": [bridge, ports]}


def _kubelet(number: int, home: Path) -> list[str | Path]:
    return [
        BIN / "kubelet", "--config", home / "kubelet.yaml", "--kubeconfig", RUN / f"pki/node{number}.kubeconfig",
        "--root-dir", home / "kubelet", "--hostname-override", f"node{number}", "--node-ip", address(number),
    ]  # fmt: skip


def _proxy(number: int) -> list[str | Path]:
    return [
        BIN / "kube-proxy", "--kubeconfig", RUN / "pki/admin.kubeconfig", "--proxy-mode=nftables",
        "--hostname-override", f"node{number}",
        # conntrack sizes belong to the machine, and a namespace may not set them
        "--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=0", "--conntrack-tcp-timeout-close-wait=0",
    ]  # fmt: skip
