"""worker.py PEER DSN KIND FOLDER IDX LOG : one worker process of one peer."""

import importlib
import logging
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from harness.sink import Sink  # noqa: E402


def main():
    peer, dsn, kind, folder, idx, log = sys.argv[1:7]
    logging.basicConfig(level=logging.ERROR)
    mod = importlib.import_module(f"adapters.{peer}")
    mod.run_worker(dsn, kind, Sink(folder, int(idx), log == "1"), int(idx))


main()
