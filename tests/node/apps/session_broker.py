"""Hands out sessions. Which tenant region it serves has no default: a wrong one would put people's data elsewhere."""

import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Broker(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"ok\n")


if __name__ == "__main__":
    print("session-broker 3.4.0 starting", file=sys.stderr)
    region = os.environ.get("TENANT_REGION")
    if not region:
        sys.exit("fatal: required environment variable TENANT_REGION is not set")
    print(f"session-broker: serving tenants of {region}", file=sys.stderr)
    ThreadingHTTPServer(("", 8080), Broker).serve_forever()
