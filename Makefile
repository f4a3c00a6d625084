# Barnabas. `make` alone lists what there is.
#
# Everything is installed into .venv next to this file; nothing outside the clone is touched, except that `make test`
# installs the programs its client tests drive (kcat, Java, Go, Node.js, Chromium) when they are missing and apt-get is there.

PYTHON ?= $(shell for name in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$name; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
JOBS ?= 2
ARGS ?=
COVERED ?= tests/unit tests/property tests/conformance tests/simulation

# Images of Python often set this. Without bytecode on disk every process compiles all its modules when it starts, which
# takes a broker half a second of CPU; an editable installation has none before the first import.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup demo system-deps test test-full coverage mutants bench lint format generate docs clean

help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(STAMP): pyproject.toml
	@echo "setup: installing Barnabas and its tools into $(VENV) (1 to 2 minutes the first time)"
	@test -n "$(PYTHON)" || \
		{ echo "setup: Python 3.11 or newer is needed; name yours with make PYTHON=..."; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || \
		{ echo "setup: python -m venv failed (on Debian: apt-get install python3-venv)"; rm -rf $(VENV); exit 1; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $(STAMP)

setup: $(STAMP) ## Make .venv with everything (1-2 minutes, once)
	@$(BIN)/python tools/build_console.py --optional
	@echo "setup: ready; $(BIN)/barnabas --help lists the commands"

demo: $(STAMP) ## Orders through three brokers into Spark's tables, a leader killed on the way (about 2 minutes)
	@echo "demo: three brokers, real orders, Spark, a leader killed on the way, the books balanced (about 2 minutes)"
	@$(BIN)/barnabas demo $(ARGS)

system-deps:
	@test ! -f tools/install_system_deps.sh || sh tools/install_system_deps.sh

test: $(STAMP) system-deps ## All tests but the long ones (under 20 minutes on 2 cores)
	@echo "test: unit, property, conformance, structure and system tests with real clients (under 20 minutes on 2 cores)"
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder --durations=40 --durations-min=5 -rfER \
		-m "not full" $(ARGS)

test-full: $(STAMP) system-deps ## All tests, including those against Apache Kafka, and branch coverage (longer)
	@echo "test-full: every test, also the long ones"
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder --durations=40 --durations-min=5 $(ARGS)
	@$(MAKE) --no-print-directory coverage

# Tests that measure time can fail while every line is traced; `test-full` has run them without that.
coverage: $(STAMP) ## Branch coverage by package, of the tests without processes (part of test-full)
	@rm -rf build/coverage && mkdir -p build/coverage
	-$(BIN)/python -m coverage run -m pytest -n $(JOBS) --dist loadfile -m "not full" $(COVERED)
	@$(BIN)/python -m coverage combine -q
	@$(BIN)/python tools/coverage_by_package.py

mutants: $(STAMP) ## 200 small faults, one at a time, and who notices them (hours; continues; ARGS="--minutes 60")
	@$(BIN)/python tools/mutants.py $(ARGS)

bench: $(STAMP) ## Compare with Apache Kafka on this machine; ARGS=--quick for a short run
	$(BIN)/python bench/run.py $(ARGS)

lint: $(STAMP) ## ruff, mypy --strict, layers, sizes, the types of the page (about a minute)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/tidy.py
	$(BIN)/python tools/build_console.py --check

format: $(STAMP) ## Put the code into its form
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

generate: $(STAMP) ## Write what is generated: messages, table of keys, configuration.md, diagrams
	$(BIN)/python tools/generate_messages.py
	$(BIN)/python tools/generate_config_table.py
	$(BIN)/python tools/generate_config_docs.py
	$(BIN)/python tools/generate_diagrams.py

$(STAMP)-docs: $(STAMP)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	@touch $@

docs: $(STAMP)-docs ## The documentation as a site, in build/site (half a minute)
	@$(BIN)/python tools/build_site.py

clean: ## Remove .venv and caches
	rm -rf $(VENV) build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
