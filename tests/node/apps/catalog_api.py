"""A shop's catalogue: answers on the port that CATALOG_PORT names."""

import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ITEMS = {"1001": "desk lamp", "1002": "bookend", "1003": "paper tray"}


class Catalog(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        known = self.path in ("/healthz", "/items")
        body = json.dumps(ITEMS if self.path == "/items" else {"status": "ok"}).encode()
        self.send_response(200 if known else 404)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, form: str, *args: object) -> None:
        print(f"catalog: {form % args}", file=sys.stderr)


if __name__ == "__main__":
    port = int(os.environ.get("CATALOG_PORT", "8080"))
    print(f"catalog: serving {len(ITEMS)} items on port {port}", file=sys.stderr)
    ThreadingHTTPServer(("", port), Catalog).serve_forever()
