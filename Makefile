# Everything here needs make and Python 3.11 or later, and makes the rest itself: `make help`.
#   PYTHON=/path/to/python3.12   the interpreter that .venv is made from (else the first good python3.x on the PATH)
#   STORES='sqlite redis'        which stores `make bench` measures (else all of them)
#   STORE=postgresql://…         where `make demo` plays (else on a SQLite file in its folder)
#   ARGS='-k version'            handed on to demo, serve, test, test-full, proof, bench and mutants

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PYTHON ?=
ARGS ?=
STORE ?=
STORES ?= sqlite postgres mysql redis
UV_VERSION := 0.13.9

BIN := .venv/bin
CODE := $(wildcard src tests benchmarks tools)
DEMO_WHEELS := $(CURDIR)/.cache/demo-wheels
# Python writes compiled files beside the code here, as it does unless told otherwise: the tests start some hundred interpreters.
PYTEST := PYTHONDONTWRITEBYTECODE= SATCHEL_DEMO_WHEELS="$(DEMO_WHEELS)" $(BIN)/python -m pytest

.PHONY: help demo serve test test-full proof check format bench mutants openapi lock clean venv fuzzer demo-wheels databases databases-full

help: ## list the targets
	@echo "Satchel: make TARGET [ARGS='…'] [PYTHON=/path/to/python3]"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' Makefile

demo: venv demo-wheels ## play the demo: an agent repairs a Flask project, its server is killed, and it goes on (no network at play time)
	@SATCHEL_DEMO_WHEELS="$(DEMO_WHEELS)" $(BIN)/satchel demo $(if $(STORE),--store '$(STORE)') $(ARGS)

serve: venv demo-wheels ## serve the demo's agents over HTTP on this machine, and print the line to try it with
	@SATCHEL_STORE="$${SATCHEL_STORE:-sqlite:///.cache/satchel.db}" SATCHEL_DEMO_WHEELS="$(DEMO_WHEELS)" $(BIN)/satchel serve $(ARGS)

test: venv demo-wheels databases ## run the tests, without those marked `full`
	@echo "==> tests, two processes, without those marked full"
	@$(PYTEST) -n 2 --dist loadgroup -m "not full" $(ARGS)

test-full: venv fuzzer demo-wheels databases-full ## run all tests, also those marked `full`
	@echo "==> all tests, two processes"
	@$(PYTEST) -n 2 --dist loadgroup $(ARGS)

proof: venv fuzzer ## break it on purpose and see that it holds: ARGS='kills --store sqlite --weak kills=20'
	@$(BIN)/python -m tests.proof $(ARGS)

check: venv ## format, lint, types, floors, links, examples of the docs: what a commit must pass
	@echo "==> ruff format --check"
	@$(BIN)/ruff format --check $(CODE)
	@echo "==> ruff check"
	@$(BIN)/ruff check $(CODE)
	@echo "==> mypy --strict"
	@$(BIN)/mypy --strict $(CODE)
	@echo "==> floors: imports go down only"
	@$(BIN)/python -m tools.check_floors
	@echo "==> the blocking managers are those of today"
	@$(BIN)/python -m tools.make_sync --check
	@echo "==> links in the docs"
	@$(BIN)/python -m tools.check_links
	@echo "==> examples in the docs"
	@$(PYTEST) -q tests/test_docs.py

format: venv ## write the blocking managers anew, format the code and repair what the linter can repair
	@$(BIN)/python -m tools.make_sync
	@$(BIN)/ruff check --fix-only --quiet $(CODE)
	@$(BIN)/ruff format $(CODE)

bench: venv databases ## run the benchmarks behind the numbers in the docs
	@$(BIN)/python -m benchmarks --stores $(STORES) $(ARGS)

mutants: venv ## break the code in small ways and see that a test notices each
	@$(BIN)/python -m tools.mutants $(ARGS)

openapi: venv ## write docs/openapi.json anew from the table of routes
	@$(BIN)/python -m tools.make_openapi

lock: ## pin all dependencies anew in requirements/*.lock
	@PYTHON="$(PYTHON)" tools/lock.sh $(UV_VERSION)

clean: ## remove all that these targets made: .venv, .cache, dist, compiled files
	@echo "==> removing .venv, .cache, dist and compiled files"
	@rm -rf .venv .cache .hypothesis .ruff_cache .mypy_cache .pytest_cache dist build
	@find . -name .git -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

# The scripts compare what is there with what is wanted, and return at once when nothing changed.
venv:
	@PYTHON="$(PYTHON)" tools/venv.sh

fuzzer: venv
	@tools/fuzzer.sh

demo-wheels: venv
	@tools/demo_wheels.sh

databases:
	@tools/databases.sh

databases-full:
	@tools/databases.sh full
