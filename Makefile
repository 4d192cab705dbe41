# `make` shows the commands. Needs nothing but python3 (3.11 or newer) and make.

# Where `python3` is built without profile-guided optimization, as pyenv builds it by default, and
# the system's can make environments, that one is taken: two thirds of the time (decision 0077).
OPTIMIZED = "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or "")
QUICKER = $(shell { ! python3 -c 'import sys, sysconfig; sys.exit(not $(OPTIMIZED))' && \
	/usr/bin/python3 -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 11))'; } \
	2>/dev/null && echo /usr/bin/)
PYTHON ?= $(QUICKER)python3
VENV := .venv
BIN := $(VENV)/bin
# Two cores are busy with six workers: the tests of clusters mostly wait.
WORKERS ?= 6
# So long may a test take, in seconds, before it fails and shows its stacks. On a busy machine,
# too, each ends much sooner.
HANG_S ?= 300
PROTO_BIN := build/proto-venv/bin
LOCK_BIN := build/lock-venv/bin
BUILD_BIN := build/build-venv/bin
RELEASE_BIN := build/release-venv/bin
PACKAGING_BIN := build/packaging-venv/bin
SITE_BIN := build/site-venv/bin
PEERS_BIN := build/peers-venv/bin
ACTIONLINT_VERSION ?= v1.7.12
BUF_VERSION ?= 1.75.0

# Each node that a test starts is a process of its own: it reads what an earlier one has compiled.
# To compile the tree again would take longer than all else that it does as it starts.
unexport PYTHONDONTWRITEBYTECODE
# As hourwheel/program.py does it: numpy's threads are busy while they wait.
export OPENBLAS_NUM_THREADS := 1

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help venv demo test collected test-static test-most test-spark test-ops \
	test-clients test-console coverage check lint types contracts \
	format bench bench-lives bench-peers bench-tasks soak chaos chaos-long upgrade dist release \
	site packaging-lint pages lock proto proto-accept proto-lint spark-zip clean

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

# --- environment ---------------------------------------------------------------------------------

venv: $(VENV)/dev.stamp  ## make .venv with everything that is needed to work on Hourwheel

$(VENV)/bin/python:
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) is not installed"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "Hourwheel needs Python 3.11 or newer, and $(PYTHON) is `$(PYTHON) -V 2>&1`."; \
		echo "Name another one: make PYTHON=python3.12 ..."; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
		echo "$(PYTHON) cannot make environments (on Debian: apt install python3-venv)"; exit 1; }

# What a node needs is a part of what development needs, in the same versions; `make demo` needs
# only that. The tree itself is installed as editable, for the `hourwheel` command.
# What comes as source is built by PEP 517, which an older pip has to be asked for.
# Locks are complete: what a package asks for besides is never looked up, since pip would ask for
# the newest release of `coverage[toml]`, say, and refuse it for want of a hash.
$(VENV)/node.stamp: requirements/node.txt | $(VENV)/bin/python
	@echo "installing what a node needs into $(VENV)"
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --require-hashes --no-deps \
		--use-pep517 -r requirements/node.txt
	@touch $@

$(VENV)/dev.stamp: requirements/dev.txt pyproject.toml $(VENV)/node.stamp
	@echo "installing what the tests need into $(VENV)"
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --require-hashes --no-deps \
		--use-pep517 -r requirements/dev.txt
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-deps \
		--no-build-isolation -e .
	@touch $@

# --- use -----------------------------------------------------------------------------------------

demo: $(VENV)/node.stamp  ## three nodes, thousands of messages, and a kill -9 of the master
	@$(BIN)/python -m hourwheel.cli demo

# --- work ----------------------------------------------------------------------------------------

PYTEST = $(BIN)/python -m pytest -q --timeout $(HANG_S) --timeout-method signal
SPREAD = -n $(WORKERS) --dist worksteal

# Steps that run beside each other print what they have to say when they end (make 4.0 and newer).
BESIDE = $(MAKE) --no-print-directory $(if $(filter output-sync,$(.FEATURES)),--output-sync=target)

