"""Requests from inside the rig's network, sent by this very process: a thread of its own moves into the namespace of node 1."""

import ctypes
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx

from tests.node.machine import NETNS, namespace

_CLONE_NEWNET = 0x40000000


class Inside:
    """An HTTP client that stands on node 1, where the cluster's Services can be reached by their addresses."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "inside-the-rig", initializer=_move, initargs=(NETNS / namespace(1),))
        self._client = httpx.Client(trust_env=False, timeout=30)

    def request(self, method: str, url: str, **options: Any) -> httpx.Response:
        return self._thread.submit(self._client.request, method, url, **options).result()

    def close(self) -> None:
        self._thread.submit(self._client.close).result()
        self._thread.shutdown()


def _move(path: Path) -> None:
    """Into the network namespace: of this thread alone, and for good."""
    libc = ctypes.CDLL(None, use_errno=True)
    handle = os.open(path, os.O_RDONLY)
    try:
        if libc.setns(handle, _CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"cannot enter {path}")
    finally:
        os.close(handle)
