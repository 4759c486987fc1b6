"""What a workload's bodies report to: a crash-proof counter in a shared mmap and,
when asked for, one appended line per body (for latency and recovery runs)."""

import mmap
import os
import struct
import threading
import time

_FMT = struct.Struct("<QddQ")  # bodies, first body at, last body at, ready_at in us


class Sink:
    def __init__(self, folder, idx, log=False):
        self.idx = idx
        path = os.path.join(folder, f"count.{idx}")
        with open(path, "wb") as f:
            f.write(b"\0" * 64)
        self._f = open(path, "r+b")
        self._m = mmap.mmap(self._f.fileno(), 64)
        self._n = 0
        self._first = 0.0
        self._ready = 0
        self._lock = threading.Lock()
        self._fd = os.open(os.path.join(folder, f"log.{idx}"), os.O_CREAT | os.O_WRONLY | os.O_APPEND) if log else None

    def ready(self):
        """Called by the adapter right before it enters the peer's own start call."""
        self._ready = int(time.time() * 1e6)
        _FMT.pack_into(self._m, 0, self._n, self._first, 0.0, self._ready)

    def hit(self):
        now = time.time()
        with self._lock:
            self._n += 1
            if not self._first:
                self._first = now
            _FMT.pack_into(self._m, 0, self._n, self._first, now, self._ready)

    def hits(self, k):
        now = time.time()
        with self._lock:
            self._n += k
            if not self._first:
                self._first = now
            _FMT.pack_into(self._m, 0, self._n, self._first, now, self._ready)

    def log(self, *fields):
        """One line per body start: written with O_APPEND, so it outlives kill -9."""
        if self._fd is not None:
            line = " ".join(str(x) for x in (self.idx, repr(time.time()), *fields)) + "\n"
            os.write(self._fd, line.encode())


def read_counter(folder, idx):
    try:
        with open(os.path.join(folder, f"count.{idx}"), "rb") as f:
            b = f.read(_FMT.size)
    except FileNotFoundError:
        return (0, 0.0, 0.0, 0)
    return _FMT.unpack(b) if len(b) == _FMT.size else (0, 0.0, 0.0, 0)


def read_logs(folder):
    rows = []
    for name in os.listdir(folder):
        if name.startswith("log."):
            with open(os.path.join(folder, name)) as f:
                for line in f:
                    p = line.split()
                    if len(p) >= 3:
                        rows.append((int(p[0]), float(p[1]), *p[2:]))
    rows.sort(key=lambda r: r[1])
    return rows