# What ends in seconds comes first. mypy takes one core for most of a minute where it has no cache.
test: $(VENV)/dev.stamp  ## everything that must pass before a change goes in (about 10 minutes)
	@$(BESIDE) -j 3 lint contracts collected
	@$(BESIDE) -j 3 types test-most test-spark

test-static: $(VENV)/dev.stamp
	@$(BESIDE) -j 3 lint types contracts

# Pytest compiles tests in a way of its own. Each worker would do so for itself, all at one time.
collected: $(VENV)/dev.stamp
	@$(BIN)/python -m pytest --collect-only -qq tests >/dev/null || true

test-most: $(VENV)/dev.stamp
	@$(PYTEST) $(SPREAD) --durations 25 --durations-min 1 --ignore tests/spark \
		--ignore tests/ops --ignore tests/console --ignore tests/libraries --ignore tests/deploy

# One session of Spark for all, not one a worker. It mostly waits, so it runs beside the others.
test-spark: $(VENV)/dev.stamp
	@$(PYTEST) -p no:cacheprovider tests/spark

test-ops: $(VENV)/dev.stamp  ## dashboards and alerts beside a real Prometheus (a few minutes)
	@$(PYTEST) -p no:cacheprovider tests/ops
	@$(MAKE) --no-print-directory test-console

$(VENV)/browser.stamp: requirements/browser.txt $(VENV)/dev.stamp
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --require-hashes --no-deps \
		-r requirements/browser.txt
	@touch $@

# The browser is the machine's: chromium, as Debian has it, or what CHROMIUM names.
test-console: $(VENV)/dev.stamp  ## the console in a real browser; pictures in build/screenshots
	@if [ -n "$(CHROMIUM)" ] || command -v chromium >/dev/null; then \
		$(MAKE) --no-print-directory $(VENV)/browser.stamp && $(PYTEST) tests/console; \
	else \
		echo "NOT TESTED: the console in a browser, because of missing chromium" \
			"(CONSOLE_REQUIRED=1 makes that a failure)"; \
		[ -z "$(CONSOLE_REQUIRED)" ]; \
	fi

test-deploy: $(VENV)/dev.stamp  ## wheel, image, chart, other languages, benchmarks (some minutes)
	@$(PYTEST) $(SPREAD) --durations 10 --durations-min 1 tests/deploy

test-clients: $(VENV)/dev.stamp  ## Celery and dramatiq at three nodes, one killed (minutes)
	@$(PYTEST) -p no:cacheprovider tests/libraries

coverage: $(VENV)/dev.stamp  ## how much of each package the quick tests run, against its floor
	@mkdir -p build
	@$(PYTEST) $(SPREAD) --cov --cov-report= tests/unit tests/property
	@$(BIN)/coverage json -q -o build/coverage.json
	@$(BIN)/python -m tests.tidy.coverage_floors build/coverage.json $(if $(RAISE),--raise)

check: test-static  ## the quick part of `make test` (< 2 minutes)
	@$(PYTEST) $(SPREAD) tests/tidy tests/unit

lint: $(VENV)/dev.stamp
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/vulture   # what nothing uses; pyproject.toml says what it cannot see

types: $(VENV)/dev.stamp
	@$(BIN)/mypy

contracts: $(VENV)/dev.stamp
	@$(BIN)/lint-imports

format: $(VENV)/dev.stamp  ## format the code and mend what ruff can mend
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: $(VENV)/dev.stamp  ## measure; prints a table and writes build/bench.json
	@mkdir -p build
	@$(BIN)/python -m tests.bench --json build/bench.json

bench-lives: $(VENV)/dev.stamp  ## keys and moves with 10 million pending, races, recurrences
	@mkdir -p build
	@$(BIN)/python -m tests.bench keys races recurring --json build/bench-lives.json

bench-peers: $(PEERS_BIN)/.stamp  ## measure beside Redis, PostgreSQL, RocksDB and RocketMQ
	@mkdir -p build
	@$(PEERS_BIN)/python -m tests.bench.peers --json build/peers.json

