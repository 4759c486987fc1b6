"""Renders account statements. Every batch is laid out in memory before it is written; the month-end batch is the large one.

A batch that was interrupted is not taken up again: after a restart the renderer waits for the next month end.
"""

import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

SPOOL = Path(os.environ.get("SPOOL", "/spool"))
PAGE = 40 << 10  # bytes of one page, laid out


class Health(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"ok\n")

    def log_message(self, form: str, *args: object) -> None:
        return


def render(batch: str, statements: int) -> None:
    print(f"renderer: batch {batch}, {statements} statements", file=sys.stderr, flush=True)
    pages = []
    for number in range(statements):
        pages.append(bytearray(PAGE))
        if number % 500 == 0:
            print(f"renderer: {number} of {statements} laid out", file=sys.stderr, flush=True)
            time.sleep(0.2)
    print(f"renderer: batch {batch} written", file=sys.stderr, flush=True)


def main() -> None:
    threading.Thread(target=ThreadingHTTPServer(("", 8080), Health).serve_forever, daemon=True).start()
    print("renderer: ready", file=sys.stderr, flush=True)
    time.sleep(12)  # until the scheduler hands out the first batch
    mark = SPOOL / "month-end"
    if not mark.exists():
        mark.touch()
        render("month-end", 4200)
    threading.Event().wait()


if __name__ == "__main__":
    main()
