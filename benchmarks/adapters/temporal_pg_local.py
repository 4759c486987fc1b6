"""Temporal on Postgres with LOCAL activities: the three steps share one workflow task, so a step is not
checkpointed by itself: a crash re-runs the whole workflow task. Read beside temporal_pg, not instead."""

import os

os.environ["BENCH_TEMPORAL_LOCAL"] = "1"
from adapters.temporal import *  # noqa: E402,F401,F403
from adapters.temporal import SETTINGS as _S  # noqa: E402

SERVER_MODE = "postgres"
STAT_DB = "temporal"
CAPS = {"W3"}
SETTINGS = _S.replace(" activities,", " local activities,", 1) + "; server 1.32.0 on Postgres"
