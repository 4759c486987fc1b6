#!/usr/bin/env bash
# run.sh PEER[,PEER..] WORKLOAD[,WORKLOAD..] [runner options]   e.g.  run.sh dbos W3 --reps 3
# run.sh all all  = the whole interleaved matrix.   run.sh ceiling C = pgbench + asyncpg ceiling.   run.sh page RAW = the results page.
set -euo pipefail
H=$(cd "$(dirname "$0")" && pwd)
V=${BENCH_VENV:-/var/tmp/suture-bench/venv}
[ -x "$V/bin/python" ] || "$H/setup.sh"
if [ "${1:-}" = page ]; then shift; exec "$V/bin/python" "$H/page.py" "$@"; fi
"$H/pg.sh" start >/dev/null
P=${1:-all}; W=${2:-all}; shift $(( $# < 2 ? $# : 2 ))
if [ "$P" = ceiling ]; then exec "$V/bin/python" "$H/ceiling/ceiling.py" "$@"; fi
[ "$P" = all ] && P=suture,pgqueuer,dbos,absurd,procrastinate,ideal_step,ideal
[ "$W" = all ] && W=W0,W1,W3,W3x2,L,H,M,R
exec "$V/bin/python" "$H/harness/runner.py" --peers "$P" --workloads "$W" "$@"
