"""Takes orders. Settings come from the environment, filled from a ConfigMap."""

import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Checkout(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"ok\n")


if __name__ == "__main__":
    print(f"checkout: payments by {os.environ['PAYMENT_URL']}", file=sys.stderr)
    ThreadingHTTPServer(("", 8080), Checkout).serve_forever()
