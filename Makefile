# `make` lists the targets. Requirements: Python 3.11 or later with venv, Java 17 or later, make.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
BIN := .venv/bin
export PYTHON
unexport PYTHONDONTWRITEBYTECODE # hundreds of processes would each compile the same sources

COMPOSE = $(shell docker compose version >/dev/null 2>&1 && echo docker compose || echo docker-compose)

.PHONY: help setup demo up down stack-demo test-stack test test-fast lint laws checked fuzz long kill cluster s3 browser azure simulate rules bench docs lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## fetch and install everything into .venv and .tidegate; nothing is done twice
	@infra/setup.sh

demo: setup ## flights and weather of 2013 through the operators of .tidegate/demo/app.py, checked by other code
	@$(BIN)/tidegate demo

test: lint ## every check and every test, the fast ones first
	@infra/postgres.sh
	@echo "Tests"
	@HYPOTHESIS_PROFILE=full $(BIN)/python -m pytest -m fast -n auto --dist worksteal
	@$(BIN)/python -m tests.quick_java
	@echo "Tests with Spark and a broker, and fuzzing beside them"
	@NUMBA_BOUNDSCHECK=1 $(BIN)/python -m tests.fuzzing --seconds 30 --seed 1 & \
	trap "kill $$! 2>/dev/null || true" EXIT; \
	HYPOTHESIS_PROFILE=full $(BIN)/python -m pytest -m 'not fast and not long and not kill and not stack and not browser' \
		-n 5 --dist loadfile --no-loadscope-reorder && wait $$!
	@echo "A few tests with their lakes in an S3 server (make s3 runs all)"
	@$(BIN)/python -m pytest --lake s3 -n 2 --dist loadfile tests/end_to_end/test_commands.py tests/end_to_end/test_telemetry.py \
		tests/end_to_end/readers/test_table_views.py

# waits for no disk; make test has the same tests on the disk
test-fast: export PYTEST_DEBUG_TEMPROOT = $(wildcard /dev/shm)
test-fast: setup ## the tests that need neither Spark nor a broker nor other processes, in under a minute
	@$(BIN)/python -m pytest -m 'fast and not process' -n auto --dist worksteal -o tmp_path_retention_policy=failed

lint: setup ## style, types and the layer rule
	@echo "Style, types and layers"
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check --quiet . || { echo "run: $(BIN)/ruff format ." >&2; exit 1; }
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/lint-imports --no-logo

laws: setup ## every operator against the laws, 2,000 examples each, and 250 with its log in Delta
	@HYPOTHESIS_PROFILE=laws $(BIN)/python -m pytest -n auto --dist worksteal --timeout 7200 tests/laws

checked: setup ## the laws, the recorded scenarios and simulated services with every access to an array checked
	@echo "Checked build"
	@NUMBA_BOUNDSCHECK=1 $(BIN)/tidegate setup >/dev/null
	@NUMBA_BOUNDSCHECK=1 HYPOTHESIS_PROFILE=checked $(BIN)/python -m pytest -m 'not process and not long' --hypothesis-seed 1 \
		-n auto --dist worksteal --ignore tests/laws/test_laws_on_delta.py \
		tests/laws tests/kernels tests/operators/testing/test_recorded_scenarios.py
	@NUMBA_BOUNDSCHECK=1 $(BIN)/python -m tidegate.testing.simulation --start 30 --seeds 70

fuzz: setup ## the suite's properties on random bytes, for 10 minutes (SECONDS=N); a case that fails is a file in build/fuzzing
	@NUMBA_BOUNDSCHECK=1 $(BIN)/python -m tests.fuzzing --seconds $(or $(SECONDS),600)

long: setup ## the tests that take minutes each: many simulated services, a million damaged values a codec, the tutorial, the demo of a wheel
	@$(BIN)/python -m pytest -m long -n 2 --dist loadfile

kill: setup ## the tests that kill the service at every dangerous point, 200,000 records (about an hour)
	@$(BIN)/python -m pytest -m kill -s tests/kill tests/lake tests/runtime/stream tests/clusters

cluster: export CLUSTER_SECONDS ?= 600
cluster: export CLUSTER_RECORDS ?= 5000000
cluster: setup ## three executors with a disk each, one killed every 20 s for 10 minutes while 5 million records come
	@$(BIN)/python -m pytest -m kill -s tests/clusters

s3: setup ## all with their lakes in a real S3 server: end to end, kills, bad days, faults and outages (about an hour)
	@$(BIN)/python -m pytest -m 'not kill' --lake s3 -n 2 --dist loadfile tests/lake tests/end_to_end tests/bad_days
	@$(BIN)/python -m pytest -m 'not stack' --lake s3 -s tests/kill
	@$(BIN)/python -m pytest -m kill --lake s3 -s tests/lake

browser: setup ## the pages of the console in Chromium: both colour schemes, narrow and wide, and what axe finds
	@infra/chromium.sh
	@$(BIN)/python -m pytest -m browser tests/console

azure: setup ## operators end to end with their lakes in the emulator of Azure's blob storage, which needs Node.js and npm
	@$(BIN)/python -m tests.lake.azure_server
	@$(BIN)/python -m pytest -m azure --lake azure tests/lake/test_conformance.py
	@$(BIN)/python -m pytest -m 'not kill' --lake azure -n 2 --dist loadfile tests/end_to_end tests/bad_days tests/kill

simulate: setup ## 10,000 simulated services with crashes, lost answers, zombies and takeovers
	@$(BIN)/python -m tidegate.testing.simulation --seeds 10000

rules: setup ## take each rule of the protocol out of the source, one by one, and see its tests fail
	@$(BIN)/python -m tests.rules

bench: setup ## the benchmarks, peers included
	@$(BIN)/tidegate bench all

up: ## the local stack in containers: Kafka, PostgreSQL, Spark, the services, Prometheus, Grafana (needs a Docker engine)
	@infra/stack/up.sh $(COMPOSE)

down: ## stop the local stack; its volumes stay (docker-compose down --volumes takes them away)
	@$(COMPOSE) down

stack-demo: up ## January 2013 through the stack, checked through Spark SQL against other code
	@$(COMPOSE) run --rm demo

test-stack: setup ## the stack's containers killed one by one, and every panel's query (Docker engine on this machine; as root)
	@$(BIN)/python -m pytest -m stack -s tests/stack

docs: setup ## the site of the documentation, in build/docs
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --site-dir build/docs

lock: ## resolve the Python packages again into requirements.lock (needs uv)
	@command -v uv >/dev/null || { echo "make lock needs uv: pip install uv" >&2; exit 2; }
	@echo 'setuptools>=80' | UV_CUSTOM_COMPILE_COMMAND="make lock" uv pip compile pyproject.toml - --extra dev --extra demo \
		--universal --python-version 3.11 --generate-hashes --no-emit-index-url --quiet --output-file requirements.lock

clean: ## remove what the other targets made; data of a broker in .tidegate/kafka stay
	@rm -rf .venv .tidegate/jars .tidegate/jars.new .tidegate/java .tidegate/python build dist libs/*.egg-info *.egg-info
	@rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis spark-warehouse metastore_db derby.log
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
