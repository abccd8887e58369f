# Everything a newcomer needs: `make demo` shows the system at work, `make test` checks it. Each target does its own set-up.
.DEFAULT_GOAL := help
SHELL := /bin/bash
CACHE := $(or $(SLINKY_CACHE),$(HOME)/.cache/slinky)
UV := $(shell command -v uv || echo $(CACHE)/uv/bin/uv)
RUN := .venv/bin
PYTEST := $(RUN)/pytest
SEVERAL := -n 2 --dist loadfile --no-loadscope-reorder  # processes, each with a sandbox of its own: as many as two cores bear

.PHONY: help setup lint test test-fast test-all chaos demo demo-operator bench docs clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

setup: .venv/.ready  ## the program as .venv/bin/slinky

.venv/.ready: pyproject.toml uv.lock scripts/bootstrap_uv
	scripts/bootstrap_uv "$(UV)"
	"$(UV)" sync --locked --quiet
	@touch $@

lint: setup  ## style, types, layers
	$(RUN)/ruff check .
	$(RUN)/ruff format --check .
	$(RUN)/mypy
	$(RUN)/lint-imports

test: lint  ## lint, then the fast tests, then the tests on the sandbox
	$(PYTEST) $(SEVERAL) -m "not sandbox and not long"
	$(RUN)/slinky sandbox build
	$(PYTEST) $(SEVERAL) -m "sandbox and not long"

test-fast: lint  ## lint and the tests that need no sandbox (seconds)
	$(PYTEST) $(SEVERAL) -m "not sandbox and not long"

test-all: lint  ## everything, the long ones too (hours), with examples that no run has tried before
	SLINKY_SEARCH=1 $(PYTEST)

chaos: setup  ## pods and gangs while everything fails, by a seed: SEED=1 SECONDS=120 RUNS=1 (docs/chaos.md)
	$(RUN)/python -m tests.chaos --seed $(or $(SEED),1) --seconds $(or $(SECONDS),120) --runs $(or $(RUNS),1) $(OPTIONS)

demo: setup  ## a gang, afterok between pods and sbatch, a preemption with grace, on two real nodes; and a picture of it
	$(RUN)/slinky demo

demo-operator: setup  ## a Slurm cluster in pods, made by the operator, on two real nodes; and pods that it places
	$(RUN)/slinky demo-operator

bench: setup  ## measures, as a table and as JSON in bench/results/
	$(RUN)/python -m bench

docs: setup  ## the site, strictly, in artefacts/site/index.html
	$(RUN)/sphinx-build -W -n -q --keep-going -b html docs artefacts/site

clean:  ## what make made here (the cache stays: `rm -r ~/.cache/slinky` if you want it gone)
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache artefacts dist
