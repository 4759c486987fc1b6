# Two commands do everything on a fresh machine: `make demo` shows the product, `make test` proves it.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# One more than two cores: a third of the tests wait for a lease, a kubelet, a page.
LANES ?= 3
READY := $(VENV)/ready
.DEFAULT_GOAL := help
.PHONY: help setup demo check fmt generate test test-unit test-postgres test-cluster test-node test-browser test-servers proof build lock clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/\1\t\2/' | expand -t 16

setup: $(READY) ## make .venv with the locked dependencies and this checkout

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo 'Python 3.11 or newer is needed: make PYTHON=python3.12 …'; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo 'Installing the locked dependencies into $(VENV) …'
	@$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

demo: setup ## a failing workload becomes a pull request, here and now; ARGS="--help" for more
	@$(BIN)/suture demo $(ARGS)

check: setup ## formats, lints, types, layers, locks and generated files
	@$(MAKE) --no-print-directory -j2 --output-sync=target $(CHECKS)

CHECKS := check-pyright check-mypy check-style check-layers check-written
.PHONY: $(CHECKS)
check-pyright: ; $(BIN)/pyright
check-mypy: ; $(BIN)/mypy
check-style: ; $(BIN)/ruff format --check . && $(BIN)/ruff check .
check-layers: ; $(BIN)/lint-imports --no-cache
check-written:
	$(BIN)/python .ci/lock --check
	$(BIN)/python -m suture.cli.reference settings --check README.md
	$(BIN)/python -m suture.cli.reference api --check docs/reference.md
	$(BIN)/python -m suture.cli.reference guarantees --check docs/guarantees.md

fmt: setup ## format and mend what can be mended
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

generate: setup ## write the tables of the documentation from the code
	$(BIN)/python -m suture.cli.reference settings --write README.md
	$(BIN)/python -m suture.cli.reference api --write docs/reference.md
	$(BIN)/python -m suture.cli.reference guarantees --write docs/guarantees.md
	$(BIN)/python -m tests.postgres.schema
	charts/sync-crds.sh

# The Kubernetes programs are compiled once a machine; minutes of that belong to no test.
test: setup ## every tier that this machine can run, LANES=3 side by side, with the time of each; what is skipped is said
	@if command -v go >/dev/null; then \
	$(BIN)/python -m tests.node.rig build || echo 'THE KUBERNETES PROGRAMS WERE NOT BUILT: THE CLUSTER AND NODE TIERS WILL BE SKIPPED'; \
	else echo 'GO IS MISSING: THE CLUSTER AND NODE TIERS RUN ONLY WITH PROGRAMS THAT ARE BUILT ALREADY'; fi
	$(BIN)/pytest -n $(LANES) --no-loadscope-reorder $(ARGS)

test-unit test-postgres test-cluster test-node test-browser: test-%: setup
	$(BIN)/pytest tests/$* $(ARGS)

# What `help` shows for the rule above.
test-unit: ## needs nothing but Python
test-postgres: ## needs nothing else either; SUTURE_TEST_POSTGRES=15|16|18|pgbouncer|ADDRESS chooses the server
test-cluster: ## a real API server; needs Go once
test-node: ## a real cluster with kubelet and containerd; needs root
test-browser: ## the console in a real browser; needs chromium

test-servers: setup ## the engine's tests on Postgres 15, 16 and 18 and through PgBouncer
	for server in 15 16 18 pgbouncer; do SUTURE_TEST_POSTGRES=$$server $(BIN)/pytest tests/postgres/engine $(ARGS); done

proof: setup ## the engine against faults, load and mutations, for an hour; ARGS="campaign --seed 7 --out FILE" for a part
	$(BIN)/python -m tests.proof $(ARGS)

bench: ## the engine beside its peers and Postgres' own ceiling, into benchmarks/results/; PEERS= WORKLOADS= REPS=3
	out=benchmarks/results/raw/$$(date +%Y-%m-%d-%H%M).jsonl; \
	benchmarks/run.sh $(or $(PEERS),all) $(or $(WORKLOADS),all) --reps $(or $(REPS),3) --out $$out; \
	$(if $(WORKLOADS),,benchmarks/run.sh suture S --reps 1 --out $$out;) \
	benchmarks/run.sh page $$out

build: setup ## wheel and sdist into dist/
	$(BIN)/python -m build --no-isolation --outdir dist .

lock: setup ## pin anew what pyproject.toml names; ARGS=--upgrade takes the newest
	$(BIN)/python .ci/lock $(ARGS)

clean: ## remove what was made here, .venv too
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
