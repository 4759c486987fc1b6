"""Temporal on the bench's own Postgres: the durable one."""

from adapters.temporal import *  # noqa: F401,F403
from adapters.temporal import SETTINGS as _S

SERVER_MODE = "postgres"
STAT_DB = "temporal"
SETTINGS = _S + "; server 1.32.0 on Postgres, numHistoryShards=4, maxConns=50"
