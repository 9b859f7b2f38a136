# Everything starts here; each target makes .venv first when it is missing or older than what it was made from.
# `make demo` and `make test` need only Python 3.11 or newer, make and a C library.

SHELL := /bin/sh
.DEFAULT_GOAL := help
# A line with quotes or a variable is run by a shell, which takes the signal that ends make for itself: hence `exec`.
BIN := .venv/bin
STAMP := .venv/.made
WORKERS ?= 2
QUICK = $(wildcard tests/unit tests/house tests/contract tests/sim tests/golden)
# Tests wait for a part of their time, those with servers and processes for three fifths, see docs/testing.md.
QUICK_WORKERS ?= $(shell expr $(WORKERS) \* 3 / 2)
WAITING_WORKERS ?= $(shell expr $(WORKERS) \* 5 / 2)
SECONDS ?= 60
SERVERS ?= 1
SOAK_SECONDS = $(if $(filter command environment,$(firstword $(origin SECONDS))),$(SECONDS),1800)

.PHONY: budgets help venv demo dist up test containers stacks boxes check quick static tests sim chaos soak bench bench-guard bench-peers draw screenshots site lock format clean

help: ## what there is
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(STAMP): pyproject.toml requirements/dev.lock requirements/venv.sh
	@sh requirements/venv.sh
	@touch $@

venv: $(STAMP) ## install everything into .venv

demo: $(STAMP) ## a whole cluster, real work on it, and away again
	@$(BIN)/python examples/demo.py

up: $(STAMP) ## a cluster that stays until Ctrl-C
	@$(BIN)/iris up

check: $(STAMP) ## style, types, import rules, drawings, quick tests; under two minutes
	@$(MAKE) --jobs=2 static quick

quick: $(STAMP)
	exec $(BIN)/python -m pytest -q -n $(QUICK_WORKERS) --dist worksteal $(QUICK) -m "not integration and not browser and not docker and not prometheus and not soak"

static: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python docs/draw.py --check

# The checks beside the tests, and quick tests beside those that wait: all cores have something to do all the time.
test: $(STAMP) ## check, and real NATS servers and real processes
	@$(MAKE) --jobs=2 static tests

# In a fresh clone each process of pytest would compile all tests; one does it while the other core checks.
tests: $(STAMP)
	@test -d .pytest_cache || $(BIN)/python -m pytest -q -n 0 --collect-only tests >/dev/null || true
	exec $(BIN)/python -m pytest -q -n $(WAITING_WORKERS) --dist worksteal tests -m "not docker and not soak"

budgets: $(STAMP) ## the tests on a machine that nobody else uses; fails when a file takes more CPU than tests/budgets.toml says
	@IRIS_BUDGETS=judge exec $(MAKE) tests

# One test, which waits for half its time, is longer than all others, and shares no image with them but that of NATS.
containers: $(STAMP) ## the image, docker-compose.yml and tasks in containers, on Docker daemons of their own; needs root and docker
	@$(MAKE) --jobs=2 stacks boxes

stacks: $(STAMP)
	exec $(BIN)/python -m pytest tests/containers -m "docker and not soak"

boxes: $(STAMP)
	exec $(BIN)/python -m pytest tests --ignore tests/containers -m "docker and not soak"

sim: $(STAMP) ## simulated faults: SEED=n for one schedule, SEEDS=n for many; CROWDS=1 for worlds with a crowd only
	@$(BIN)/python -m tests.sim $(if $(SEED),--seed $(SEED)) $(if $(SEEDS),--seeds $(SEEDS)) $(if $(CROWDS),--crowds)

chaos: $(STAMP) ## real processes, kills, partitions and dead hosts, for SECONDS=60, on SERVERS=1 or 3 of NATS, with TLS=1 to three
	@$(BIN)/python -m tests.chaos --seconds $(SECONDS) --servers $(SERVERS) $(if $(TLS),--tls)

soak: $(STAMP) ## what takes long or is left to chance, and whether anything grows, for SECONDS=1800
	$(BIN)/python -m tests.soak --seconds $(SOAK_SECONDS)
	exec $(BIN)/python -m pytest tests -m "soak or sampled"
	HYPOTHESIS_PROFILE=soak exec $(BIN)/python -m pytest -q -n $(WORKERS) tests -m "hypothesis and not soak"
	$(BIN)/python -m tests.sim --seeds $(SOAK_SECONDS)
	$(BIN)/python -m tests.chaos --seconds $(SOAK_SECONDS)

bench: $(STAMP) ## every benchmark, one table, beside the peers that are installed; ROWS="B1 B4" for some
	@$(BIN)/python -m benchmarks $(ROWS)

bench-guard: $(STAMP) ## what a task costs, in ratios and counts, against benchmarks/limits.toml; under two minutes
	@$(BIN)/python -m benchmarks.guard

bench-peers: $(STAMP) ## install the peers `make bench` measures beside us
	@$(BIN)/python -m benchmarks.peer_runs

draw: $(STAMP) ## what is made from the code: pages of docs/, files of deploy/
	@$(BIN)/python docs/draw.py

.venv-site/.made: requirements/docs.lock | $(STAMP)
	@rm -rf .venv-site && $(BIN)/python -m venv .venv-site
	@.venv-site/bin/python -m pip --disable-pip-version-check install -qq --require-hashes --requirement $<
	@touch $@

screenshots: $(STAMP) ## every page of an example cluster as a picture, in screenshots/; README=1 also those of README.md
	@$(BIN)/python -m tests.screenshots $(if $(README),--readme)

site: .venv-site/.made ## the manuals as a site, in build/site
	@NO_MKDOCS_2_WARNING=1 .venv-site/bin/mkdocs build --strict --quiet

dist: $(STAMP) ## wheels and source archives of all distributions in dist/, checked, installed and run
	@$(BIN)/python requirements/dist.py

lock: $(STAMP) ## pin dependencies with hashes; UPGRADE=1 for the newest
	@PATH="$(CURDIR)/$(BIN):$$PATH" UPGRADE=$(UPGRADE) bash requirements/lock.sh

format: $(STAMP) ## put the code in one shape
	$(BIN)/ruff check --fix-only -q .
	$(BIN)/ruff format .

clean: ## remove .venv and everything made
	rm -rf .venv .venv-peers .venv-site build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .schemathesis .wheels
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
