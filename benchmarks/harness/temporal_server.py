"""Starts and stops a Temporal server for one measurement: the CLI's dev server (mode memory, or
sqlite = a fresh file),
or the full server on the bench's Postgres with fresh databases."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time

PORT = 17233


def _up():
    for _ in range(400):
        try:
            socket.create_connection(("127.0.0.1", PORT), 0.2).close()
            return
        except OSError:
            time.sleep(0.1)
    raise RuntimeError("temporal did not start")


def start(MODE):
    d = tempfile.mkdtemp(prefix="bench-temporal-")
    if MODE == "postgres":
        from harness import temporal_pg

        p = temporal_pg.start(d)
    else:
        p = subprocess.Popen(
            [
                os.path.join(os.path.dirname(sys.executable), "temporal"),
                "server",
                "start-dev",
                "--ip",
                "127.0.0.1",
                "--port",
                str(PORT),
                "--headless",
                "--log-level",
                "error",
                "--dynamic-config-value",
                "frontend.namespaceRPS.visibility=1000",
            ]
            + (["--db-filename", f"{d}/t.db"] if MODE == "sqlite" else []),
            stdout=open(f"{d}/out", "wb"),
            stderr=subprocess.STDOUT,
        )
    _up()
    time.sleep(3)
    return p, d


def stop(s):
    p, d = s
    p.terminate()
    try:
        p.wait(10)
    except subprocess.TimeoutExpired:
        p.kill()
        p.wait()
    shutil.rmtree(d, ignore_errors=True)
