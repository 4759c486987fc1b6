"""Identifiers: UUIDs of version 7 (RFC 9562), ordered by their time of creation."""

import os
import time
from uuid import UUID


def uuid7() -> UUID:
    """A new id; a younger one, made at least a millisecond later on the same clock, is greater."""
    stamp = (time.time_ns() // 1_000_000) & ((1 << 48) - 1)
    noise = int.from_bytes(os.urandom(10), "big")
    high = noise >> 68  # 12 bits
    low = noise & ((1 << 62) - 1)
    return UUID(int=(stamp << 80) | (7 << 76) | (high << 64) | (2 << 62) | low)
