# Everything a person needs is here; `make` alone lists it.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Four processes load the tests: compiled once and kept, not by each of them in every run.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup demo test check format lint types imports rules unit bench month chaos sbom audit lock clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

setup: $(STAMP) ## make .venv with everything, from the hashed locks

# The lock names all packages, so pip resolves nothing. Hashes first, then the package itself without touching dependencies.
$(STAMP): requirements-dev.lock pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "gpuherd needs Python 3.11 or later ($(PYTHON) was not found; set PYTHON=...)"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV) (about a minute the first time)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements-dev.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $(STAMP)

demo: setup ## rent a simulated GPU from request to signed webhook, then show the service
	@$(BIN)/python -m gpuherd demo

test: setup check unit ## everything that must hold: checks, then all tests but the long ones (make chaos)

check: setup lint types imports rules ## format, lint, types, imports, house rules

lint: setup
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .

types: setup
	@$(BIN)/mypy

imports: setup
	@$(BIN)/lint-imports --no-cache

rules: setup
	@$(BIN)/python -m tools.house_rules

unit: setup
	@$(BIN)/python -m pytest -n 5 --dist worksteal -m "not long"

format: setup ## rewrite the code in the project's format
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: setup ## measure speed and size beside bare baselines (about 10 minutes) into bench/results.md
	@$(BIN)/python -m bench

SEED ?= 7
month: setup ## play 1,000 rentals in 30 virtual days beside six other strategies (some minutes) into bench/month.md
	@$(BIN)/python -m bench.month --seed $(SEED)

SEEDS ?= 2000
RUNS ?= 50
JOBS ?= 2
chaos: setup ## break things on purpose, SEEDS=n schedules and RUNS=n kills; the whole: SEEDS=100000 RUNS=200
	@$(BIN)/python -m pytest -n 4 -m long
	@GPUHERD_TEST_EXAMPLES=new $(BIN)/python -m pytest -n 4 -m "not long and not processes" tests/adapters tests/client tests/contracts tests/domain tests/entrypoints tests/jobs tests/ops tests/resilience tests/simulator tests/support tests/usecases tests/test_clock.py
	@$(BIN)/python -m proof.chaos run --seeds $(SEEDS) --jobs $(JOBS)
	@$(BIN)/python -m proof.chaos run --seeds $$(( $(SEEDS) / 4 )) --jobs $(JOBS) --profile late
	@$(BIN)/python -m proof.chaos run --seeds $$(( $(SEEDS) / 4 )) --jobs $(JOBS) --profile strict
	@$(BIN)/python -m proof.chaos run --seeds $$(( $(SEEDS) / 4 )) --jobs $(JOBS) --profile capacity
	@$(BIN)/python -m proof.chaos points --jobs $(JOBS)
	@$(BIN)/python -m proof.chaos.kills --runs $(RUNS) --jobs $(JOBS)
	@for story in kill stop meter lease heirs restart failover; do $(BIN)/python -m proof.replicas $$story --runs $(RUNS) --jobs $(JOBS) || exit 1; done
	@GPUHERD_TEST_DATABASE=postgresql $(BIN)/python -m pytest -n 4 tests/entrypoints/http tests/entrypoints/web
	@$(BIN)/python -m proof.chaos.mutants

sbom: setup ## write the bill of materials (CycloneDX) into sbom.json
	@$(BIN)/python -m tools.sbom > sbom.json

audit: setup ## check the locked packages: hashes, known-bad versions, and pip-audit where it can be asked
	@$(BIN)/python -m tools.audit

lock: ## renew the hashed locks (needs uv)
	uv pip compile -q --generate-hashes --no-emit-index-url --no-header --python-version 3.11 pyproject.toml -o requirements.lock
	uv pip compile -q --generate-hashes --no-emit-index-url --no-header --python-version 3.11 --extra mcp pyproject.toml -o requirements-mcp.lock
	uv pip compile -q --generate-hashes --no-emit-index-url --no-header --python-version 3.11 --extra otel pyproject.toml -o requirements-otel.lock
	uv pip compile -q --generate-hashes --no-emit-index-url --no-header --python-version 3.11 --extra mcp --extra otel --extra dev pyproject.toml -o requirements-dev.lock

clean: ## remove the virtual environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
