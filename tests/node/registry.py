"""A container registry that has no image: it answers every pull as a real one answers for a tag that does not exist.

Nodes of the rig are sent to it for the host names that `answer_for` is given. Run by path, it serves: `registry.py ADDRESS PORT`.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.node.machine import inside, sh, start, until
from tests.node.worker_node import API, REGISTRIES

PORT = 5000


def answer_for(*hosts: str) -> None:
    """Let the registries called `hosts` answer inside of the rig, and know no image."""
    for host in hosts:
        (REGISTRIES / host).mkdir(parents=True, exist_ok=True)
        # `server` besides: else the host's own name is tried next, and its failed look-up becomes the error that is shown
        address = f"http://{API}:{PORT}"
        content = f'server = "{address}"\n[host."{address}"]\n  capabilities = ["pull", "resolve"]\n'
        (REGISTRIES / host / "hosts.toml").write_text(content)
    root = Path(__file__).resolve().parents[2]
    start(1, "registry", ["env", f"PYTHONPATH={root}", sys.executable, "-m", "tests.node.registry", API, str(PORT)])
    until("the registry takes connections", _answers)


def _answers() -> bool:
    return sh(*inside(1, "bash", "-c", f"</dev/tcp/{API}/{PORT}"), check=False).returncode == 0


class _Empty(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        known = self.path == "/v2/"
        body = b"{}" if known else json.dumps({"errors": [{"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}]}).encode()
        self.send_response(200 if known else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    do_HEAD = do_GET  # noqa: N815 (the server calls it by the method's name)


if __name__ == "__main__":
    ThreadingHTTPServer((sys.argv[1], int(sys.argv[2])), _Empty).serve_forever()
