"""Suture turns a failing Kubernetes workload into one reviewed pull request, and never loses its place.

A kopf operator and a FastAPI gateway turn `Task` resources and signals into Postgres rows; stateless workers claim rows with
SKIP LOCKED and drive each to its end, surviving crashes through leases and per-step checkpoints. Postgres is the only state.
"""

if __name__ == "src":
    raise ImportError("import `suture`, not `src`: through `src` every module would be loaded a second time")

__version__ = "0.1.0"