$(PEERS_BIN)/.stamp: requirements/node.txt requirements/peers.txt
	@$(PYTHON) -m venv build/peers-venv
	@$(PEERS_BIN)/python -m pip install -q --disable-pip-version-check --require-hashes --no-deps \
		-r requirements/node.txt
	@$(PEERS_BIN)/python -m pip install -q --disable-pip-version-check --require-hashes --no-deps \
		-r requirements/peers.txt
	@touch $@

bench-tasks: $(VENV)/dev.stamp build/peers-lib/.stamp  ## tasks of Celery and dramatiq, beside Redis
	@PYTHONPATH=$(CURDIR)/build/peers-lib $(BIN)/python -m tests.bench task_queues \
		--json build/tasks.json

build/peers-lib/.stamp: $(VENV)/dev.stamp requirements/peers.txt
	@rm -rf build/peers-lib
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --require-hashes --no-deps \
		--target build/peers-lib -r requirements/peers.txt
	@touch $@

soak: $(VENV)/dev.stamp  ## long random tests: new seeds, many more examples
	@HYPOTHESIS_PROFILE=soak $(BIN)/python -m pytest -q -n $(WORKERS) tests/property tests/sim \
		tests/cluster/test_kill.py tests/cluster/test_chaos.py tests/deploy/test_bench_smoke.py \
		tests/cluster/test_stopped_master.py tests/cluster/test_hostile_streams.py \
		tests/cluster/test_voters.py tests/clients/test_worker_processes.py

chaos: $(VENV)/dev.stamp  ## a real cluster under load and faults, checked (some minutes)
	@$(BIN)/python -m chaos --mix short

chaos-long: $(VENV)/dev.stamp  ## every scenario, 20 rounds of a new seed each, and audited
	@$(BIN)/python -m chaos --rounds 20 --audit

# FROM is a revision of git; about two days old where nobody says.
FROM ?= $(shell git rev-list -1 --before='2 days ago' HEAD)

upgrade: $(VENV)/dev.stamp  ## a rolling restart from FROM=revision to this tree under load, checked
	@$(BIN)/python -m chaos.upgrade --from $(FROM)

# Who installs a node builds the wheel, and needs nothing of what development needs.
$(BUILD_BIN)/.stamp: requirements/build.txt
	@$(PYTHON) -m venv build/build-venv
	@$(BUILD_BIN)/python -m pip install -q --disable-pip-version-check --require-hashes --no-deps \
		-r requirements/build.txt
	@touch $@

