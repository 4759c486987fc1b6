"""A full Temporal server (go.temporal.io/server v1.32.0, built by temporal_build.sh) on the bench's Postgres 18 (:55432);
its visibility store needs btree_gin, which the wheel lacks, so that one part sits on Debian's 15 (:55433)."""

import os
import subprocess
import sys
import time

import psycopg

HOME = os.environ.get("BENCH_TEMPORAL_HOME", "/var/tmp/suture-bench/temporal")
SCHEMA = os.environ.get("BENCH_TEMPORAL_SCHEMA", os.path.expanduser("~/go/pkg/mod/go.temporal.io/server@v1.32.0/schema/postgresql/v12"))
CONF = """
log: {stdout: true, level: error}
persistence:
  defaultStore: d
  visibilityStore: v
  numHistoryShards: 4
  datastores:
    d: {sql: {pluginName: postgres12_pgx, databaseName: temporal, connectAddr: "127.0.0.1:55432", connectProtocol: tcp, user: postgres, password: x, maxConns: 50, maxIdleConns: 50, maxConnLifetime: 1h}}
    v: {sql: {pluginName: postgres12_pgx, databaseName: temporal_visibility, connectAddr: "127.0.0.1:55433", connectProtocol: tcp, user: postgres, password: x, maxConns: 10, maxIdleConns: 10, maxConnLifetime: 1h}}
global:
  membership: {maxJoinDuration: 30s, broadcastAddress: "127.0.0.1"}
services:
  frontend: {rpc: {grpcPort: 17233, membershipPort: 16933, bindOnLocalHost: true}}
  matching: {rpc: {grpcPort: 17235, membershipPort: 16935, bindOnLocalHost: true}}
  history: {rpc: {grpcPort: 17234, membershipPort: 16934, bindOnLocalHost: true}}
  worker: {rpc: {grpcPort: 17239, membershipPort: 16939, bindOnLocalHost: true}}
clusterMetadata:
  enableGlobalNamespace: false
  failoverVersionIncrement: 10
  masterClusterName: active
  currentClusterName: active
  clusterInformation: {active: {enabled: true, initialFailoverVersion: 1, rpcName: frontend, rpcAddress: "127.0.0.1:17233"}}
dcRedirectionPolicy: {policy: noop}
dynamicConfigClient: {filepath: %s/dyn.yaml, pollInterval: 60s}
"""
DYN = """
frontend.namespaceRPS.visibility: [{value: 1000}]
matching.numTaskqueueReadPartitions: [{value: %d}]
matching.numTaskqueueWritePartitions: [{value: %d}]
"""
PARTS = int(os.environ.get("BENCH_TEMPORAL_PARTITIONS", "4"))


def _tool(port, db, *args):
    subprocess.run(
        [
            f"{HOME}/temporal-sql-tool",
            "--ep",
            "127.0.0.1",
            "-p",
            port,
            "-u",
            "postgres",
            "--pw",
            "x",
            "--pl",
            "postgres12_pgx",
            "--db",
            db,
            *args,
        ],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )


def start(d):
    for db, part, port in (("temporal", "temporal", "55432"), ("temporal_visibility", "visibility", "55433")):
        with psycopg.connect(f"postgresql://postgres@127.0.0.1:{port}/postgres", autocommit=True) as c:
            t = f"bt_{db}"
            if not c.execute("select 1 from pg_database where datname=%s", (t,)).fetchone():
                c.execute(f"create database {t}")
                _tool(port, t, "setup-schema", "-v", "0.0")
                _tool(port, t, "update-schema", "-d", f"{SCHEMA}/{part}/versioned")
            c.execute(f"drop database if exists {db} with (force)")
            for _ in range(40):
                try:
                    c.execute(f"create database {db} template {t}")
                    break
                except psycopg.errors.ObjectInUse:
                    time.sleep(0.25)
        with psycopg.connect(f"postgresql://postgres@127.0.0.1:{port}/{db}", autocommit=True) as c:
            c.execute("update schema_version set db_name=%s", (db,))
    with open(f"{d}/c.yaml", "w") as f:
        f.write(CONF % d)
    with open(f"{d}/dyn.yaml", "w") as f:
        f.write(DYN % (PARTS, PARTS))
    p = subprocess.Popen(
        [f"{HOME}/temporal-server", "--config-file", f"{d}/c.yaml", "--allow-no-auth", "start"],
        stdout=open(f"{d}/out", "wb"),
        stderr=subprocess.STDOUT,
    )
    cli = os.path.join(os.path.dirname(sys.executable), "temporal")
    for _ in range(60):
        r = subprocess.run(
            [cli, "operator", "namespace", "create", "--address", "127.0.0.1:17233", "default"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        if r.returncode == 0 or "already" in r.stderr.lower():
            break
        time.sleep(0.5)
    time.sleep(11)  # the namespace cache refreshes every 10 s
    return p
