"""client.py PEER DSN ACTION KIND ARGS... : one client process; prints one JSON line."""

import importlib
import json
import logging
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def main():
    peer, dsn, action, kind, *rest = sys.argv[1:]
    logging.basicConfig(level=logging.ERROR)
    mod = importlib.import_module(f"adapters.{peer}")
    args = [int(x) for x in rest]
    t = time.perf_counter()
    out = getattr(mod, action)(dsn, kind, *args)
    out = {"result": out, "wall_s": time.perf_counter() - t}
    print("\n@@" + json.dumps(out))


main()