dist: $(BUILD_BIN)/.stamp  ## build the wheel (client and server) and the source package, in dist/
	@rm -rf dist build/lib build/bdist.*
	@$(BUILD_BIN)/python -c 'from setuptools import build_meta as b; b.build_sdist("dist")' \
		>build/dist.log 2>&1 || { cat build/dist.log; exit 1; }
	@$(BUILD_BIN)/python -m pip wheel -q --disable-pip-version-check --no-deps \
		--no-build-isolation -w dist dist/*.tar.gz
	@ls dist

spark-zip: $(VENV)/dev.stamp  ## what spark-submit needs of this tree, in build/spark
	@$(BIN)/python -m spark_jobs.runtime.packing build/spark

# Environments for one purpose each: what they have does not mix with what Hourwheel needs.
$(RELEASE_BIN)/.stamp: requirements/build.txt requirements/release.txt
	@$(PYTHON) -m venv build/release-venv
	@$(RELEASE_BIN)/python -m pip install -q --disable-pip-version-check --require-hashes --no-deps \
		-r requirements/build.txt -r requirements/release.txt
	@touch $@

release: $(RELEASE_BIN)/.stamp  ## wheel, sdist, SBOM and checksums in dist/ (DRAFT=1: unreleased)
	@$(RELEASE_BIN)/python packaging/release.py $(if $(DRAFT),--draft) $(if $(TAG),--tag $(TAG))

$(PACKAGING_BIN)/.stamp: requirements/packaging.txt
	@$(PYTHON) -m venv build/packaging-venv
	@$(PACKAGING_BIN)/python -m pip install -q --disable-pip-version-check --require-hashes --no-deps \
		-r requirements/packaging.txt
	@touch $@

packaging-lint: $(PACKAGING_BIN)/.stamp  ## lint images and workflows, with hadolint and actionlint
	@$(PACKAGING_BIN)/hadolint packaging/Containerfile
	@$(PACKAGING_BIN)/hadolint --ignore DL3008 packaging/spark.Containerfile
	@command -v go >/dev/null || { echo "go is not installed: actionlint is not run"; exit 1; }
	@GOBIN=$(CURDIR)/$(PACKAGING_BIN) \
		go install github.com/rhysd/actionlint/cmd/actionlint@$(ACTIONLINT_VERSION)
	@$(PACKAGING_BIN)/actionlint

$(SITE_BIN)/.stamp: requirements/site.txt
	@$(PYTHON) -m venv build/site-venv
	@$(SITE_BIN)/python -m pip install -q --disable-pip-version-check --require-hashes --no-deps \
		-r requirements/site.txt
	@touch $@

site: $(SITE_BIN)/.stamp  ## a site of the pages, in build/site; a link that leads nowhere fails
	@rm -rf build/site
	@$(SITE_BIN)/sphinx-build -q -W --keep-going -c packaging/site . build/site

# --- files that are made -------------------------------------------------------------------------

pages: $(VENV)/dev.stamp  ## write the parts of docs/ that are made from the code
	@$(BIN)/python -m tests.tidy.made_pages
	@$(BIN)/python -m node config --markdown >docs/CONFIGURATION.md
	@$(BIN)/python -m node config --toml >docs/hourwheel.toml
	@$(BIN)/python -m node metrics --markdown >docs/METRICS.md
	@$(BIN)/python -m helm.monitoring

$(LOCK_BIN)/uv:
	@$(PYTHON) -m venv build/lock-venv
	@$(LOCK_BIN)/python -m pip install -q --disable-pip-version-check 'uv>=0.9'

LOCK = $(LOCK_BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes \
	--custom-compile-command 'make lock' $(UPGRADE)

lock: $(LOCK_BIN)/uv  ## lock the dependencies again (UPGRADE=--upgrade for newer versions)
	@$(LOCK) pyproject.toml --extra cli --extra node -o requirements/node.txt
	@$(LOCK) pyproject.toml --extra cli --extra node --extra spark --extra workers \
		--extra celery --extra dramatiq --extra http --extra s3 --extra dev \
		-c requirements/node.txt -o requirements/dev.txt
	@$(LOCK) pyproject.toml --extra cli --extra node --extra spark -c requirements/dev.txt \
		-o requirements/spark.txt
	@$(LOCK) requirements/proto.in -o requirements/proto.txt
	@for one in build packaging release site browser peers; do \
		$(LOCK) requirements/$$one.in -c requirements/dev.txt -o requirements/$$one.txt; done

$(PROTO_BIN)/.stamp: requirements/proto.txt
	@$(PYTHON) -m venv build/proto-venv
	@$(PROTO_BIN)/python -m pip install -q --disable-pip-version-check --require-hashes --no-deps \
		-r requirements/proto.txt
	@touch $@

proto: $(PROTO_BIN)/.stamp  ## generate hourwheel/v1 and hourwheel/internal/v1 from proto/
	@$(PROTO_BIN)/python -m grpc_tools.protoc -Iproto \
		--python_out=. --pyi_out=. --grpc_python_out=. \
		proto/hourwheel/v1/*.proto proto/hourwheel/internal/v1/*.proto
	@$(PYTHON) -m tests.tidy.proto_sources

proto-accept: $(VENV)/dev.stamp  ## accept additions to the API; refuses what would break clients
	@$(BIN)/python -m tests.tidy.proto_golden

proto-lint:  ## lint proto/ with buf, where npm is installed
	@command -v npm >/dev/null || { echo "npm is not installed: buf is not run"; exit 1; }
	@rm -rf build/buf/src && mkdir -p build/buf/src
	@npm install --silent --no-save --prefix build/buf @bufbuild/buf@$(BUF_VERSION)
	@cp -r proto/hourwheel build/buf/src/
	@cp buf.yaml build/buf/src/
	@cd build/buf/src && ../node_modules/.bin/buf lint

clean:  ## remove what was made here, .venv included
	@rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis \
		.import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
